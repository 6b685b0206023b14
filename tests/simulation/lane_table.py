"""A lane's connection to the outbox, as the dialect keeps it: statements, and what it remembers of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox_api import Advanced, Batch, Changed, Fence, MarkedRecord, Outline, Poison
from outbox_core.delivery.commands import Advance, Mark
from outbox_core.delivery.exactly_once import SelectPublishPurge
from outbox_postgres.scan_starts import excluding
from outbox_postgres.settled import FIRST

from . import statements
from .base_statements import AroundLocked, Common, Marked
from .database import Transaction
from .greenlets import Then, step
from .pauses import Heartbeat
from .recovery import Servers

if TYPE_CHECKING:
    from .lane_run import LaneRun
    from .world import World


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
        topics = excluding(frozenset(), frozenset(command.excluded_topics))
        start = self.settled.begin(common[2], (*finished, *pending), topics) if limit else FIRST
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
            excluded=topics,
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


class LaneTable(Servers):
    """One connection, for one of a lane's loops; an :class:`outbox_api.OutboxTable`."""

    def __init__(self, lane: LaneRun) -> None:
        super().__init__(lane.world, lane.host, lane.group.settings, lane.producer)
        self._lane = lane
        self._horizon = Horizon(lane.world, lane.host.clock)
        self._wary = False

    def step(self, action: Callable[[Then], object]) -> Any:
        return step(action)

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        run = self._lane
        machine: Any = run.lane and run.lane.machine
        leader_id = machine.leader_id
        run.world.tell(run, None, "takes leader id %s", leader_id)
        run.world.audit.counts["remarks"] += 1
        with run.host.scheduler.reporting():
            run.world.audit.leader_id_taken(leader_id, run.number)
        return super().enter(lane, lanes, token)

    def mark(  # noqa: PLR0917 - the contract's
        self,
        fence: Fence,
        leader_id: Any,
        limit: int,
        max_bytes: int,
        excluded: Collection[str],
        _source: int,
        topics: Collection[str],
    ) -> list[MarkedRecord]:
        self._list()
        keys, settled, parts = frozenset(excluded), self._horizon.settled, self.world.parts
        left_out = excluding(keys, self._paused(topics))
        start = settled.begin((fence.lane, fence.lanes, leader_id), (), left_out)
        common, releases = self._common(fence, leader_id), self._horizon.releases
        statement = partial(parts.mark, common, limit, start, releases, left_out, max_bytes)
        reply = self._told(f"a mark of {limit}", statement)
        self._horizon.take_note(Mark(leader_id, limit, max_bytes, tuple(excluded)), reply)
        return [*reply.records]

    def advance(self, fence: Fence, finished: Sequence[Batch], *more: Any) -> Advanced:
        pending, limit, max_bytes = more[:3]
        if limit:
            self._list()
        topics = tuple(self._paused(more[5])) if more[5:] else ()
        command = Advance([*finished], [*pending], limit, max_bytes, excluded_topics=topics)
        statement = partial(self._horizon.advance, self._common(fence, None), command)
        reply = self._told(command, statement)
        self._horizon.take_note(command, reply)
        return Advanced(reply.purged, [*reply.records], reply.newest, reply.locked)

    def outline(self, fence: Fence, after: int, limit: int, topics: Sequence[str]) -> Outline:
        statement = partial(self.world.parts.outline, self._common(fence, None), after, limit, topics)
        outline: Outline = self._told(f"an outline behind {after}", statement)
        return outline

    def supersede(self, fence: Fence, batch: Batch) -> int:
        machine: Any = self._lane.lane and self._lane.lane.machine

        def taken() -> list[Batch]:
            batches = machine.batches() if isinstance(machine, SelectPublishPurge) else []
            return [each for each, _ in batches]

        statement = partial(self.world.parts.supersede, self._common(fence, None), batch, taken)
        number: int = self._told(f"{batch} to be superseded", statement)
        return number

    def purge(self, fence: Fence, leader_id: Any, ids: list[int]) -> Changed:
        statement = partial(self.world.parts.purge, self._common(fence, leader_id), ids)
        return self._around_locked(f"a purge of {ids}", statement)

    def reset(self, fence: Fence, leader_id: Any, ids: list[int]) -> Changed:
        self._horizon.settled.released()
        statement = partial(self.world.parts.reset, self._common(fence, leader_id), ids)
        return self._around_locked(f"a reset of {ids}", statement)

    def park(self, fence: Fence, leader_id: Any, poisons: Sequence[Poison], ids: list[int]) -> Changed:
        self._horizon.settled.released()
        heads = [poison.id for poison in poisons]
        statement = partial(self.world.parts.park, self._common(fence, leader_id), heads, ids)
        return self._around_locked(f"{heads} to be parked, with {ids}", statement)

    def heartbeat(self, fence: Fence, metrics: Mapping[str, object]) -> None:
        """Writes what it says of pauses: nobody reads anything else."""
        if self.world.scenario.pauses:
            self._told(
                f"a heartbeat with {metrics.get('paused')}",
                partial(Heartbeat, self._common(fence, None), metrics),
            )

    def close(self) -> None:
        """Leaves to the database what is under way."""

    def _common(self, fence: Fence, leader_id: Any) -> Common:
        return (self.world.database, self.session, fence, leader_id)

    def _paused(self, topics: Collection[str]) -> frozenset[str]:
        """Returns the topics that are left out where there are pauses: else nothing goes on in them."""
        return frozenset(topics) if self.world.scenario.pauses else frozenset()

    def _list(self) -> None:
        """Asks which ids are settled, if it is time to."""
        settled, database = self._horizon.settled, self.world.database
        if settled.due():
            newest, holders = self._ask(lambda: statements.Listing(database, settled.floor()))
            settled.listed(newest, holders, prepared=False)

    def _around_locked(self, what: str, make: Callable[[], AroundLocked]) -> Changed:
        """Has a statement not wait for locked rows if the one before has waited in vain."""

        def statement() -> AroundLocked:
            made = make()
            made.waited = self._wary
            return made

        changed: Changed = self._told(what, statement)
        self._wary = bool(changed.locked)
        return changed

    def _told(self, what: object, statement: Callable[[], Transaction]) -> Any:
        if self.world.trace is None:
            return self._ask(statement)
        lane = self._lane
        lane.world.tell(lane, None, "asks for %s", what)
        reply = self._ask(statement)
        lane.world.tell(lane, None, "is answered to %s: %s", what, _brief(reply))
        return reply


def _brief(result: Any) -> str:
    if isinstance(result, Marked):
        return ", ".join(f"{record.id} ({record.key})" for record in result.records) or "nothing"
    return str(result)
