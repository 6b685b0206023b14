"""The scoreboard: which keys have a record under way, what waits behind them, and which keys are held.

The seed's scoreboard counts the records in flight of each key and makes the marker wait in line for a busy
one. This one lets a record of a busy key wait in that key's own queue, so that it holds up nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from outbox_sdk import Failure, MarkedRecord, Poison

from outbox_core.attempts import Attempts, Policy

FORGET_SECONDS = 60.0
"""When a key is forgotten that was held and of which nothing came again: somebody took its rows away."""


@dataclass(slots=True)
class Hold(Attempts):
    """Until when a key is not sent.

    Attributes:
        until: When the key may be tried again, in the caller's time.
        parking: Whether the key is to be parked rather than tried again.
        active: Whether the key is held now; afterwards only its failures are remembered.
        ids: While active, the key's marked rows, to be reset when the hold ends.
    """

    until: float = 0.0
    parking: bool = False
    active: bool = False
    ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Queue:
    """The records of a busy key that wait for their turn, in the order they were marked.

    Attributes:
        records: The waiting records; the first is next.
        moved: When the queue last moved, in the caller's time.
    """

    records: deque[MarkedRecord]
    moved: float


class Scoreboard:
    """The barrier of every key: at most one of its records is ready or in flight.

    A key is free (unknown here), busy (a record of it is ready or in flight, others wait behind it) or held
    (it failed; of its marked rows only the ids are kept). A key whose record fails as often as the policy
    permits is held no longer than it takes to park it.

    Args:
        policy: For how long keys are held, and when they are parked.

    Attributes:
        waiting: Records marked and not yet taken for sending.
        bytes: Bytes (or characters) of the values of all records admitted and not yet released.
        held: Marked rows of held keys.
        holds: The keys that failed and have not been delivered since.
        policy: As given.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.waiting = 0
        self.bytes = 0
        self.held = 0
        self.holds: dict[str, Hold] = {}
        self._busy: dict[str, Queue | None] = {}
        self._ready: deque[MarkedRecord] = deque()
        self._hold_ends: list[tuple[float, str]] = []

    @property
    def ready(self) -> int:
        """How many records may be sent."""
        return len(self._ready)

    def admit(self, now: float, records: Sequence[MarkedRecord]) -> None:
        """Takes marked records, ordered by id: each is ready, waits behind its key, or is held with it."""
        busy, ready, holds, size, held = self._busy, self._ready, self.holds, 0, 0
        for record in records:
            key = record.key
            if holds and key in holds and holds[key].active:
                holds[key].ids.append(record.id)
                held += 1
                continue
            if record.value is not None:
                size += len(record.value)
            if key in busy:
                if (queue := busy[key]) is None:
                    busy[key] = Queue(deque((record,)), now)
                else:
                    queue.records.append(record)
            else:
                busy[key] = None
                ready.append(record)
        self.waiting += len(records) - held
        self.held += held
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
        busy, ready = self._busy, self._ready
        for record in records:
            key = record.key
            if record.value is not None:
                self.bytes -= len(record.value)
            if self.holds:
                self.holds.pop(key, None)
            queue = busy[key]
            if queue is None or not queue.records:
                del busy[key]
            else:
                ready.append(queue.records.popleft())
                queue.moved = now

    def hold(self, now: float, failures: Iterable[Failure]) -> None:
        """Holds the keys of failed records, with all that waits behind them; longer with every failure."""
        for failure in failures:
            record = failure.record
            queue = self._busy.pop(record.key)
            self.bytes -= _size(record)
            hold = self.holds.get(record.key)
            if hold is None or hold.head != record.id:
                hold = self.holds[record.key] = Hold(record.id, now)
            hold.ids = [record.id]
            if queue is not None:
                hold.ids.extend(record.id for record in queue.records)
                self._drop(queue.records)
            hold.add(failure)
            hold.active = True
            hold.parking = self.policy.parks(hold)
            hold.until = now if hold.parking else now + self.policy.pause(hold)
            self.held += len(hold.ids)
            heappush(self._hold_ends, (hold.until, record.key))

    def holds_over(self, now: float) -> list[str]:
        """Takes the keys whose hold is over; they stay held until :meth:`unhold`."""
        over = []
        while self._hold_ends and self._hold_ends[0][0] <= now:
            _, key = heappop(self._hold_ends)
            if key in self.holds and self.holds[key].active:
                over.append(key)
        return over

    def next_hold_end(self) -> float:
        """Returns when the next hold is over; infinity for none."""
        return self._hold_ends[0][0] if self._hold_ends else float("inf")

    def split(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """Returns which of these held keys are to be parked, and which are to be tried again."""
        parking: list[str] = []
        retrying: list[str] = []
        for key in keys:
            hold = self.holds[key]
            # What a remark has made us forget has to be marked again, and fail again, before it is parked.
            (parking if hold.parking and hold.ids else retrying).append(key)
        return parking, retrying

    def poisons(self, keys: Iterable[str]) -> list[Poison]:
        """Returns the records for whose sake these held keys are to be parked."""
        return [self.holds[key].poison() for key in keys]

    def park(self, keys: Collection[str], parked: int) -> None:
        """Forgets held keys, of which ``parked`` are parked now: marks bring nothing of those any more."""
        for key in keys:
            self.held -= len(self.holds.pop(key).ids)
        self.policy.settled(len(keys), parked)

    def troubled(self, now: float) -> tuple[int, float]:
        """Returns how many keys have failed, and for how many seconds the first of them; 0 for none."""
        return len(self.holds), now - min((hold.since for hold in self.holds.values()), default=now)

    def held_ids(self, keys: Iterable[str]) -> list[int]:
        """Returns the ids of the marked rows of held keys."""
        return [number for key in keys for number in self.holds[key].ids]

    def unhold(self, keys: Iterable[str]) -> None:
        """Frees held keys of which nothing is marked any more; their failures stay known."""
        for key in keys:
            hold = self.holds[key]
            self.held -= len(hold.ids)
            self.policy.parking -= hold.parking
            hold.active = hold.parking = False
            hold.ids = []

    def forget_unsent(self) -> None:
        """Forgets all that is not in flight, which keeps its barrier; held keys stay held."""
        for hold in self.holds.values():
            hold.ids = []
        self.held = 0
        if not self.waiting:
            return
        for key, queue in self._busy.items():
            if queue is not None:
                self._drop(queue.records)
                self._busy[key] = None
        for record in self._ready:
            del self._busy[record.key]
        self._drop(self._ready)
        self._ready.clear()

    def stalled(self, now: float, timeout: float) -> bool:
        """Tells whether records have waited behind a key that has not moved for ``timeout`` seconds.

        Looks at every busy key, so call it now and then only. Also forgets holds that led nowhere.
        """
        for key in [key for key, hold in self.holds.items() if hold.until + FORGET_SECONDS < now]:
            if not self.holds[key].active and key not in self._busy:
                del self.holds[key]
        return any(queue and queue.records and queue.moved + timeout < now for queue in self._busy.values())

    def _drop(self, records: deque[MarkedRecord]) -> None:
        self.waiting -= len(records)
        self.bytes -= sum(map(_size, records))


def _size(record: MarkedRecord) -> int:
    return len(record.value) if record.value is not None else 0
