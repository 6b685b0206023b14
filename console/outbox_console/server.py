"""The HTTP server's thread."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

import uvicorn
from outbox_core.config.http import Address
from outbox_sdk.context_thread import ContextThread
from starlette.applications import Starlette

from outbox_console.connections import AttentiveProtocol
from outbox_console.listening import listen

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
"""Requests and open connections beyond which clients get 503."""
KEEP_SECONDS = 12
"""For how long a connection stays open after an answer: longer than the pause of any browser that looks."""
_END_SECONDS = 1
"""How long the end waits for answers that are being written."""


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
