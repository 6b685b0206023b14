"""Connections of HTTP clients: those that ask for nothing cost neither probes nor the harvest anything."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SILENT_SECONDS = 10.0
"""How long a client may take for a whole request."""

MOST_SILENT = 100
"""Connections without a request beyond which the one that has been silent for longest is closed.

Each has a file descriptor, which databases and brokers need too.
"""


class AttentiveProtocol(H11Protocol):
    """uvicorn's protocol, which itself would wait for ever for the end of a request."""

    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts to wait for a request, in place of the client that has waited for longest."""
        super().connection_made(transport)
        self._wait()
        silent = [each for each in self.connections if isinstance(each, AttentiveProtocol) and each.is_silent]
        if len(silent) > MOST_SILENT:
            min(silent, key=AttentiveProtocol.due).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Waits no longer once a request is whole, and for the next one once it is answered."""
        super().data_received(data)
        cycle: Any = self.cycle  # None before the first request, whatever its type says
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif not self.is_silent:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """Whether a request is waited for."""
        return self._silence is not None

    def due(self) -> float:
        """Returns when the wait ends, by the loop's clock."""
        return self._silence.when() if self._silence is not None else float("inf")

    def _wait(self) -> None:
        self._silence = self.loop.call_later(SILENT_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
