"""The HTTP server's thread, and its connections: those that ask for nothing cost the harvest nothing."""

from __future__ import annotations

import asyncio
import logging
import resource
from types import TracebackType
from typing import Any, Self

import uvicorn
from outbox_api.context_thread import ContextThread
from outbox_core.config.http import Address
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from outbox_console.listening import listen

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
"""Requests and open connections beyond which clients get 503."""
KEEP_SECONDS = 12
"""For how long a connection stays open after an answer: longer than the pause of any browser that looks."""
_END_SECONDS = 1
"""How long the end waits for answers that are being written."""

SILENT_SECONDS = 10.0
"""How long a client may take for the head of a request."""
ANSWER_SECONDS = 60.0
"""How long it may take for the rest of the request, and to read the answer."""

MOST_SILENT = 100
"""Connections without a request beyond which the one that has been silent for longest is closed.

Each has a file descriptor, which databases and brokers need too.
"""
MOST = 900
"""Connections beyond which the one whose last request is the oldest is closed, where descriptors suffice."""


def most_open() -> int:
    """Returns how many connections there may be: a quarter of the descriptors of this process at most."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(1, soft // 4))


class AttentiveProtocol(H11Protocol):
    """uvicorn's protocol, which itself would wait for ever for a client that does not send or read on."""

    _end: asyncio.TimerHandle | None = None
    _since = 0.0
    _answered: object = None  # the request that is being answered, or was last; None for a silent client

    def connection_made(self, transport: Any) -> None:
        """Starts to wait for a request, in place of the client that has waited for longest."""
        super().connection_made(transport)
        self._wait(SILENT_SECONDS)
        if len(self.connections) <= min(MOST_SILENT, most_open()):
            return
        # Many may be accepted at once, before the first of those that are closed here is forgotten.
        present = [
            each
            for each in self.connections
            if isinstance(each, AttentiveProtocol) and not each.transport.is_closing()
        ]
        silent = [each for each in present if each.is_silent]
        if len(silent) > MOST_SILENT:
            _oldest(silent).transport.abort()
        elif len(present) > most_open():
            _oldest(present).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Waits for the answer to be read once there is a request, and for the next one afterwards."""
        super().data_received(data)
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        if cycle is not None and not cycle.response_complete:
            if cycle is not self._answered:
                self._answered = cycle
                self._wait(ANSWER_SECONDS)
        elif not self.is_silent:
            self._answered = None
            self._wait(SILENT_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing more."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """Whether a request is waited for."""
        return self._answered is None

    @property
    def since(self) -> float:
        """Since when it is waited for what is waited for, by the loop's clock."""
        return self._since

    def _wait(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        self._since = self.loop.time()
        self._end = self.loop.call_later(seconds, self.transport.abort)


def _oldest(connections: list[AttentiveProtocol]) -> AttentiveProtocol:
    return min(connections, key=lambda each: each.since)


class HttpServer:
    """Serves on a thread of its own until it is left; a context manager. It touches no lane.

    Args:
        address: Where to listen.
        app: What to serve.

    Attributes:
        address: Where it listens, with the port that it has.

    Raises:
        ConfigError: There is no such address here, or this user may not use the port.
        OutboxError: Another process listens there.
    """

    def __init__(self, address: Address, app: Starlette) -> None:
        self._socket = listen(address)
        self.address = address._replace(port=self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=AttentiveProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_SECONDS,
            proxy_headers=False,  # who may do what depends on the address that a client really has
            timeout_graceful_shutdown=_END_SECONDS,
        )
        # Whoever reaches the port could fill the log with requests that are none.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        self._thread = ContextThread(target=self._run, name="http", daemon=True)

    def __enter__(self) -> Self:
        """Starts serving."""
        self._thread.start()
        log.info("serving on http://%s", self.address)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it; waits a little for answers that are being written."""
        self._server.should_exit = True
        self._thread.join(_END_SECONDS + 0.5)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            log.exception("the HTTP server has ended; what is harvested is not affected")
