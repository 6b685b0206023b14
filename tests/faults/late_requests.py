"""Keeps requests of Kafka's clients that are repeated, and delivers them in the middle of what follows."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import NamedTuple

from .proxy import END_TRANSACTION, Observer, commits

PRODUCE, INITIALIZE, ADD_PARTITIONS = 0, 22, 24
"""Kafka's API keys of other requests."""
_HEAD = 14
"""The bytes of a request up to the name of its client, which follows behind its length."""
_LONGEST_NAME = 249
_MOST_ENDS = 3
_TIMEOUT = 10.0
_ERRORS = {0: "none", 47: "epoch", 48: "state", 51: "concurrent", 90: "fenced"}
"""Kafka's answers to EndTxn: what was asked was done, or why it was refused."""


class What(Enum):
    """What is kept: the next request of one kind."""

    COMMIT = "a request to commit a transaction"
    ABORT = "a request to abort a transaction"
    PRODUCE = "a request to produce"

    def is_in(self, data: bytes) -> bool:
        """Returns whether the data is exactly one such request."""
        if int.from_bytes(data[:4]) != len(data) - 4 or len(data) < _HEAD:
            return False
        kind = int.from_bytes(data[4:6])
        if self is What.PRODUCE:
            return kind == PRODUCE
        return kind == END_TRANSACTION and commits(data) == (self is What.COMMIT)


class Moment(NamedTuple):
    """When a request is delivered: before the client's next request of a kind but so many.

    Requests are counted from the begin of a transaction; those to produce outside of one from the keeping.
    """

    kind: int
    number: int = 1


MOMENTS = (
    Moment(ADD_PARTITIONS),
    Moment(ADD_PARTITIONS, 2),
    Moment(ADD_PARTITIONS, 3),
    *(Moment(PRODUCE, number) for number in (1, 2, 4, 7, 10)),
    Moment(END_TRANSACTION),
)


@dataclass
class _Kept:
    """A request that is kept, with the port that it was for.

    Attributes:
        ends: How many transactions of its client have ended since.
    """

    data: bytes
    port: int
    moment: Moment
    ends: int = 0

    def is_due(self, now: Moment) -> bool:
        """Returns whether its moment is now, or its client has had several transactions without one."""
        return self.ends > _MOST_ENDS or (self.ends > 0 and now == self.moment)


class LateRequests:
    """What proxies before all brokers have kept; for several threads.

    Attributes:
        kept: How many requests have not reached a broker at once.
        answers: What the brokers have answered to those that were delivered.
    """

    def __init__(self) -> None:
        self.kept = 0
        self.answers: Counter[str] = Counter()
        self._wanted: tuple[What, Moment] | None = None
        self._late: dict[bytes, _Kept] = {}
        self._seen: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
        self._lock = Lock()

    def keep(self, what: What, moment: Moment) -> None:
        """Keeps the next such request of any client that has none kept, and cuts its connection."""
        with self._lock:
            self._wanted = what, moment

    def forget(self) -> None:
        """Keeps and delivers nothing more."""
        with self._lock:
            self._wanted = None
            self._late.clear()

    def watch(self, port: Callable[[], int]) -> Observer:
        """Returns what receives the data of one connection, in the thread that forwards it.

        It blocks while it delivers a request, and raises an ``OSError`` instead of letting one pass.

        Args:
            port: Returns the broker's port.
        """
        heads = _Heads()

        def see(data: bytes, from_client: bool) -> None:
            if from_client:
                for kind, name in heads.of(data):
                    if self._keeps(data, kind, name, port):
                        raise ConnectionAbortedError
                    if late := self._due(kind, name):
                        self._deliver(late)

        return see

    def _keeps(self, data: bytes, kind: int, name: bytes, port: Callable[[], int]) -> bool:
        with self._lock:
            if self._wanted is None or name in self._late or not self._wanted[0].is_in(data):
                return False
            (what, moment), self._wanted = self._wanted, None
            self._late[name] = _Kept(data, port(), moment, ends=what is What.PRODUCE)
            self._seen[name].clear()
            self.kept += 1
            return True

    def _due(self, kind: int, name: bytes) -> _Kept | None:
        with self._lock:
            seen, late = self._seen[name], self._late.get(name)
            seen[kind] += 1
            due = late is not None and late.is_due(Moment(kind, seen[kind]))
            if kind in (END_TRANSACTION, INITIALIZE):
                seen.clear()
                if late is not None:
                    late.ends += kind == END_TRANSACTION
            return self._late.pop(name) if due else None

    def _deliver(self, late: _Kept) -> None:
        said = "no answer"
        with contextlib.suppress(OSError):  # the broker is down
            with socket.create_connection(("127.0.0.1", late.port), timeout=_TIMEOUT) as broker:
                broker.sendall(late.data)
                with broker.makefile("rb") as answers:
                    answer = answers.read(int.from_bytes(answers.read(4)))
            if int.from_bytes(late.data[4:6]) == END_TRANSACTION:
                code = int.from_bytes(answer[8:10])
                said = _ERRORS.get(code, f"error {code}")
            elif answer:
                said = "produced"
        with self._lock:
            self.answers[said] += 1


class _Heads:
    """Finds where requests begin in the data of one connection."""

    def __init__(self) -> None:
        self._begun = b""  # of a request whose head is not complete
        self._left = 0  # bytes of the present request

    def of(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yields the kind and the client's name of each request whose head becomes complete with the data."""
        rest = min(self._left, len(data))
        self._left -= rest
        data, self._begun = self._begun + data[rest:], b""
        while len(data) >= _HEAD:
            end = _HEAD + min(int.from_bytes(data[12:_HEAD], signed=True), _LONGEST_NAME)
            if len(data) < end:
                break
            yield int.from_bytes(data[4:6]), data[_HEAD:end]
            size = 4 + int.from_bytes(data[:4])
            self._left = max(0, size - len(data))
            data = data[size:]
        self._begun = data
