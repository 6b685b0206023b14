"""Mark-purge/reset (docs/algorithm.md) as a pure state machine, without I/O, clock or threads.

Method calls report what happened (``marked``, ``delivered``, ``failed``, …), and say what to do:
``next_mark`` after ``mark_due``, and likewise for all else. A1 to A9 and B1 to B5 in the comments are its
steps.

The life of one record::

    in the outbox --Mark--> ready --Send--> in flight --delivered--> acknowledged --Purge--> gone
                      |       ^                |
                   its key    |              failed: its key is held for a while, with all that waits behind
                   is busy    |                |
                      |    its key             +--Reset--> in the outbox
                      v    is free             +--Park---> in the outbox, left out of marks
                    waiting --+

Three rules keep the order of a key through crashes, pauses and lost replies:

* At most one record of a key, or one run of them, is between *ready* and *gone*; its successors wait in the
  key's own queue, so that they do not block other keys (goharvest blocks instead, A5).
* The next record or run of a key is released only when the purge of the one before is durable.
* After a failure the whole key is held. Then its rows are reset, to be marked again in order; or parked, if
  the record has failed as often as the policy permits.

What operators have paused is taken back: it leaves the queues, and its rows are reset. Marks leave out a
paused topic, also one that is resumed, until all that was taken back of it is reset: none of its later rows
could be marked before.

A *remark* forgets all records that are marked but not sent, waits until nothing is in flight, and marks again
under a new leader id. It follows whenever it is unknown what is marked in the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from outbox_api import Changed, Failure, MarkedRecord

from outbox_core.delivery.batch_size import BatchSize
from outbox_core.delivery.coalescing import Coalesce, Coalesced, Coalescing
from outbox_core.delivery.commands import Mark, Park, Purge, Reset
from outbox_core.delivery.held import HeldTopics
from outbox_core.delivery.left_rows import LOCKED_SECONDS, LeftRows, kept
from outbox_core.delivery.paused import NOTHING, Paused
from outbox_core.delivery.retries import Backoff, RetryPolicy
from outbox_core.delivery.scoreboard import Scoreboard, Taken
from outbox_core.delivery.sources import Sources
from outbox_core.settings import Failures, Limits

_Finishing = TypeVar("_Finishing", Purge, Reset, Park)

KEY_ROWS = 100
"""A key with this many waiting records is excluded from marks; or a sixteenth of the lane's capacity."""
MAX_HELD_ROWS = 250_000
"""The lane marks nothing while it has this many marked rows of held and full keys."""
MIN_RETRIED_ROWS = 100
"""Held keys that are retried within ``RETRY_SECONDS``; doubles when one of them is then delivered."""
RETRY_SECONDS = 0.5
"""See ``MIN_RETRIED_ROWS``. Between retries, rows of other keys are marked."""
PURGE_SECONDS = 0.01
"""How long a purge may be delayed, to delete more records at once, while no record waits for it."""
SCAN_SECONDS = 1.0
"""Between two checks of the whole scoreboard for stalled keys."""
MAX_ASIDE_KEYS = 10_000
"""While so many keys have delivered rows that others have locked, no more is marked: each mark names them."""


