"""Exactly-once delivery of one lane as a pure state machine: batches are selected, published and purged.

Method calls report what happened (``advanced``, ``published``, ``aborted``, ``parked``), and say what to do:
``next_to_publish`` after ``publish_due``, ``next_for_database`` after ``database_due``.

The life of a batch::

    --Advance--> selected --Publish--> in the log --Advance--> purged
                    ^                      |
                    +----- abandoned <-----+  aborted: the others go on, what failed is selected again

Nothing is written into a row before it is deleted. A batch is the set of its rows' ids, and the checkpoint
that its transaction carries names that set. The next batch is selected while the one before is published.
What makes that safe:

* A batch is published only after the batch before it is committed. It is abandoned if that one is.
* A batch is purged only when its transaction is known to be committed; its ids stay in the checkpoint until
  the purge is durable. So the checkpoint of the last transaction that was attempted, whatever became of it,
  names all that may be in the log and in the outbox.
* A selection leaves out all batches that are not purged. Rows that others have locked cannot be purged: they
  are a batch of their own, until they can.
* An unknown outcome (a lost reply from the database, or of a commit) is not resolved here: the lane restarts,
  and its recovery looks into the log before the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outbox_api import MAX_CHECKPOINT, Advanced, Batch, Failure, MarkedRecord

from outbox_core.delivery.batch_size import BatchSize, ByteLimit
from outbox_core.delivery.checkpoint import encode, fitting, shorter
from outbox_core.delivery.coalescing import Coalesce, Coalesced, Coalescing
from outbox_core.delivery.commands import Advance, Park, Publish
from outbox_core.delivery.failed_keys import FailedKeys
from outbox_core.delivery.pause import Pause
from outbox_core.delivery.paused import NOTHING, Paused
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.delivery.size import size_of
from outbox_core.delivery.sources import Sources
from outbox_core.events.stages import BatchStage
from outbox_core.settings import Failures, Limits

LONG_SECONDS = 1.0
"""A transaction that takes longer than this makes the next batch half as large.

