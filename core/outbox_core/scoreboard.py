"""The scoreboard: which keys have a record under way, and what waits behind them.

The seed's scoreboard counts the records in flight of each key and makes the marker wait in line for a busy
one. This one lets a record of a busy key wait in that key's own queue, so that it holds up nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from outbox_sdk import Failure, MarkedRecord

RETRY_SECONDS = (0.1, 10.0)
"""How long a key is held after a failure that retrying may cure: at first, doubling up to at last."""
PARK_SECONDS = (1.0, 60.0)
"""The same after a failure that sending the same bytes again cannot cure."""
FORGET_SECONDS = 600.0
"""When a held key is forgotten of which nothing was marked again: somebody else took its rows away."""


@dataclass(slots=True)
class Hold:
    """Why and until when a key is not sent.

    Attributes:
        failures: Failures in a row.
        until: When the key may be tried again, in the caller's time.
        parked: Whether the last failure was one that sending the same bytes again cannot cure.
        reason: What was reported for the last failure.
    """

    failures: int
    until: float
    parked: bool
    reason: str


@dataclass(slots=True)
class Queue:
    """The records of a busy key that wait for their turn, in the order they were marked.

    Attributes:
        records: The waiting records; the first is next.
        moved: When the queue last moved, in the caller's time.
        held: Whether the key is busy only because it is held: nothing of it is ready or in flight.
    """

    records: deque[MarkedRecord]
    moved: float
    held: bool = False


class Scoreboard:
    """The barrier of every key: at most one of its records is ready or in flight.

    Attributes:
        waiting: Records marked and not yet taken for sending.
        bytes: Bytes (or characters) of the values of all records admitted and not yet released.
        holds: The keys that failed and have not been delivered since.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.bytes = 0
        self.holds: dict[str, Hold] = {}
        self._busy: dict[str, Queue | None] = {}
        self._ready: deque[MarkedRecord] = deque()
        self._held_until: list[tuple[float, str]] = []

    @property
    def ready(self) -> int:
        """How many records may be sent."""
        return len(self._ready)

    def admit(self, now: float, records: Sequence[MarkedRecord]) -> None:
        """Takes marked records, ordered by id: each is ready, or waits behind its key."""
        busy, ready, size = self._busy, self._ready, 0
        for record in records:
            key = record.key
            if record.value is not None:
                size += len(record.value)
            if key in busy:
                if (queue := busy[key]) is None:
                    busy[key] = Queue(deque((record,)), now)
                else:
                    queue.records.append(record)
            elif key in self.holds and now < self.holds[key].until:
                busy[key] = Queue(deque((record,)), now, held=True)
            else:
                busy[key] = None
                ready.append(record)
        self.waiting += len(records)
        self.bytes += size

    def take(self, most: int) -> list[MarkedRecord]:
        """Takes up to ``most`` ready records for sending; their keys stay busy."""
        ready = self._ready
        if most >= len(ready):
            taken = list(ready)
            ready.clear()
        else:
            taken = [ready.popleft() for _ in range(most)]
        self.waiting -= len(taken)
        return taken

    def release(self, now: float, records: Iterable[MarkedRecord]) -> None:
        """Lowers the barriers of records that are gone: the next of each key is ready."""
        for record in records:
            self.bytes -= _size(record)
            if self.holds:
                self.holds.pop(record.key, None)
            self._advance(now, record.key)

    def withdraw(self, keys: Iterable[str]) -> list[int]:
        """Forgets what waits behind ``keys``, which stay busy; returns the ids of what was forgotten."""
        ids: list[int] = []
        for key in keys:
            if (queue := self._busy[key]) is not None:
                ids.extend(record.id for record in queue.records)
                self._drop(queue.records)
                self._busy[key] = None
        return ids

    def free(self, keys: Iterable[str]) -> None:
        """Lowers the barriers of keys of which nothing is marked any more."""
        for key in keys:
            del self._busy[key]

    def hold(self, now: float, failures: Iterable[Failure]) -> None:
        """Lowers the barriers of failed records and holds their keys, longer with every failure."""
        for failure in failures:
            key = failure.record.key
            self.bytes -= _size(failure.record)
            del self._busy[key]
            count = self.holds[key].failures + 1 if key in self.holds else 1
            first, last = RETRY_SECONDS if failure.retryable else PARK_SECONDS
            until = now + min(first * 2.0 ** min(count - 1, 10), last)
            self.holds[key] = Hold(count, until, not failure.retryable, failure.reason)
            heappush(self._held_until, (until, key))

    def end_holds(self, now: float) -> list[str]:
        """Makes the first record of every key ready whose hold is over.

        Returns:
            The keys for which it did not: parked ones, which have to be withdrawn, reset and freed, so that
            they are marked anew. Somebody may have repaired the row meanwhile.
        """
        parked = []
        while self._held_until and self._held_until[0][0] <= now:
            _, key = heappop(self._held_until)
            queue = self._busy.get(key)
            if queue is None or not queue.held:
                continue
            if key in self.holds and self.holds[key].parked:
                parked.append(key)
                queue.held = False
            else:
                self._advance(now, key)
        return parked

    def next_hold_end(self) -> float:
        """Returns when the next hold is over; infinity for none."""
        return self._held_until[0][0] if self._held_until else float("inf")

    def forget_unsent(self) -> None:
        """Forgets every record that is ready or waits; what is in flight keeps its barrier."""
        if not self.waiting:
            return
        for key, queue in list(self._busy.items()):
            if queue is not None:
                self._drop(queue.records)
                self._busy[key] = None
                if queue.held:
                    del self._busy[key]
        for record in self._ready:
            del self._busy[record.key]
        self._drop(self._ready)
        self._ready.clear()

    def stalled(self, now: float, timeout: float) -> bool:
        """Tells whether a queue has not moved for ``timeout`` seconds, held keys aside.

        Looks at every busy key, so call it now and then only. Also forgets holds that lead nowhere.
        """
        for key in [key for key, hold in self.holds.items() if hold.until + FORGET_SECONDS < now]:
            if key not in self._busy:
                del self.holds[key]
        return any(
            queue is not None and not queue.held and queue.moved + timeout < now
            for queue in self._busy.values()
        )

    def _advance(self, now: float, key: str) -> None:
        queue = self._busy[key]
        if queue is None or not queue.records:
            del self._busy[key]
            return
        self._ready.append(queue.records.popleft())
        queue.moved = now
        queue.held = False

    def _drop(self, records: deque[MarkedRecord]) -> None:
        self.waiting -= len(records)
        self.bytes -= sum(map(_size, records))


def _size(record: MarkedRecord) -> int:
    return len(record.value) if record.value is not None else 0
