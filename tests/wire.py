"""Counts what clients of a PostgreSQL server ask for, from the data that a proxy forwards."""

from __future__ import annotations

from collections import Counter

from .faults.proxy import Observer, Proxy

_PREAMBLES = frozenset((80877103, 80877104))
"""The codes of requests for encryption, which come before a connection's first message."""


class Wire:
    """A proxy in front of a server; a context manager that closes it.

    Args:
        port: The server's port. Clients must not encrypt.

    Attributes:
        port: The proxy's port.
        statements: How many statements clients have asked to execute.
        round_trips: How often a client has waited for the server after it had sent something.
    """

    def __init__(self, port: int) -> None:
        self.statements = self.round_trips = 0
        self._proxy = Proxy(lambda: port, observe=self._observe)
        self.port = self._proxy.port

    def counts(self) -> tuple[int, int]:
        """Returns both counters."""
        return self.statements, self.round_trips

    def close(self) -> None:
        """Closes all connections. Idempotent."""
        self._proxy.close()

    def _observe(self) -> Observer:
        messages, answered = _Messages(), True

        def observe(data: bytes, from_client: bool) -> None:
            nonlocal answered
            if from_client:
                self.round_trips += answered
                kinds = messages.read(data)
                self.statements += kinds[b"E"] + kinds[b"Q"]
            answered = not from_client

        return observe


class _Messages:
    """The messages of one client, in PostgreSQL's protocol."""

    def __init__(self) -> None:
        self._unread = b""
        self._started = False

    def read(self, data: bytes) -> Counter[bytes]:
        """Returns how many messages of each kind end in the data."""
        kinds: Counter[bytes] = Counter()
        self._unread += data
        while len(self._unread) >= (head := 5 if self._started else 8):
            size = int.from_bytes(self._unread[head - 4 : head] if self._started else self._unread[:4])
            size += self._started  # the kind is not part of the length
            if len(self._unread) < size:
                break
            if self._started:
                kinds[self._unread[:1]] += 1
            else:
                self._started = int.from_bytes(self._unread[4:8]) not in _PREAMBLES
            self._unread = self._unread[size:]
        return kinds
