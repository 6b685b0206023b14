"""Transactional mark-purge: exactly-once delivery of one lane as a pure state machine.

Method calls report what happened (``advanced``, ``published``, ``aborted``, ``parked``), and
:meth:`TransactionalMarkPurge.decide` returns what to do, as commands.

The life of a batch::

    --Advance--> marked --Publish--> in the log --Advance--> purged
                    ^                    |
                    +---- abandoned <----+  the transaction was aborted: its rows are marked again

The next batch is marked while the one before is published. What makes that safe:

* A batch is published only after the batch before it is committed. It is abandoned if that one is.
* A batch is purged only when its transaction is known to be committed; its name stays in the checkpoint until
  the purge is durable and complete. A purge that deletes fewer rows than expected may have been cut short, so
  it is repeated until it finds nothing.
* An unknown outcome (a lost reply from the database, or of a commit) is not resolved here: the lane restarts,
  and its recovery purges what the checkpoint names before the first batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from outbox_sdk import Batch, Failure, MarkedRecord

from outbox_core.config.settings import Failures, Limits
from outbox_core.delivery.batch_size import BatchSize
from outbox_core.delivery.commands import Advance, BatchCommand, Park, Publish, ReportFailures
from outbox_core.delivery.retries import Attempts, RetryPolicy
from outbox_core.delivery.size import size_of
from outbox_core.delivery.stages import BatchStage

LONG_SECONDS = 0.25
"""A transaction that takes longer than this makes the next batch half as large."""


@dataclass(slots=True)
class _Marked:
    """A batch with its records."""

    batch: Batch
    records: list[MarkedRecord]


class TransactionalMarkPurge:
    """Exactly-once delivery of one lane: which batches to mark, publish and purge.

    At most one command to the database is outstanding, answered by :meth:`advanced` or :meth:`parked`, and at
    most one to the broker, answered by :meth:`published` or :meth:`aborted`.

    Args:
        limits: Bounds and times.
        failures: What happens after an aborted transaction.
        new_leader_id: Returns a UUID that was never used before.
        chance: Returns a random number from 0 up to 1; spreads retries.

    Attributes:
        moves: Changes of batches' stages that nobody has read yet: name, records, stage.
        attempts: Key → the failures of its first record, for keys that failed and were not delivered since.
        policy: Decides when a failed record is tried again, and when its key is parked.
    """

    def __init__(
        self,
        limits: Limits,
        failures: Failures,
        new_leader_id: Callable[[], UUID],
        chance: Callable[[], float],
    ) -> None:
        self.moves: list[tuple[UUID, int, BatchStage]] = []
        self.attempts: dict[str, Attempts] = {}
        self.policy = RetryPolicy(failures, chance)
        self._new_leader_id = new_leader_id
        self._database: Advance | Park | None = None
        self._publishing: _Marked | None = None
        self._marked: _Marked | None = None
        self._finished: dict[Batch, int] = {}  # in the log and not purged → number of records
        self._purging: dict[Batch, int] = {}  # those that the outstanding advance deletes
        self._short: set[Batch] = set()  # those of which a purge deleted too few rows
        self._deleted = 0  # rows of these
        self._park: Park | None = None
        self._failed: list[Failure] = []
        self._abandon = False  # ignore the rows of the outstanding advance
        self._draining = False
        self._batch_size = BatchSize(limits.mark_backoff, limits.max_batch_records)
        self._max_bytes = limits.max_lane_bytes // 2  # two batches are in memory at a time
        self._full = False
        self._leading = True
        self._resume = self._published_at = 0.0

    # --- what to do ---------------------------------------------------------------------------------

    def decide(self, now: float, leading: bool = True) -> list[BatchCommand]:
        """Returns what to do now; empty if there is nothing to do before :meth:`wake_at`.

        Args:
            now: Seconds on a clock that never goes back.
            leading: Whether leadership is confirmed at this moment. Without it, nothing is marked, published
                or parked. Batches known to be in the log are purged nevertheless: the fence rejects a purge
                of a former leader, and a leader that hands over waits for it.
        """
        self._leading = leading
        commands: list[BatchCommand] = []
        if publish := self._next_to_publish(now):
            commands.append(publish)
        if self._failed:
            commands.append(ReportFailures(self._failed))
            self._failed = []
        if advance := self._next_for_database(now):
            commands.append(advance)
        return commands

    def wake_at(self) -> float:
        """Returns when to call :meth:`decide` next if nothing happens before.

        That includes that leadership does not change.
        """
        if self._failed or (self._park and self._leading and self._database is None):
            return 0.0
        wake = float("inf")
        if self._marked and self._leading and self._publishing is None:
            wake = self._resume
        if self._database is None and self._finished:
            wake = min(wake, self._batch_size.due)
        elif self._database is None and self._may_mark():
            wake = min(wake, max(self._batch_size.due, self._resume))
        return wake

    def drain(self) -> None:
        """Stops marking and publishing for good; a batch being published is still purged. Idempotent."""
        self._draining = True
        self._drop_marked()
        self._abandon = isinstance(self._database, Advance)
        self._batch_size.due = 0.0

    @property
    def drained(self) -> bool:
        """Whether no command is outstanding, and all published batches are purged."""
        return self._database is None and self._publishing is None and not self._finished

    @property
    def in_flight(self) -> int:
        """Records that are being published."""
        return len(self._publishing.records) if self._publishing else 0

    @property
    def waiting(self) -> int:
        """Records that are marked and not being published yet."""
        return len(self._marked.records) if self._marked else 0

    def batches(self) -> list[tuple[UUID, int, BatchStage]]:
        """Returns the present batches: name, records, stage; ordered by the time of their mark."""
        done = {**self._purging, **self._finished}
        found = [(batch.leader_id, records, BatchStage.PUBLISHED) for batch, records in done.items()]
        for marked, stage in (
            (self._publishing, BatchStage.PUBLISHING),
            (self._marked, BatchStage.MARKED),
        ):
            if marked is not None:
                found.append((marked.batch.leader_id, len(marked.records), stage))
        return found

    def blocked(self, now: float) -> tuple[int, float]:
        """Returns how many keys have failed, and for how many seconds the first of them; 0 for none."""
        return len(self.attempts), now - min((each.since for each in self.attempts.values()), default=now)

    def _next_to_publish(self, now: float) -> Publish | None:
        """Begins the transaction of the next batch."""
        if self._marked is None or self._publishing is not None or not self._leading or now < self._resume:
            return None
        faulty = {record.key: record for record in reversed(self._marked.records) if record.fault}
        if faulty:
            culprits = [Failure(record, record.fault or "", retryable=False) for record in faulty.values()]
            self._take_back(now, self._marked, culprits)
            return None
        self._publishing, self._marked = self._marked, None
        self._published_at = now
        self._move(self._publishing, BatchStage.PUBLISHING)
        # An outstanding purge may fail, so the checkpoint keeps its batches.
        return Publish(self._publishing.records, [*self._purging, *self._finished, self._publishing.batch])

    def _next_for_database(self, now: float) -> Advance | Park | None:
        if self._database is not None:
            return None
        marks = self._may_mark() and now >= self._resume
        if self._park is not None and self._leading:
            self._database, self._park = self._park, None
        elif now >= self._batch_size.due and (marks or self._finished):
            # Deletes the last batch and marks the next.
            self._purging, self._finished = self._finished, {}
            pending = [self._publishing.batch.leader_id] if self._publishing else []
            limit = self._batch_size.limit if marks else 0
            self._database = Advance(
                list(self._purging), self._new_leader_id(), limit, pending, self._max_bytes
            )
        return self._database

    def _may_mark(self) -> bool:
        """Whether another batch may be marked; during a publication only if there is a backlog."""
        if not self._leading or self._draining or self._short:
            return False
        return self._marked is None and (self._publishing is None or self._full)

    # --- what happened ------------------------------------------------------------------------------

    def advanced(self, now: float, records: Sequence[MarkedRecord], purged: int) -> None:
        """Handles the result of the advance, which is durable.

        Args:
            now: As for :meth:`decide`.
            records: The rows that it marked, ordered by id.
            purged: How many rows it deleted.
        """
        advance, self._database = self._database, None
        if not isinstance(advance, Advance):
            raise TypeError("an advance was answered, but none is out")
        self._purged(purged)
        abandon, self._abandon = self._abandon, False
        if advance.limit and not abandon:
            self._full = len(records) >= advance.limit or 2 * sum(map(size_of, records)) >= advance.max_bytes
            self._batch_size.marked(now, full=self._full, empty=not records)
            if records:
                batch = Batch(advance.leader_id, records[0].id, records[-1].id)
                self._marked = _Marked(batch, list(records))
                self._move(self._marked, BatchStage.MARKED)

    def _purged(self, rows: int) -> None:
        """Handles the number of deleted rows; a batch that may be incomplete is purged again."""
        purging, self._purging = self._purging, {}
        self._deleted += rows
        repeated = not rows and self._short >= purging.keys()
        if self._deleted < sum(purging.values()) and not repeated:
            self._short = set(purging)
            self._finished = {**purging, **self._finished}
            return
        self._short.clear()
        self._deleted = 0
        for batch, count in purging.items():
            self.moves.append((batch.leader_id, count, BatchStage.PURGED))

    def published(self, now: float) -> None:
        """Handles the commit of the transaction."""
        done = self._take_published()
        self._finished[done.batch] = len(done.records)
        self._move(done, BatchStage.PUBLISHED)
        if self.attempts:
            for record in done.records:
                attempts = self.attempts.get(record.key)
                if attempts is not None and attempts.head <= record.id:
                    del self.attempts[record.key]
        if now - self._published_at > LONG_SECONDS:
            self._batch_size.shrink()
        if not self._full:
            self._batch_size.due = min(self._batch_size.due, now)

    def aborted(self, now: float, failures: Sequence[Failure]) -> None:
        """Handles the abort of the transaction because of these records."""
        self._take_back(now, self._take_published(), failures)

    def parked(self, now: float, keys: int) -> None:
        """Handles the result of the park, which is durable: the number of parked keys."""
        if not isinstance(self._database, Park):
            raise TypeError("a park was answered, but none is out")
        self.policy.parking_done(len(self._database.poisons), keys)
        self._database = None
        self._batch_size.due = now

    def _take_published(self) -> _Marked:
        publishing, self._publishing = self._publishing, None
        if publishing is None:
            raise TypeError("a transaction was answered, but none is out")
        return publishing

    def _take_back(self, now: float, marked: _Marked, failures: Sequence[Failure]) -> None:
        """Abandons a batch and the one marked after it; both are marked again in order.

        The next batch ends before the first failed record. A batch that begins with the failed record is
        small, so that few others share its transactions, and no earlier record is parked with it. There is no
        pause after a failure that is not retryable, since the whole lane would wait.
        """
        if marked is not self._marked:
            self._move(marked, BatchStage.ABANDONED)
        self._drop_marked()
        culprits = {failure.record.id for failure in failures}
        before = itertools.takewhile(lambda record: record.id not in culprits, marked.records)
        self._batch_size.begin_anew(sum(1 for _ in before))
        self._abandon = isinstance(self._database, Advance)
        self._failed.extend(failures)
        first = {record.key: record.id for record in reversed(marked.records)}
        parking: set[str] = set()
        pause = 0.0
        for failure in failures:
            attempts = self._count(now, failure)
            if first[failure.record.key] == failure.record.id and self.policy.parks(attempts):
                parking.add(failure.record.key)
            elif failure.retryable or self.policy.full:
                pause = max(pause, self.policy.pause(attempts))
        self._resume = now + pause
        self._batch_size.due = now
        if parking:
            poisons = [self.attempts.pop(key).poison() for key in parking]
            ids = [record.id for record in marked.records if record.key in parking]
            self._park = Park(marked.batch.leader_id, poisons, ids)

    def _drop_marked(self) -> None:
        if self._marked is not None:
            self._move(self._marked, BatchStage.ABANDONED)
            self._marked = None

    def _move(self, marked: _Marked, stage: BatchStage) -> None:
        self.moves.append((marked.batch.leader_id, len(marked.records), stage))

    def _count(self, now: float, failure: Failure) -> Attempts:
        record = failure.record
        attempts = self.attempts.get(record.key)
        if attempts is None or attempts.head != record.id:
            attempts = self.attempts[record.key] = Attempts(record.id, now)
        attempts.add(failure)
        return attempts