Much of the time of a transaction does not depend on its size: at a slow broker, smaller batches would only
lower the rate.
"""
LOCKED_SECONDS = 1.0
"""The pause before rows that others had locked are purged again."""
MAX_LOCKED = MAX_CHECKPOINT // 4
"""How many characters of the checkpoint locked rows may take before selections wait for them."""


@dataclass(slots=True)
class _Selected:
    """A batch with its records, which are of one source, and their size in bytes.

    Attributes:
        selection: The number of the selection that has found them.
        joined: Whether it was more than one batch, of which a checkpoint may not have room for all.
    """

    batch: Batch
    records: list[MarkedRecord]
    size: int
    source: int
    selection: int
    joined: bool = False

    def part(self, records: list[MarkedRecord]) -> _Selected:
        """Selects those of the records."""
        batch = Batch.of([record.id for record in records], self.batch.newest)
        return _Selected(batch, records, sum(map(size_of, records)), self.source, self.selection, self.joined)


class SelectPublishPurge:
    """Exactly-once delivery of one lane: which batches to select, publish and purge.

    At most one command to the database is outstanding, answered by :meth:`advanced`, :meth:`coalesced` or
    :meth:`parked`, and at most one to the broker, answered by :meth:`published` or :meth:`aborted`.

    Args:
        limits: Bounds and times.
        failures: What happens after an aborted transaction.
        chance: Returns a random number from 0 up to 1; spreads retries.
        locked: Batches that are in the log, and of which the lane's recovery found locked rows.
        ages: The least age of the rows of each source, in seconds (:class:`.Sources`); none for one source.
        coalesced: Patterns of the topics of which only the newest record of a key is sent out of a backlog.

    Attributes:
        moves: Changes of batches' stages that nobody has read yet.
        failed: The keys that failed and were not delivered since.
        policy: Decides when a failed record is tried again, and when its key is parked.
        paused: What operators have paused, which selections leave out.
        coalescing: When to look for superseded records.
    """

    def __init__(
        self,
        limits: Limits,
        failures: Failures,
        chance: Callable[[], float],
        locked: Sequence[Batch] = (),
        ages: Sequence[float] = (),
        *,
        coalesced: Sequence[str] = (),
    ) -> None:
        self.coalescing = Coalescing(coalesced)
        self.moves: list[tuple[Batch, BatchStage]] = []
        self.policy = RetryPolicy(failures, chance)
        self.failed = FailedKeys(self.policy)
        self._database: Advance | Coalesce | Park | None = None
        self._publishing: _Selected | None = None
        self._selected: _Selected | None = None
        self._selections = 0
        self._finished: list[Batch] = []  # in the log and not purged
        self._purging: list[Batch] = []  # those that the outstanding advance deletes
        self._locked = list(locked)  # in the log, purged but for rows that others had locked
        self._retrying: list[Batch] = []  # those of them that the outstanding advance deletes
        self._locked_due = 0.0
        self._crowded = False  # the checkpoint has no room for the selected batch before a purge
        self._park: Park | None = None
        self._unreported: list[Failure] = []
        self._abandon = False  # ignore the rows of the outstanding advance
        self._draining = False
        sizes = (limits.mark_backoff, limits.max_mark_backoff, limits.max_batch_records)
        self._sources = Sources(ages, lambda: BatchSize(*sizes))
        self._most = limits.max_batch_records
        self._max_bytes = limits.max_lane_bytes // 2  # two batches are in memory at a time
        self._transaction = ByteLimit(self._max_bytes)
        self._select_first = False
        self._leading = True
        self._resume = self._published_at = self._asked_at = 0.0
        self._pause = Pause()
        self.paused = NOTHING
        self._gathered = self._ready = 0.0  # when the next selection, and the next transaction, may begin

    # --- what to do ---------------------------------------------------------------------------------

    def look(self, leading: bool) -> None:
        """Takes note of the lease; comes before all that follows.

        Args:
            leading: Whether leadership is confirmed at this moment. Without it, nothing is selected,
                published or parked. Batches known to be in the log are purged nevertheless: the fence rejects
                a purge of a former leader, and a leader that hands over waits for it.
        """
        self._leading = leading

    def pause(self, now: float, paused: Paused) -> None:
        """Takes note of all that is paused from now on, and gives up what is selected of it.

        Never while an advance is out.
        """
        if self._database is not None:
            raise TypeError("an advance is out, which may bring what is paused")
        self.paused = paused
        self._sources.hurry(now)
        if self._selected is not None:
            records = self._admissible(self._selected.records)
            if len(records) < len(self._selected.records):
                left = self._selected.part(records) if records else None
                self._drop_selected()
                if left is not None:
                    self._select(left)

    @property
    def settled(self) -> bool:
        """Whether nothing of what is paused is being published."""
        return not self._publishing or len(self._admissible(self._publishing.records)) == self.in_flight

    def _admissible(self, records: list[MarkedRecord]) -> list[MarkedRecord]:
        return [record for record in records if not self.paused.has(record.topic)] if self.paused else records

    def publish_due(self) -> float:
        """Returns when to call :meth:`next_to_publish`."""
        may = self._selected and self._leading and self._publishing is None and not self._crowded
        return max(self._resume, self._ready) if may else float("inf")

    def take_failed(self) -> tuple[list[Failure], list[str]]:
        """Returns the failures since the last call, and the topics that are held as a whole since."""
        if not self._unreported:
            return [], []
        failed, self._unreported = self._unreported, []
        return failed, self.failed.topics.take_news()

    def database_due(self) -> float:
        """Returns when to call :meth:`next_for_database`."""
        if self._database is not None:
            return float("inf")
        if self._park and self._leading:
            return 0.0
        return min(self._coalesce_due(), self._advance_due())

    def _coalesce_due(self) -> float:
        if self.paused.whole or not self._leading or self._draining:
            return float("inf")
        return self.coalescing.due(backlog=self._sources.backlog)

    def _advance_due(self) -> float:
        if self._finished:  # a purge would be in the way of the selection that comes next
            return self._gathered if self._select_first and self._may_select() else 0.0
        wake = self._locked_due if self._locked else float("inf")
        if self._may_select():
            wake = min(wake, max(self._sources.due(excludes=self._excludes), self._resume))
        return wake

    def drain(self) -> None:
        """Stops selecting and publishing for good; a batch being published is still purged. Idempotent."""
        self._draining = True
        self._drop_selected()
        self._abandon = isinstance(self._database, Advance)

    @property
    def idle(self) -> bool:
        """Whether no command is outstanding, and all published batches are purged but for locked rows."""
        return self._database is None and self._publishing is None and not self._finished

    @property
    def drained(self) -> bool:
        """Whether no command is outstanding, and all published batches are purged."""
        return self.idle and not self._locked

    @property
    def in_flight(self) -> int:
        """Records that are being published."""
        return len(self._publishing.records) if self._publishing else 0

    @property
    def waiting(self) -> int:
        """Records that are selected and not being published yet."""
        return len(self._selected.records) if self._selected else 0

    def batches(self) -> list[tuple[Batch, BatchStage]]:
        """Returns the present batches with their stages, in the order of their selection."""
        found = [(batch, BatchStage.PUBLISHED) for batch in self._in_log()]
        if self._publishing:
            found.append((self._publishing.batch, BatchStage.PUBLISHING))
        if self._selected:
            found.append((self._selected.batch, BatchStage.SELECTED))
        return found

    def _in_log(self) -> list[Batch]:
        """Returns the batches that may be in the log and in the outbox: an outstanding purge may fail."""
        return [*self._locked, *self._retrying, *self._purging, *self._finished]

    def next_to_publish(self, now: float) -> Publish | None:
        """Begins the transaction of the next batch, unless a record is faulty or it waits for a purge."""
        if self._selected is None or now < self.publish_due():
            return None
        faulty = {record.key: record for record in reversed(self._selected.records) if record.fault}
        if faulty:
            culprits = [Failure(record, record.fault or "", retryable=False) for record in faulty.values()]
            self._take_back(now, self._selected, culprits)
            return None
        taken, left = self._divided(self._selected)
        checkpoint = encode(self._in_log(), taken.batch)
        self._crowded = len(checkpoint) > MAX_CHECKPOINT
        if self._crowded:
            return None
        if left is not None:
            self._drop_selected()
            self._select(taken)
        self._publishing, self._selected = taken, None
        self._published_at = now
        self._move(taken, BatchStage.PUBLISHING)
        if left is not None:
            self._select(left)
        return Publish(taken.records, checkpoint)

    def _divided(self, selected: _Selected) -> tuple[_Selected, _Selected | None]:
        """Returns what one transaction has room for, and what is left for the next."""
        fit = min(len(selected.records), self._most)
        if selected.size > self._transaction.limit:
            fit = min(fit, self._transaction.fitting(map(size_of, selected.records)))
        if selected.joined:
            fit = min(fit, fitting([record.id for record in selected.records], selected.batch.newest)[0].rows)
        if fit == len(selected.records):
            return selected, None
        return selected.part(selected.records[:fit]), selected.part(selected.records[fit:])

    def next_for_database(self, now: float) -> Advance | Coalesce | Park | None:
        """Returns what is due at the database.

        A look for superseded rows begins behind all batches, and leaves out keys that have failed.
        """
        if self._database is not None:
            return None
        due = self._sources.due(excludes=self._excludes)
        selects = self._may_select() and now >= max(self._resume, due)
        retries = bool(self._locked) and now >= self._locked_due
        if self._park is not None and self._leading:
            self._database, self._park = self._park, None
        elif self._coalesce_due() <= now:
            batches = [batch for batch, _ in self.batches()]
            failed = {key for _, key in self.failed.attempts}
            self._database = self.coalescing.begin(now, failed, batches, self.paused)
        elif retries or selects or self._finished:
            if selects:
                self._sources.begin(now, excludes=self._excludes)
            self._asked_at = now
            self._database = self._advance(now, selects=selects, retries=retries)
        return self._database

    def _advance(self, now: float, *, selects: bool, retries: bool) -> Advance:
        """Deletes what is published, and selects the next batch.

        Out of a backlog, one statement does both. Otherwise the selection comes first, so that new records do
        not wait for the deletion of others to be durable.
        """
        only_selects, self._select_first = selects and self._select_first, False
        if not only_selects:
            self._purging, self._finished = self._finished, []
        if retries:
            self._retrying, self._locked = self._locked, []
        publishing = [self._publishing.batch] if self._publishing else []
        source, limit = self._sources.look if selects else (0, 0)
        pending = [*self._locked, *self._finished, *publishing]
        keys, topics = self.failed.next_look(now) if selects else ((), ())
        if selects and self.paused:
            topics = tuple(sorted({*topics, *self.paused.topics}))
        finished = [*self._retrying, *self._purging]
        return Advance(finished, pending, limit, self._max_bytes, source, keys, topics)

    @property
    def _excludes(self) -> bool:
        """Whether selections leave out anything but parked keys."""
        return self.failed.excludes or bool(self.paused)

    def _may_select(self) -> bool:
        """Whether another batch may be selected; during a publication only if there is a backlog."""
        if self.paused.whole or not self._leading or self._draining:
            return False
        if self._locked and len(encode(self._locked)) > MAX_LOCKED:
            return False
        return self._selected is None and (self._publishing is None or self._sources.backlog)

    # --- what happened ------------------------------------------------------------------------------

    def advanced(self, now: float, result: Advanced) -> None:
        """Handles the result of the advance, which is durable."""
        advance, self._database = self._database, None
        if not isinstance(advance, Advance):
            raise TypeError("an advance was answered, but none is out")
        if not advance.finished:
            self._pause.selected(now - self._asked_at)
        self._purged(now, result.locked)
        abandon, self._abandon = self._abandon, False
        records = result.records
        if advance.limit and not abandon:
            size = sum(map(size_of, records))
            full = len(records) >= advance.limit or 2 * size >= advance.max_bytes
            batch, may_grow = fitting([record.id for record in records], result.newest)
            passed = bool(advance.excluded_keys or advance.excluded_topics) and not full
            may_grow = may_grow and 2 * size <= self._transaction.limit
            self._sources.found(now, full=full, empty=not records, grow=may_grow, passed=passed)
            if batch.rows < len(records):
                self._sources.cut(advance.source, batch.rows)
                records = records[: batch.rows]
                size = sum(map(size_of, records))
            if records:
                self._selections += 1
                self._select(_Selected(batch, records, size, advance.source, self._selections))

    def _purged(self, now: float, locked: Sequence[Batch]) -> None:
        """Handles the end of a purge. What it did not find is gone."""
        purged = [*self._retrying, *self._purging]
        self.moves += [(batch, BatchStage.PURGED) for batch in self._purging]
        self._retrying, self._purging = [], []
        self._crowded = False
        if locked:
            # Rows that are gone may stay in a batch: their ids are no harm, and a single run is short.
            self._locked += shorter(locked, purged)
            self._locked_due = now + LOCKED_SECONDS

    def published(self, now: float) -> float:
        """Handles the commit of the transaction; returns for how long the next one waits at least."""
        done = self._take_published()
        self._finished.append(done.batch)
        self._move(done, BatchStage.PUBLISHED)
        self.failed.delivered(done.records, done.source)
        seconds = now - self._published_at
        self._transaction.committed(done.size, seconds)
        if seconds > LONG_SECONDS:
            self._sources.shrink(done.source)
        self._gathered = self._ready = now
        if not self._sources.backlog:
            self._select_first = True
            self._pause.committed(seconds)
            self._gathered += self._pause.gathering
            self._ready += self._pause.seconds
        self._sources.gather_own(self._gathered)
        return self._ready - now

    def aborted(self, now: float, failures: Sequence[Failure]) -> None:
        """Handles the abort of the transaction because of these records."""
        aborted = self._take_published()
        self._transaction.aborted(aborted.size, now - self._published_at)
        self._take_back(now, aborted, failures)

    def coalesced(self, now: float, found: Coalesced) -> bool:
        """Handles the result of a look, which is durable; returns what :meth:`Coalescing.ended` does."""
        if not isinstance(self._database, Coalesce):
            raise TypeError("a look was answered, but none is out")
        self._database = None
        return self.coalescing.ended(now, found)

    def parked(self, now: float, keys: int) -> None:
        """Handles the result of the park, which is durable: the number of parked keys."""
        if not isinstance(self._database, Park):
            raise TypeError("a park was answered, but none is out")
        self.policy.parking_done(len(self._database.poisons), keys)
        self._database = None
        self._sources.hurry(now)

    def _take_published(self) -> _Selected:
        publishing, self._publishing = self._publishing, None
        if publishing is None:
            raise TypeError("a transaction was answered, but none is out")
        return publishing

    def _take_back(self, now: float, taken: _Selected, failures: Sequence[Failure]) -> None:
        """Gives up a batch and the one selected after it, but for what goes on at once of their records."""
        behind = None if self._selected is taken else self._selected
        if taken is not self._selected:
            self._move(taken, BatchStage.ABANDONED)
        self._drop_selected()
        if behind is not None and behind.selection == taken.selection:
            taken = replace(taken, records=taken.records + behind.records, joined=True)
        self._abandon = isinstance(self._database, Advance)
        self._unreported.extend(failures)
        pause, poisons = self.failed.add(now, taken.records, failures, taken.source)
        if poisons:
            self._park = Park(None, [*(self._park.poisons if self._park else ()), *poisons], [])
        rest, is_cut = self.failed.going_on(taken.records, failures, poisons)
        rest = self._admissible(rest)
        self._sources.repeat(now, taken.source, anew=is_cut)
        self._resume = now if rest else now + pause
        if rest and not self._draining:
            self._select(taken.part(rest))

    def _select(self, selected: _Selected) -> None:
        self._selected = selected
        self._move(selected, BatchStage.SELECTED)

    def _drop_selected(self) -> None:
        if self._selected is not None:
            self._move(self._selected, BatchStage.ABANDONED)
            self._selected = None

    def _move(self, selected: _Selected, stage: BatchStage) -> None:
        self.moves.append((selected.batch, stage))
