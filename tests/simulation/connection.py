"""A lane's connection to the outbox, as the dialect keeps it: statements, and what it remembers of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outbox_api import Advanced, Batch, Changed, Fence, MarkedRecord
from outbox_core.delivery.commands import Advance, Mark, Park, Purge, Reset
from outbox_core.lanes.kept_rows import KeptRows
from outbox_postgres.settled import FIRST

from . import statements
from .base_statements import AroundLocked, Common, Marked, names, record_of
from .database import FAILED, LOST, Transaction
from .trail import serial_of

if TYPE_CHECKING:
    from .lane_run import LaneRun
    from .world import World

Work = Mark | Purge | Reset | Park | Advance


class Horizon:
    """What a connection remembers of what it has found: where to look on, and which rows are locked.

    Attributes:
        settled: Where to look on.
        releases: What it has seen of them last.
    """

    def __init__(self, world: World, clock: Callable[[], float]) -> None:
        self.settled = world.parts.settled(clock)
        self.releases = -1
        self._world = world
        self._locked: frozenset[int] = frozenset()

    def advance(self, common: Common, command: Advance) -> Transaction:
        """Returns the statement of an advance."""
        finished, pending, limit = command.finished, command.pending, command.limit
        start = self.settled.begin(common[2], (*finished, *pending)) if limit else FIRST
        if self._world.database.anew:
            start = FIRST  # the horizon rests on ids that ascend; such a database has none
        return self._world.parts.advance(
            common,
            finished,
            limit,
            pending=pending,
            start=start,
            releases=self.releases,
            max_bytes=command.max_bytes,
            locked=self._locked,
        )

    def take_note(self, command: Mark | Advance, reply: Marked) -> None:
        """Takes the reply to a mark or an advance."""
        self._locked = frozenset(number for batch in reply.locked for number in batch.ids())
        if isinstance(command, Advance) and not command.limit:
            self.settled.finished(command.finished)
            return
        if reply.releases is not None:
            self.releases = reply.releases
            self.settled.released()
        records = reply.records
        behind: tuple[Any, ...] = ()
        if isinstance(command, Advance):
            selected = Batch.of([record.id for record in records], reply.newest)
            behind = (*command.pending, *([selected] if records else []))
        self.settled.marked(reply.found, (records[0].id, records[-1].id) if records else None, behind)


class Connection:
    """One connection to the outbox: carries out commands one by one, and connects anew after errors.

    Attributes:
        kept: Finds rows that were deleted in vain.
    """

    def __init__(self, lane: LaneRun) -> None:
        self._lane = lane
        self._work: deque[Work] = deque()
        self._command: Work | None = None
        self.kept = KeptRows()
        self._connect()

    def _connect(self) -> None:
        self._horizon = Horizon(self._lane.world, self._lane.host.clock)
        self._wary = False
        self._boot: int | None = None  # connects with the first command

    def submit(self, command: Work) -> None:
        self._work.append(command)
        if self._command is None:
            self._next()

    def _next(self) -> None:
        self._command = command = self._work.popleft()
        if self._boot is None:
            self._boot = self._lane.world.database.boot
        if _marks(command) and self._horizon.settled.due():
            listing = statements.Listing(self._lane.world.database, self._horizon.settled.floor())
            self._lane.world.wire.call(self._lane.host, listing, self._listed, self._boot)
        else:
            self._execute(command)

    def _listed(self, result: Any) -> None:
        if result is FAILED:
            self._answered(FAILED)
        elif not self._lane.ended and self._command is not None:
            newest, holders = result
            self._horizon.settled.listed(newest, holders, prepared=False)
            self._execute(self._command)

    def _execute(self, command: Work) -> None:
        lane = self._lane
        assert lane.fence is not None
        lane.world.tell(lane, None, "asks for %s", command)
        lane.world.wire.call(lane.host, self._statement(command, lane.fence), self._answered, self._boot)

    def _statement(self, command: Work, fence: Fence) -> Transaction:
        world, session = self._lane.world, self._lane.producer
        leader_id = None if isinstance(command, Advance) else command.leader_id
        common = (world.database, session, fence, leader_id)
        parts = world.parts
        match command:
            case Mark(leader_id, limit, max_bytes, excluded):
                keys = frozenset(excluded)
                start = self._horizon.settled.begin((fence.lane, fence.lanes, leader_id), (), keys)
                return parts.mark(common, limit, start, self._horizon.releases, keys, max_bytes)
            case Advance():
                return self._horizon.advance(common, command)
            case Purge(_, ids):
                return self._around_locked(parts.purge(common, ids))
            case Park(_, poisons, ids):
                self._horizon.settled.released()
                return self._around_locked(parts.park(common, [poison.id for poison in poisons], ids))
            case Reset(_, ids):
                self._horizon.settled.released()
                return self._around_locked(parts.reset(common, ids))

    def _around_locked(self, statement: AroundLocked) -> AroundLocked:
        """Has a statement not wait for locked rows if the one before has waited in vain."""
        statement.waited = self._wary
        return statement

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns the rows of a batch that are there, as of this moment."""
        database = self._lane.world.database
        found = (database.rows[number] for number in batch.ids() if number in database.rows)
        return [record_of(database, row) for row in found if names([batch], row)]

    def _answered(self, result: Any) -> None:
        lane, command, self._command = self._lane, self._command, None
        if lane.ended or command is None:
            return
        if result is LOST:
            lane.heed(command, LOST)
            return
        if result is FAILED:
            self._connect()
        elif isinstance(result, Changed):
            self._wary = bool(result.locked)
            if isinstance(command, Park):
                self.kept.parked([poison.id for poison in command.poisons], result.rows)
        elif isinstance(command, Mark | Advance):
            self._take_note(command, result)
        if lane.world.trace is not None:
            lane.world.tell(lane, None, "is answered to %s: %s", type(command).__name__, _brief(result))
        if self._work:
            self._next()
        lane.heed(command, result)

    def _take_note(self, command: Mark | Advance, reply: Marked) -> None:
        """Does what the dialect does with the reply to a mark or an advance."""
        if isinstance(command, Advance):
            advanced = Advanced(reply.purged, reply.records)
            checked = self.kept.checked(self, command.finished, advanced).records
            for before, after in zip(reply.records, checked, strict=True):
                if after.fault != before.fault:
                    self._lane.world.audit.thought_kept(self._lane.producer, serial_of(after))
            reply.records = checked
        self._horizon.take_note(command, reply)


def _marks(command: Work) -> bool:
    return isinstance(command, Mark) or (isinstance(command, Advance) and command.limit > 0)


def _brief(result: Any) -> str:
    if isinstance(result, Marked):
        return ", ".join(f"{record.id} ({record.key})" for record in result.records) or "nothing"
    return str(result)
