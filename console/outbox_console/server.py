"""The HTTP server's thread, and its connections: never so many that the harvest lacks descriptors."""

from __future__ import annotations

import logging
import resource
from types import TracebackType
from typing import Any, Self

import uvicorn
from outbox_api.support.context_thread import ContextThread
from outbox_core.settings.http import Address
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from outbox_console.listening import listen

log = logging.getLogger("outbox.console")

KEEP_SECONDS = 12
"""For how long a connection stays open after an answer: longer than the pause of any browser that looks."""
_END_SECONDS = 1
"""How long the end waits for answers that are being written."""

MOST = 900
"""Connections at a time, where descriptors suffice."""


def most_open() -> int:
    """Returns how many connections there may be: a quarter of the descriptors of this process at most.

    Databases and brokers need descriptors too.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(1, soft // 4))


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, which itself would keep any number of clients that neither send nor read on."""

    begun_at = 0.0

    def connection_made(self, transport: Any) -> None:
        """Takes the place of the oldest connection if there are too many."""
        super().connection_made(transport)
        self.begun_at = self.loop.time()
        # Many may be accepted at once, before the first of those that are closed here is forgotten.
        present = [
            each
            for each in self.connections
            if isinstance(each, BoundedProtocol) and not each.transport.is_closing()
        ]
        if len(present) > most_open():
            min(present, key=lambda each: each.begun_at).transport.abort()


class HttpServer:
    """Serves on a thread of its own until it is left; a context manager. It touches no lane."""

    def __init__(self, address: Address, app: Starlette) -> None:
        self._socket = listen(address)
        self.address = address._replace(port=self._socket.getsockname()[1])
        """Where it listens, with the port that it has."""
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_SECONDS,
            proxy_headers=False,  # who may do what depends on the address that a client really has
            timeout_graceful_shutdown=_END_SECONDS,
        )
        # Whoever reaches the port could fill the log with requests that are none.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        self._thread = ContextThread(target=self._run, name="http", daemon=True)

    def __enter__(self) -> Self:
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
