"""One stream's leadership of an outbox: selects its batches and deletes those that Spark has committed.

It is the protocol of exactly-once delivery with Spark's offset log in the place of the checkpoint; the steps,
and what a crash after each of them leads to, are in docs/spark.md. Without PySpark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex
from time import monotonic

from outbox_api import (
    MAX_CHECKPOINT,
    Advanced,
    Backlog,
    Batch,
    Fence,
    LeadershipLost,
    MarkedRecord,
    OutboxError,
    OutboxTable,
    Poison,
    TransactionalLane,
)
from outbox_core.delivery.checkpoint import encode, fitting, shorter
from outbox_core.delivery.recovery import QUERY
from outbox_core.lanes.housekeeping import Housekeeping
from outbox_core.lanes.kept_rows import KeptRows

from pyspark_outbox.connection import Answer, Connection
from pyspark_outbox.offsets import Offset
from pyspark_outbox.parts import Positioned, parts_of

log = logging.getLogger("outbox.spark")

BACKLOG_SECONDS = 5.0
PEEKED = 1_000
"""How many rows are looked at together."""
_FIRST_ID = -(1 << 63)
_TRIES = 5
"""How often a query tries what others, or late tries of its own, prevent."""
_QUERY_BYTES = 6


@dataclass(frozen=True, slots=True)
class _Leadership:
    fence: Fence
    identity: str
    query: str


class Claim:
    """One stream's leadership of an outbox, used by one thread. Connects when a call needs it."""

    def __init__(
        self,
        connection: Connection[OutboxTable],
        outbox: str,
        holder: str,
        max_bytes: int,
        parts: int | None = None,
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._holder = holder
        self._max_bytes = max_bytes
        self._parts = parts
        self._leadership: _Leadership | None = None
        self._kept = KeptRows()
        self._housekeeping = Housekeeping(0, None, monotonic())
        self._committed: Offset | None = None  # its rows, and earlier ones, are deleted but for ...
        self._left: Sequence[Batch] = ()  # ... those that others have locked
        self._selected: Offset | None = None
        self._records: Sequence[MarkedRecord] = ()  # those of the batch that is selected
        self._noted = 0
        self._doubtful = False  # whether a note may arrive late, as its answer was lost
        self._until: float | None = None
        self._looked: tuple[float, Backlog] | None = None

    def prepare_available_now(self) -> None:
        """Has the stream end with what waits now: :meth:`next` selects nothing that was written later."""
        self._until = self._ask(lambda table: table.now().timestamp())

    def next(self, start: Offset, max_rows: int, max_bytes: int | None = None) -> Offset:
        """Deletes what Spark has committed, and selects the next batch: one durable transaction.

        Returns the end of the batch; ``start``, up to where Spark has committed, if nothing waits.
        """
        following = self.following(start)
        self._ask(lambda table: self._housekeeping.work(table, monotonic()))
        if start != self._committed:
            self._committed, checkpoint = start, start.checkpoint
            last = [checkpoint.attempted] if checkpoint.attempted else []
            self._left = [*checkpoint.published, *last]
        self._selected, self._records = None, ()
        while True:
            advanced = self._advance(max_rows, min(self._max_bytes, max_bytes or self._max_bytes))
            records, poisons = _deliverable(advanced.records)
            if poisons:
                self._park(poisons)
            if not (records or poisons):
                return start
            batch, _ = fitting([record.id for record in records], advanced.newest)
            # Rows that are gone tell nothing of those behind them.
            is_later = self._is_later(records, batch) if records else None
            if is_later is not None:
                break
        if is_later:
            self._advance(1, 1)  # raises if others have read the rest: a look takes no fence
            return start
        rows = encode(self._left, batch)
        if len(rows) > MAX_CHECKPOINT:
            log.warning(
                "%s: others have locked so many rows that no batch is read until they end", self._outbox
            )
            return start
        self._records = records[: batch.rows]
        self._selected = replace(following, rows=rows)
        return self._selected

    def following(self, start: Offset) -> Offset:
        """Becomes the leader, if it is not yet; returns the offset of the next batch, without its rows."""
        lead = self._lead(start)
        return Offset(lead.identity, lead.query, start.batch + 1)

    def backlog(self) -> Backlog:
        """Returns what waits, as it was at most ``BACKLOG_SECONDS`` ago: Spark asks at every trigger."""
        if self._looked is None or monotonic() > self._looked[0] + BACKLOG_SECONDS:
            self._looked = monotonic(), self._ask(lambda table: table.backlog())
        return self._looked[1]

    def parts(self, start: Offset, end: Offset) -> list[list[Positioned]]:
        """Returns the rows of a batch, divided among tasks, once the fence notes that this stream reads it.

        Spark has written ``end`` into its offset log by now, and maybe long ago: the batch may be a replay.
        """
        if start == end:
            return []
        self._lead(end)
        rows = end.checkpoint.attempted or Batch(())
        records, self._records = self._records, ()
        if end != self._selected or not records:
            records = self._ask(lambda table: table.rows(rows))
        parts = parts_of(end.batch, rows.ids(), records, self._parts)
        self.note(end)
        return parts

    def note(self, end: Offset) -> None:
        """Notes at the fence that this stream reads a batch, unless it is noted."""
        if self._noted != end.batch:
            self._ask(lambda table: self._note(table, end))
            self._noted = end.batch

    def close(self) -> None:
        """Disconnects. What the last batch was, Spark's offset log tells the next start. Idempotent."""
        self._leadership = None
        self._connection.close()

    def _note(self, table: OutboxTable, end: Offset) -> None:
        """Notes which batch is read; repeats it in a new epoch, so that a delayed first try has no effect.

        After the note of a later batch it would hide that one from a start with an older checkpoint.
        """
        lead = self._lead(end)
        if self._doubtful:
            self._leadership = lead = replace(lead, fence=table.enter(0, 1, lead.fence.token))
        self._doubtful = True
        note = TransactionalLane(1, f"{QUERY}{lead.query}", str(end.batch))
        table.set_transactional(lead.fence, note)
        self._doubtful = False

    def _lead(self, offset: Offset) -> _Leadership:
        """Becomes the leader, if it is not yet, for a stream that goes on at ``offset``."""
        if self._leadership is None:
            self._leadership = self._ask(lambda table: self._take_over(table, offset))
        return self._leadership

    def _take_over(self, table: OutboxTable, offset: Offset) -> _Leadership:
        identity = table.identity()
        if offset.outbox not in ("", identity):
            raise OutboxError(
                f"the checkpoint of the query is of another outbox ({offset.outbox}) than {table.name} "
                f"({identity}); use the checkpoint of this one, or begin with a new one"
            )
        self._refuse_others(table, offset)  # before anybody is fenced
        token = self._raise_token(table)
        self._refuse_others(table, offset)  # from now on nobody else writes notes
        fence = table.enter(0, 1, token)
        return _Leadership(fence, identity, offset.query or token_hex(_QUERY_BYTES))

    def _raise_token(self, table: OutboxTable) -> int:
        """Raises the fence's token from what it is now.

        So a former try whose answer was lost has no effect if it arrives later than this one.
        """
        for left in reversed(range(_TRIES)):
            held = max((status.fence.token for status in table.lane_statuses()), default=0)
            try:
                return table.bump(1, self._holder, held)
            except LeadershipLost:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _refuse_others(self, table: OutboxTable, offset: Offset) -> None:
        """Refuses an outbox of which somebody else may have delivered rows that are still in it."""
        for lane, note in table.transactional_lanes().items():
            if not note.sender.startswith(QUERY):
                raise OutboxError(_HARVESTER.format(outbox=table.name, lane=lane))
            if note.sender != f"{QUERY}{offset.query}":
                raise OutboxError(_OTHER.format(outbox=table.name, query=note.sender, batch=note.location))
            self._noted = int(note.location)
            if self._noted > offset.batch:
                raise OutboxError(_OLDER.format(outbox=table.name, batch=note.location, older=offset.batch))

    def _advance(self, max_rows: int, max_bytes: int) -> Advanced:
        def advance(table: OutboxTable) -> Advanced:
            advanced = table.advance(self._fence, self._left, [], max_rows, max_bytes, dated=True)
            return self._kept.checked(table, self._left, advanced)

        advanced = self._ask(advance)
        self._left = shorter(advanced.locked, self._left) if advanced.locked else ()
        return advanced

    def _park(self, poisons: Sequence[Poison]) -> None:
        changed = self._ask(lambda table: table.park(self._fence, None, poisons))
        self._kept.parked([poison.id for poison in poisons], changed.rows)
        for poison in poisons:
            log.warning("%s: row %d is parked with its key: %s", self._outbox, poison.id, poison.reason)

    def _is_later(self, records: Sequence[MarkedRecord], batch: Batch) -> bool | None:
        """Whether all rows were written after that with which the stream ends; ``None`` if some are gone.

        Those that were selected may tell it by this machine's clock. So the end is not taken from them: what
        a peek returns tells it by the database's.
        """
        until = self._until
        if until is None or any(record.created <= until for record in records if record.created is not None):
            return False
        ids, last = set(batch.ids()), max(records[0].id - 1, _FIRST_ID)
        while ids and (found := self._ask(partial(_peek, after=last))):
            if any(row.id in ids and (row.created is None or row.created <= until) for row in found):
                return False
            ids.difference_update(row.id for row in found)
            last = found[-1].id
        return None if ids else True

    def _ask(self, question: Callable[[OutboxTable], Answer]) -> Answer:
        for left in reversed(range(_TRIES)):
            try:
                return self._connection.ask(question)
            except LeadershipLost as error:
                if not (left and self._enter_again()):
                    raise LeadershipLost(self._fenced()) from error
        raise AssertionError("the last try returns or raises")

    def _enter_again(self) -> bool:
        """Enters in a new epoch if nobody else has: an own try came late, whose answer had been lost."""
        lead = self._leadership
        if lead is None:
            return False
        held = self._connection.ask(lambda table: table.lane_statuses())
        if not held or held[0].fence.token != lead.fence.token:
            return False
        fence = self._connection.ask(lambda table: table.enter(0, 1, lead.fence.token))
        self._leadership = replace(lead, fence=fence)
        return True

    @property
    def _fence(self) -> Fence:
        assert self._leadership is not None  # noqa: S101 - asked for by the leader only
        return self._leadership.fence

    def _fenced(self) -> str:
        held = self._connection.ask(lambda table: table.lane_statuses())
        by, since = (f"'{held[0].holder}'", f" at {held[0].since}") if held else ("somebody", "")
        return (
            f"the query '{self._holder}' reads the outbox {self._outbox} no longer: {by} has raised the fence"
            f"{since}, and only one may read it; end the other, and start the query again"
        )


def _peek(table: OutboxTable, after: int) -> list[MarkedRecord]:
    return table.peek(after, PEEKED)


def _deliverable(records: Sequence[MarkedRecord]) -> tuple[list[MarkedRecord], list[Poison]]:
    """Returns the rows of a batch, and which rows park their keys.

    A row that can be no message ends the rows of its key. Its key is parked once the row is the first of it:
    the earlier ones are delivered before.
    """
    sound: list[MarkedRecord] = []
    poisons: list[Poison] = []
    stopped, begun = set[str](), set[str]()
    for record in records:
        if record.key in stopped:
            continue
        if record.fault:
            stopped.add(record.key)
            if record.key not in begun:
                poisons.append(Poison(record.id, record.fault, 1))
            continue
        begun.add(record.key)
        sound.append(record)
    return sound, poisons


_HARVESTER = (
    "lane {lane} of the outbox {outbox} publishes in Kafka transactions, and the rows of the last may be in "
    "the log and in the outbox: start its harvester and stop it in order, so that it settles them; "
    "'outbox fence forget' takes them for unpublished"
)
_FORGET = (
    "else begin with a new checkpoint and a new sink (its path, or Delta's txnAppId), as sinks that know "
    "batches by number leave out a number that they have; 'outbox fence forget' permits that"
)
_OTHER = (
    "the outbox {outbox} was read by another query ({query}, batch {batch}), or by this one with a "
    "checkpoint that is gone. Go on with that checkpoint; " + _FORGET
)
_OLDER = (
    "the checkpoint of the query is an older copy: it ends with batch {older}, and the query has read batch "
    "{batch} of the outbox {outbox} since. Go on with the latest checkpoint; " + _FORGET
)