class MarkPurgeReset:
    """Mark-purge/reset of one lane: what to mark, send, purge, reset and park.

    At most one mark is outstanding, answered by :meth:`marked` or :meth:`mark_unknown`; and at most one
    purge, reset or park, answered by :meth:`purged`, :meth:`reset_done`, :meth:`park_done` or
    :meth:`finishing_unknown`. A mark and a purge may be outstanding together, since they never touch the same
    row. A mark and a reset may not, nor a mark and a park: the mark could return a record's successor without
    the record.

    Args:
        limits: Bounds and times.
        failures: What happens after a failed delivery.
        new_leader_id: Returns a UUID that was never used before.
        chance: Returns a random number from 0 up to 1; spreads retries.
        ages: The least age of the rows of each source, in seconds (:class:`.Sources`); none for one source.
        run_records: How many records of a key may be in flight, in order.
        coalesced: Patterns of the topics of which only the newest record of a key is sent out of a backlog.

    Attributes:
        leader_id: The leader id of the present marks.
        in_flight: Records published, and not yet purged or failed.
        scoreboard: The barrier of every key, and the records that wait behind it.
        topics: The topics that fail as a whole, which marks leave out.
        paused: What operators have paused, which marks leave out, too.
        coalescing: When to look for superseded records.
    """

    def __init__(
        self,
        limits: Limits,
        failures: Failures,
        new_leader_id: Callable[[], UUID],
        chance: Callable[[], float],
        ages: Sequence[float] = (),
        *,
        run_records: int = 1,
        coalesced: Sequence[str] = (),
    ) -> None:
        self.leader_id = new_leader_id()
        self.in_flight = 0
        self._limits = limits
        self._new_leader_id = new_leader_id
        self._capacity = limits.max_in_flight_records + limits.send_buffer
        # Room that the first records of keys leave to those that follow them in runs.
        self._run_room = limits.max_in_flight_records // 4 if run_records > 1 else 0
        key_rows = min(max(KEY_ROWS, run_records), max(1, self._capacity // 16))
        policy = RetryPolicy(failures, chance)
        self.scoreboard = Scoreboard(policy, key_rows, run_records)
        self.topics = HeldTopics(policy.pause_after)
        self.coalescing = Coalescing(coalesced)
        self._mark_bytes = limits.max_lane_bytes // 2
        self._failed: list[Failure] = []
        self._expired: list[str] = []  # held keys whose hold is over
        self._retried_most = MIN_RETRIED_ROWS
        self._retrying = False  # whether some of these are to be taken back before the next mark
        self._mark: Mark | None = None
        self._finishing: Purge | Reset | Park | None = None
        self._purging: list[MarkedRecord] = []
        self._left = LeftRows()
        self._purging_left = False  # whether those of the purge that is out had been locked before
        # Rows that were deleted and are still there; their keys are to be parked.
        self._kept: set[int] = set()
        self._unholding: list[str] = []  # keys of the reset or park that is out
        self.paused = NOTHING
        self._taken_back: dict[int, str] = {}  # marked rows of paused topics that are to be reset
        self._back_due = 0.0
        self._unsettled: list[int] = []  # what was in flight when something was paused
        self._repeat = False
        self._remark = False
        self._leading = True
        self._entering = False  # waits for a new epoch in the fence
        self._draining = False
        sizes = (limits.mark_backoff, limits.max_mark_backoff, limits.mark_query_records)
        self._clustered = bool(ages)
        self._sources = Sources(ages, lambda: BatchSize(*sizes))
        self._database = Backoff(limits.io_error_backoff, chance)
        self._next_retry = self._next_purge = self._next_scan = 0.0

    # --- what to do ---------------------------------------------------------------------------------

    def look(self, now: float, leading: bool = True) -> None:
        """Takes note of the time and the lease; comes before all that follows.

        Args:
            now: Seconds on a clock that never goes back.
            leading: Whether leadership is confirmed at this moment (A1). Without it, nothing is marked or
                sent, and marked records are marked again afterwards.
        """
        self._look_at_clock(now)
        self._remark |= not leading
        self._leading = leading
        if self._remark or self._draining:
            self.scoreboard.forget_unsent()

    def pause(self, now: float, paused: Paused) -> None:
        """Takes note of all that is paused from now on, never while a mark is out.

        Of what begins to be, nothing is sent any more but what is in flight.
        """
        if self._mark is not None:
            raise TypeError("a mark is out, which may bring what is paused")
        more = (paused.whole and not self.paused.whole) or bool(paused.topics - self.paused.topics)
        self.paused = paused
        self._sources.hurry(now)
        if more:
            for record in self.scoreboard.take_back(now, paused.has):
                self._taken_back[record.id] = record.topic
            self._unsettled = self.scoreboard.unsettled()

    @property
    def settled(self) -> bool:
        """Whether nothing of what is paused is in flight, or delivered and not purged."""
        while self._unsettled and self.scoreboard.is_settled(self._unsettled[-1]):
            self._unsettled.pop()
        return not self._unsettled

    @property
    def may_send(self) -> bool:
        """Whether :meth:`next_to_send` has any."""
        return self.scoreboard.following > 0 or (self.scoreboard.ready > 0 and self._room_for_heads > 0)

    def next_to_send(self) -> Taken:
        """Returns the records to publish now, in order, without waiting (A8)."""
        alone, first, others = self.scoreboard.take(max(0, self._room_for_heads))  # A4, A5
        self.in_flight += len(alone) + len(first) + len(others)  # A6, A7
        faulty = [record for record in alone if record.fault]
        if faulty:
            self._failed.extend(Failure(record, record.fault or "", retryable=False) for record in faulty)
            alone = [record for record in alone if not record.fault]
        return Taken(alone, first, others)

    def take_failed(self, now: float) -> tuple[list[Failure], list[str]]:
        """Holds the keys of what failed; returns the failures, and topics that are held as a whole since."""
        if not self._failed:
            return [], []
        failed = self._hold_failed(now)
        self._look_at_clock(now)  # some holds are over at once, as their keys are to be parked
        return failed, self.topics.take_news()

    @property
    def may_refresh(self) -> bool:
        """Whether a remark may begin, as nothing is in flight."""
        is_due = self._remark and self._leading and not self._draining
        return is_due and self.drained and not self._entering

    def next_leader_id(self, now: float) -> UUID:
        """Begins a remark (A2): nothing else is due until the epoch in the fence is raised.

        That is reported by :meth:`entered`. Later marks carry the leader id returned (A9). With the new epoch
        the fence rejects a delayed statement of the old one.
        """
        self._remark, self._entering = False, True
        self._taken_back.clear()
        self.leader_id = self._new_leader_id()
        self._sources.hurry(now)
        return self.leader_id

    def unhold_due(self) -> float:
        """Returns when :meth:`next_unhold` has something."""
        if self._entering:
            return float("inf")
        if self._repeat:
            return self._database.due if isinstance(self._finishing, Reset | Park) else float("inf")
        wake = float("inf") if self._draining else self.scoreboard.held.next_end()
        if self._finishing is None and self._mark is None:
            retry = self._next_retry if self._expired else float("inf")
            back = self._back_due if self._taken_back and not self._draining else float("inf")
            wake = min(wake, max(min(retry, back), self._database.due))
        return wake

    def next_unhold(self, now: float) -> Reset | Park:
        """Returns what ends the hold of some keys, or the same again if its outcome is unknown."""
        finishing = self._finishing if self._repeat else self._next_to_unhold(now)
        self._finishing, self._repeat = finishing, False
        if not isinstance(finishing, Reset | Park):
            raise TypeError(f"{finishing} ends no hold")
        return finishing

    def purge_due(self) -> float:
        """Returns when :meth:`next_purge` has something."""
        if self._repeat:
            return self._database.due if isinstance(self._finishing, Purge) else float("inf")
        if self._entering or self._finishing is not None or (self._retrying and self._mark is None):
            return float("inf")
        due = self._left.due
        if self.scoreboard.purgeable:
            due = min(due, 0.0 if self._purge_is_awaited() else self._next_purge)
        return max(due, self._database.due)

    def next_purge(self, now: float) -> Purge:
        """Returns the purge of what was delivered, or the same again if its outcome is unknown."""
        if self._repeat and isinstance(self._finishing, Purge):
            self._repeat = False
            return self._finishing
        self._purging_left = now >= self._left.due
        if self._purging_left:
            leader_id, self._purging = self._left.take(now)
        else:
            leader_id, self._purging = self.leader_id, self.scoreboard.purgeable
            self.scoreboard.purgeable = []
        self._finishing = purge = Purge(leader_id, [record.id for record in self._purging])
        return purge

    def mark_due(self) -> float:
        """Returns when :meth:`next_mark` has something."""
        if not self._may_mark() or self._room() <= 0:
            return float("inf")
        return max(self._sources.due(excludes=self._excludes), self._database.due)

    def next_mark(self, now: float) -> Mark:
        """Returns the next mark."""
        self._sources.begin(now, excludes=self._excludes)
        source, limit = self._sources.look
        excluded, topics = self.scoreboard.excluded(), self._left_out(self.topics.held.next_look(now))
        limit = min(limit, self._room())
        self._mark = Mark(self.leader_id, limit, self._mark_bytes, excluded, source, topics)
        return self._mark

    def coalesce_due(self) -> float:
        """Returns when :meth:`next_coalesce` has something: comes in turn with marks, never beside one."""
        if not self._may_mark() or self._remark or self._draining:
            return float("inf")
        return max(self.coalescing.due(backlog=self._sources.backlog), self._database.due)

    def next_coalesce(self, now: float) -> Coalesce:
        """Returns a look for superseded rows, answered by :meth:`coalesced`, without keys that have failed.

        Rows in the lane's hands carry a leader id, and no such row is superseded: a sender that was lost may
        still send it, and then it would come behind its successors for the first time.
        """
        return self.coalescing.begin(now, self.scoreboard.held.holds, paused=self.paused)

    def drain(self) -> None:
        """Stops marking and sending for good; records in flight are still purged or reset. Idempotent."""
        self._draining = True

    @property
    def drained(self) -> bool:
        """Whether nothing is in flight and no database command is outstanding."""
        return self.in_flight == 0 and self._mark is None and self._finishing is None

    def _hold_failed(self, now: float) -> list[Failure]:
        failed, self._failed = self._failed, []
        self.in_flight -= len(failed)  # B4, B5
        if self.scoreboard.hold(now, failed):
            self._retried_most = max(MIN_RETRIED_ROWS, self._retried_most // 2)
        holds = self.scoreboard.held.holds
        incurable = [each for each in failed if not each.retryable and each.record.key in holds]
        blocking = [each for each in incurable if not holds[each.record.key].parking]
        self.topics.failed(now, blocking)
        return failed

    def _left_out(self, held: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the topics that the next mark leaves out, with those that are held as a whole."""
        if not (self.paused.topics or self._taken_back):
            return held
        return tuple(sorted({*held, *self.paused.topics, *self._taken_back.values()}))

    def _next_to_unhold(self, now: float) -> Reset | Park:
        """Ends the hold of some keys, not of all at once, so that other keys are marked between."""
        if self._taken_back and now >= self._back_due:
            self._unholding, self._retrying = [], False
            return Reset(self.leader_id, sorted(self._taken_back))
        held = self.scoreboard.held
        some, rest = self._expired[: self._retried_most], self._expired[self._retried_most :]
        parking, retrying = held.split(some)
        unholding, self._expired = (parking, retrying + rest) if parking else (retrying, rest)
        self._unholding, self._retrying = unholding, False
        self._next_retry = now + RETRY_SECONDS * len(unholding) / self._retried_most
        ids = held.ids(unholding)
        return Park(self.leader_id, held.poisons(parking), ids) if parking else Reset(self.leader_id, ids)

    @property
    def _room_in_flight(self) -> int:
        return self._limits.max_in_flight_records - self.in_flight - self.scoreboard.following

    @property
    def _room_for_heads(self) -> int:
        return self._room_in_flight - self._run_room

    @property
    def _excludes(self) -> bool:
        """Whether marks leave out anything but parked keys."""
        return self.scoreboard.excludes or bool(self.topics.held or self.paused or self._taken_back)

    def _may_mark(self) -> bool:
        """Whether no mark, reset or park is outstanding, and none of the latter is due."""
        if self.paused.whole:
            return False
        free = self._mark is None and not (self._retrying or self._entering)
        return free and not isinstance(self._finishing, Reset | Park)

    def _purge_is_awaited(self) -> bool:
        board = self.scoreboard
        # What is ready and has room waits for no purge.
        sendable = board.following + max(0, min(board.ready, self._room_for_heads))
        return self._draining or self._remark or board.waiting > sendable

    def _room(self) -> int:
        """How many records may be marked now; 0 also if a mark of so few would not be worthwhile."""
        board = self.scoreboard
        if self._remark or self._draining:
            return 0
        held = board.held.rows + board.crowded + self._left.rows
        full = board.bytes + board.held.size > self._mark_bytes or held >= MAX_HELD_ROWS
        if full or board.aside >= MAX_ASIDE_KEYS:
            return 0
        room = self._capacity - self.in_flight - (board.waiting - board.crowded)
        return room if room >= min(self._sources.limit, self._capacity // 8 + 1) else 0

    def _look_at_clock(self, now: float) -> None:
        if not self._draining:
            self._expired += self.scoreboard.held.over(now)
        back = bool(self._taken_back) and now >= self._back_due and not self._draining
        self._retrying = back or (bool(self._expired) and now >= self._next_retry)
        if now >= self._next_scan:
            self._next_scan = now + SCAN_SECONDS
            self._remark |= self.scoreboard.stalled(now, self._limits.queue_timeout)

    # --- what happened ------------------------------------------------------------------------------

    def marked(self, now: float, records: Sequence[MarkedRecord]) -> None:
        """Handles the result of the mark: rows, ordered by id."""
        mark, self._mark = self._mark, None
        if mark is None:
            raise TypeError("a mark was answered, but none is out")
        self._database.answered()
        size, number = 0, len(records)
        if not self._remark and not self._draining:  # otherwise ignored: the next leader id marks them again
            if self._clustered:
                # A mark of another cluster has come in the place of ours: the row is marked again.
                records = self.scoreboard.unknown(records)
            if self._kept:
                records = [kept(record) if record.id in self._kept else record for record in records]
            size = self.scoreboard.admit(now, records)
        full = number >= mark.limit or size > self._mark_bytes // 2
        # Without the keys and topics that it left out, it may have read up to the end of the table.
        passed = bool(mark.excluded_keys or mark.excluded_topics) and not full
        self._sources.found(now, full=full, empty=not number, passed=passed)

    def entered(self) -> None:
        """Handles that the epoch in the fence is raised: the remark goes on."""
        self._entering = False

    def delivered(self, now: float, records: Iterable[MarkedRecord]) -> None:
        """Handles records that the broker has acknowledged; they are purged soon (B1)."""
        if not self.scoreboard.purgeable:
            self._next_purge = now + PURGE_SECONDS
        self.scoreboard.delivered(now, records, self._room_in_flight)

    def failed(self, failures: Iterable[Failure]) -> None:
        """Handles records whose delivery failed: their keys are held, and reset after that (B2).

        Of a run, all fail that are behind the first of them.
        """
        self._failed.extend(failures)

    def purged(self, now: float, changed: Changed) -> None:
        """Handles the result of the purge, which is durable: the barriers of its keys fall (B4, B5).

        The keys of rows that others have locked stay busy, and these rows are purged again later. The record
        of a row that could not be deleted has failed for good, as it would be published again and again.

        Args:
            now: The time.
            changed: How many rows were deleted, and which were not. If it tells of fewer than requested, the
                others were purged by a first try whose reply was lost, or unmarked by a crash of the
                database, since marks are not durable. So all is marked again before any successor is sent.
        """
        leader_id, purged = self._answered(Purge).leader_id, self._purging
        if not self._purging_left:
            self.in_flight -= len(purged)
        self._remark |= changed.rows + len(changed.locked) + len(changed.kept) < len(purged)
        if changed.locked or changed.kept:
            purged = self._leave(now, leader_id, changed)
        self.topics.delivered(purged)
        if self.scoreboard.release(now, purged):
            self._retried_most = min(2 * self._retried_most, MAX_HELD_ROWS)
            self._next_retry = now
        self._purging = []

    def _leave(self, now: float, leader_id: UUID, changed: Changed) -> list[MarkedRecord]:
        """Takes note of rows that were not deleted; returns those that were."""
        locked, kept_ids = set(changed.locked), set(changed.kept)
        left = [record for record in self._purging if record.id in locked]
        self.scoreboard.set_aside(now, left)
        self._left.add(now, leader_id, left)
        faulty = [kept(record) for record in self._purging if record.id in kept_ids]
        self._failed.extend(Failure(record, record.fault or "", retryable=False) for record in faulty)
        self.in_flight += len(faulty)
        self._kept |= kept_ids
        return [record for record in self._purging if record.id not in locked | kept_ids]

    def reset_done(self, now: float, locked: Sequence[int] = ()) -> None:
        """Handles the result of the reset, which is durable: its keys are marked again, in order (B3).

        Keys of which others have locked rows stay held, and these rows are reset again later.
        """
        done = self._answered(Reset).ids
        if self._taken_back:
            for number in set(done).difference(locked):
                self._taken_back.pop(number, None)
            if not self._taken_back.keys().isdisjoint(locked):
                self._back_due = now + LOCKED_SECONDS
        self.scoreboard.held.unhold(self._unholding, frozenset(locked), now + LOCKED_SECONDS)
        self._unholding = []
        self._sources.hurry(now)

    def park_done(self, now: float, changed: Changed) -> None:
        """Handles the result of the park, which is durable: marks exclude its keys from now on.

        Args:
            now: The time.
            changed: How many keys were parked, and which rows others have locked. If fewer keys than
                requested, but for those whose heads are locked, a remark follows, as with a purge.
        """
        heads = [poison.id for poison in self._answered(Park).poisons]
        locked = frozenset(changed.locked)
        wanted = self.scoreboard.held.park(self._unholding, changed.rows, locked, now + LOCKED_SECONDS)
        if changed.rows < wanted:
            self._remark = True  # a kept row that has not been parked is known when it is marked again
        else:
            self._kept.difference_update(number for number in heads if number not in locked)
        self._unholding = []
        self._sources.hurry(now)

    def coalesced(self, now: float, found: Coalesced) -> bool:
        """Handles the result of a look, which is durable; returns what :meth:`Coalescing.ended` does."""
        self._database.answered()
        return self.coalescing.ended(now, found)

    def coalesce_unknown(self, now: float) -> None:
        """Handles a look that failed, or whose reply was lost.

        All is marked again under another leader id and epoch: a crash of the database may have undone marks,
        and a delayed deletion must not come after the next.
        """
        self._remark = True
        self._database.failed(now)

    def mark_unknown(self, now: float) -> None:
        """Handles a mark that failed, or whose reply was lost.

        It is not repeated: unknown rows may carry the leader id, and only a new leader id marks them again.
        """
        self._mark = None
        self._remark = True
        self._database.failed(now)

    def finishing_unknown(self, now: float) -> None:
        """Handles a purge, reset or park that failed, or whose reply was lost.

        It is repeated until it succeeds, which is idempotent. After a reset or park all is marked again under
        another leader id, so that a delayed first try has no effect.
        """
        self._repeat = True
        self._remark |= isinstance(self._finishing, Reset | Park)
        self._database.failed(now)

    def _answered(self, kind: type[_Finishing]) -> _Finishing:
        finishing, self._finishing = self._finishing, None
        if not isinstance(finishing, kind):
            raise TypeError(f"a {kind.__name__} was answered, but {finishing} is out")
        self._database.answered()
        return finishing
