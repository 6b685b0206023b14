"""Connections of HTTP clients: those that ask for nothing cost neither probes nor the harvest anything."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

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
