"""The scoreboard: which keys have records in flight, which records wait behind them, and which keys are held.

goharvest's scoreboard (docs/algorithm.md, A5) counts what is in flight and makes the marker wait for a busy
key. Here a record of a busy key waits in that key's own queue, so that it does not block other keys. A key
with many marked records, or that is held and has several rows, is *excluded*: marks leave its rows in the
outbox.

A key in whose queue records wait is sent as a *run*: its first record alone, and when that is acknowledged,
all that wait behind it, to the same partition. The records of a run are purged together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple, cast

from outbox_api import Failure, MarkedRecord

from outbox_core.delivery.held import MAX_EXCLUDED_BYTES, MAX_EXCLUDED_KEYS
from outbox_core.delivery.held_keys import HeldKeys
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.delivery.size import size_of

MAX_RUN_BYTES = 1 << 20
"""How many bytes (or characters) a run of a key has at most."""


@dataclass(slots=True)
class Queue:
    """A busy key: the records that wait, in the order they were marked, and its run.

    Attributes:
        records: The waiting records; the first is next.
        moved: When the queue last moved, in the caller's time.
        unsettled: How many records of the key are ready, in flight, or delivered and not purged.
        leads: The record in flight, if it is the first of a run, which the others follow when it is
            delivered.
        delivered: Those of the run, in order, until it is complete.
        failures: Those of the run.
    """

    records: deque[MarkedRecord]
    moved: float
    unsettled: int = 1
    leads: MarkedRecord | None = None
    delivered: list[MarkedRecord] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


class Taken(NamedTuple):
    """Records to send: by themselves, as the first of a run, and behind such a one."""

    alone: list[MarkedRecord]
    first: list[MarkedRecord]
    others: list[MarkedRecord]


class Scoreboard:
    """The barrier of every key: at most one of its records, or one run of them, is ready or in flight.

    A key is free (unknown here), busy (a record of it is ready or in flight, others wait behind it) or held
    (it failed; of its marked rows only the ids are kept). A key whose record has failed as often as the
    policy permits is held until it is parked.

    Args:
        policy: For how long keys are held, and when they are parked.
        key_rows: A key with this many waiting records is *full*: it is excluded until half of them are gone.
        run_records: How many records a run has at most; with 1, every record is sent by itself.
        run_bytes: The same in bytes (or characters).

    Attributes:
        waiting: Records marked and not yet taken for sending.
        crowded: How many of these are of full keys. They do not count against the lane's capacity.
        bytes: Bytes (or characters) of records admitted and not yet released, with topics, keys and headers.
        held: The keys that failed and have not been delivered since.
        purgeable: Delivered records, those of a run together, in order; whoever purges them takes them out.
    """

    def __init__(
        self, policy: RetryPolicy, key_rows: int, run_records: int = 1, run_bytes: int = MAX_RUN_BYTES
    ) -> None:
        self.held = HeldKeys(policy)
        self._key_rows = key_rows
        self._run_records, self._run_bytes = run_records, run_bytes
        self.waiting = self.crowded = 0
        self.bytes = 0
        self.purgeable: list[MarkedRecord] = []
        self._busy: dict[str, Queue | None] = {}
        self._sizes: dict[int, int] = {}  # by id, of what ``bytes`` counts: asking twice would take longer
        self._ready: deque[MarkedRecord] = deque()
        self._following: deque[MarkedRecord] = deque()  # of runs whose first record is delivered
        self._singly: dict[str, int] = {}  # keys without runs, until this row is delivered: a run has failed
        # Ordered, so that the excluded keys change as rarely as possible.
        self._full: dict[str, None] = {}
        self._aside: dict[str, None] = {}  # keys of delivered rows that others have locked

    @property
    def ready(self) -> int:
        """How many records may be sent, beside those that follow in runs."""
        return len(self._ready)

    @property
    def following(self) -> int:
        """How many records are to be sent of runs whose first record is delivered."""
        return len(self._following)

    @property
    def aside(self) -> int:
        """How many keys wait for delivered rows that others have locked."""
        return len(self._aside)

    @property
    def excludes(self) -> bool:
        """Whether any key is excluded from marks."""
        return bool(self._full or self._aside or self.held.tailed)

    def excluded(self) -> tuple[str, ...]:
        """Returns the keys that marks exclude: full ones, locked ones, and held ones with several rows.

        A held key with one known row may have no other. Excluding it could cost more than marking another row
        of it, which is then held as well.
        """
        full = [key for key in self._full if key not in self._aside]
        # Rows of further ones are marked, and held. No row of a key that is aside may be: what is left of its
        # run is purged by the leader id that it was marked with, all or nothing.
        size, keys = 0, [*self._aside]
        for key in islice(chain(full, self.held.tailed), max(0, MAX_EXCLUDED_KEYS - len(keys))):
            size += len(key)
            if size > MAX_EXCLUDED_BYTES:
                break
            keys.append(key)
        return tuple(keys)

    def unknown(self, records: Sequence[MarkedRecord]) -> list[MarkedRecord]:
        """Returns those records that are neither waiting nor in flight."""
        return [record for record in records if record.id not in self._sizes]

    def admit(self, now: float, records: Sequence[MarkedRecord]) -> int:
        """Adds marked records, ordered by id: each is ready, waits for its key, or is held with it.

        Returns:
            Their size in bytes, without held ones.
        """
        busy, ready, sizes, held, size = self._busy, self._ready, self._sizes, self.held, 0
        keys, rows = held.keys, held.rows
        for record in records:
            key = record.key
            if keys and key in keys:
                held.take_in(key, record.id)
                continue
            bytes_ = size_of(record)
            # An id that was given out anew may be that of a record in flight.
            sizes[record.id] = sizes.get(record.id, 0) + bytes_
            size += bytes_
            if key not in busy:
                busy[key] = None
                ready.append(record)
            elif (queue := busy[key]) is None:
                busy[key] = Queue(deque((record,)), now)
            else:
                queue.records.append(record)
                if key in self._full:
                    self.crowded += 1
                elif len(queue.records) >= self._key_rows:
                    self._full[key] = None
                    self.crowded += len(queue.records)
        self.waiting += len(records) - (held.rows - rows)
        self.bytes += size
        return size

    def take(self, most: int) -> Taken:
        """Removes and returns ready records for sending; their keys stay busy.

        A key in whose queue records wait begins a run.

        Args:
            most: How many at most, beside those that follow in runs.
        """
        ready, following, busy = self._ready, self._following, self._busy
        others = list(following)
        following.clear()
        taken = [ready.popleft() for _ in range(min(most, len(ready)))]
        self.waiting -= len(others) + len(taken)
        if self._run_records <= 1:
            return Taken(taken, [], others)
        alone, first = list[MarkedRecord](), list[MarkedRecord]()
        for record in taken:
            queue = busy[record.key]
            if queue is not None and queue.records and self._may_lead(record):
                queue.leads = record
                first.append(record)
            else:
                alone.append(record)
        return Taken(alone, first, others)

    def _may_lead(self, record: MarkedRecord) -> bool:
        failed = record.key in self.held.holds or record.key in self._singly
        return not failed and record.fault is None

    def delivered(self, now: float, records: Iterable[MarkedRecord], room: int) -> None:
        """Handles delivered records: they are purgeable, those of a run when it is complete.

        The first of a run has the partition where it is, to which others follow, up to ``room`` of all runs.
        """
        busy, purgeable = self._busy, self.purgeable
        for record in records:
            queue = busy[record.key]
            if queue is None or not (queue.leads or queue.delivered):
                purgeable.append(record)
                continue
            queue.delivered.append(record)
            if queue.leads is not None:
                room -= self._follow(now, queue, queue.leads, record.partition, room)
                queue.leads = None
            self._complete(queue)

    def _follow(self, now: float, queue: Queue, first: MarkedRecord, partition: int | None, room: int) -> int:
        """Readies what waits behind the first record of a run and goes where it went; returns how many."""
        size, waiting, moved = size_of(first), queue.records, 0
        room = min(room, self._run_records - 1) if partition is not None else 0
        while waiting and moved < room:
            record = waiting[0]
            size += self._sizes[record.id]
            same = record.topic == first.topic and record.partition == first.partition
            if not same or record.fault is not None or size > self._run_bytes:
                break
            self._following.append(waiting.popleft()._replace(partition=partition))
            queue.unsettled += 1
            moved += 1
        queue.moved = now
        if first.key in self._full:
            self._thin_out(first.key, queue, moved)
        return moved

    def _complete(self, queue: Queue) -> None:
        """Has the delivered records of a run purged, once nothing else of it is in flight."""
        if len(queue.delivered) == queue.unsettled:
            self.purgeable += queue.delivered
            queue.delivered = []

    def release(self, now: float, records: Iterable[MarkedRecord]) -> bool:
        """Lowers the barriers of purged records: the next of each key is ready.

        Returns:
            Whether a key that had failed before is among them.
        """
        busy, sizes, aside, cured = self._busy, self._sizes, self._aside, False
        failed = self.held.holds
        for record in records:
            key = record.key
            self.bytes -= sizes.pop(record.id, 0)
            if failed:
                cured |= self.held.delivered(key, record.id)
            if self._singly and self._singly.get(key, record.id + 1) <= record.id:
                del self._singly[key]
            queue = busy[key]
            if queue is not None and queue.unsettled > 1:
                queue.unsettled -= 1
                continue
            was_aside = bool(aside) and aside.pop(key, False) is None
            if queue is not None and queue.failures:
                self._hold_run(now, key, queue)
                continue
            if not self._ready_next(now, key) and was_aside:
                self._full.pop(key, None)
        return cured

    def _ready_next(self, now: float, key: str) -> bool:
        """Readies the next record of a key, which is free if there is none; returns whether there is one."""
        queue = self._busy[key]
        if queue is None or not queue.records:
            del self._busy[key]
            return False
        self._ready.append(queue.records.popleft())
        queue.moved = now
        if key in self._full:
            self._thin_out(key, queue, 1)
        return True

    def set_aside(self, now: float, records: Iterable[MarkedRecord]) -> None:
        """Has marks exclude the keys of delivered records that others have locked, until they are released.

        They stay busy. What waits behind them does not count against the lane's capacity, nor do they.
        """
        for record in records:
            key = record.key
            self.bytes -= self._sizes.pop(record.id, 0)
            self._aside[key] = None
            queue = self._busy[key] = self._busy[key] or Queue(deque(), now)
            if key not in self._full:
                self._full[key] = None
                self.crowded += len(queue.records)

    def hold(self, now: float, failures: Iterable[Failure]) -> bool:
        """Holds the keys of failed records with their waiting records; each failure makes the hold longer.

        Returns:
            Whether one of them had failed before.
        """
        again = False
        for failure in failures:
            record = failure.record
            queue = self._busy[record.key]
            self.bytes -= self._sizes.pop(record.id, 0)
            if queue is None or (queue.unsettled == 1 and not queue.failures):
                again |= self._hold(now, record.key, queue, [failure])
                continue
            queue.failures.append(failure)
            queue.unsettled -= 1
            if queue.unsettled:
                self._complete(queue)
            else:
                again |= self._hold_run(now, record.key, queue)
        return again

    def _hold_run(self, now: float, key: str, queue: Queue) -> bool:
        """Holds a key of whose run nothing is in flight any more. A suspect one is sent one by one."""
        failures = sorted(queue.failures, key=lambda failure: failure.record.id)
        if any(failure.suspect for failure in failures):
            self._singly[key] = failures[-1].record.id
        return self._hold(now, key, queue, failures)

    def _hold(self, now: float, key: str, queue: Queue | None, failures: list[Failure]) -> bool:
        del self._busy[key]
        self._aside.pop(key, None)
        waiting = [] if queue is None else [record.id for record in queue.records]
        if queue is not None:
            self._drop_queue(key, queue)
        return self.held.hold(now, failures, waiting)

    def forget_unsent(self) -> None:
        """Removes all records that are not in flight; held keys stay held."""
        self.held.forget_rows()
        for queue in self._busy.values():
            if queue is not None:
                queue.failures.clear()  # these rows are marked again, and sent when the rest is purged
        if not self.waiting:
            return
        for key, queue in self._busy.items():
            if queue is not None:
                self._drop_queue(key, queue)
                queue.records.clear()
        for record in self._ready:
            del self._busy[record.key]
        for record in self._following:
            queue = cast("Queue", self._busy[record.key])
            queue.unsettled -= 1
            self._complete(queue)
        for unsent in (self._ready, self._following):
            self._drop(unsent)
            unsent.clear()

    def take_back(self, now: float, waits: Callable[[str], bool]) -> list[MarkedRecord]:
        """Removes the records of some topics that are not in flight, and returns them; others go on."""
        taken = list[MarkedRecord]()
        for key, queue in self._busy.items():
            if queue is not None and queue.records:
                before = len(queue.records)
                queue.records = _without(queue.records, waits, taken)
                if key in self._full and (moved := before - len(queue.records)):
                    self._thin_out(key, queue, moved)
        queued, self._following = len(taken), _without(self._following, waits, taken)
        for record in taken[queued:]:
            queue = cast("Queue", self._busy[record.key])
            queue.unsettled -= 1
            self._complete(queue)
        queued, self._ready = len(taken), _without(self._ready, waits, taken)
        for record in taken[queued:]:
            self._ready_next(now, record.key)
        self.waiting -= len(taken)
        for record in taken:
            size = self._sizes.pop(record.id)
            self.bytes -= (own := size_of(record))
            if size > own:  # another with the same id is in flight
                self._sizes[record.id] = size - own
        return taken

    def unsettled(self) -> list[int]:
        """Returns the ids of the records that are ready, in flight, or delivered and not purged."""
        queued = {record.id for queue in self._busy.values() if queue for record in queue.records}
        return [number for number in self._sizes if number not in queued]

    def is_settled(self, number: int) -> bool:
        """Returns whether a record of :meth:`unsettled` is none any more."""
        return number not in self._sizes

    def stalled(self, now: float, timeout: float) -> bool:
        """Returns whether records wait for a key that has not moved for ``timeout`` seconds.

        It visits every busy key, so call it rarely. It also removes holds whose rows did not come again.
        """
        self.held.forget_gone(now, self._busy)
        for key in [key for key in self._singly if key not in self._busy and key not in self.held.holds]:
            del self._singly[key]
        return any(queue and queue.records and queue.moved + timeout < now for queue in self._busy.values())

    def _thin_out(self, key: str, queue: Queue, moved: int) -> None:
        """Updates a full key, some of whose waiting records are ready now."""
        self.crowded -= moved
        if len(queue.records) <= self._key_rows // 2:
            del self._full[key]
            self.crowded -= len(queue.records)

    def _drop_queue(self, key: str, queue: Queue) -> None:
        if key in self._full:
            del self._full[key]
            self.crowded -= len(queue.records)
        self._drop(queue.records)

    def _drop(self, records: deque[MarkedRecord]) -> None:
        self.waiting -= len(records)
        self.bytes -= sum(self._sizes.pop(record.id, 0) for record in records)


def _without(
    records: deque[MarkedRecord], waits: Callable[[str], bool], taken: list[MarkedRecord]
) -> deque[MarkedRecord]:
    """Returns the records but those of some topics, which are added to ``taken``."""
    gone = [record for record in records if waits(record.topic)]
    taken += gone
    return deque(record for record in records if not waits(record.topic)) if gone else records
