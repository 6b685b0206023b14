"""All that can happen: elections, the steps of lanes and servers, and faults."""

from __future__ import annotations

from collections.abc import Iterator

from .batches import in_vain
from .broker import with_channel
from .faults import FAULTS
from .lane_view import Step, told_channel, with_process
from .lanes import Lanes
from .late_ends import ended
from .numbers import simplified
from .scope import Rule, Scope
from .servers import Servers, with_parked
from .world import (
    ABSENT,
    FREE,
    GONE,
    UNRAISED,
    UNSENT,
    Call,
    Channel,
    Database,
    FenceRow,
    Process,
    World,
)


class ExactlyOnce:
    """The protocol in a scope, with or without some of its rules.

    Args:
        scope: How large the world is, and what may go wrong.
        off: The rules that are off.
    """

    def __init__(self, scope: Scope, off: frozenset[Rule] = frozenset()) -> None:
        self._scope = scope
        self._off = off
        self._servers = Servers(scope, off)
        self._lanes = Lanes(scope, off, self._servers)
        self._faults = [happens for fault, happens in FAULTS.items() if fault in scope.menu]

    def first(self) -> World:
        """Returns a world in which nobody has ever led."""
        scope = self._scope
        lanes = max(setting.lanes for setting in scope.settings)
        rows = tuple(ABSENT if row in scope.late else FREE for row in range(len(scope.keys)))
        database = Database((FenceRow(),) * lanes, rows)
        names = 1 + max(setting.name for setting in scope.settings)
        places = 1 + max(setting.place for setting in scope.settings)
        heeded = {"read the last attempt", "look for each record"} & self._off
        channel = Channel(checkpoints=(None,) * places, committed=(None,) * places if heeded else ())
        channels = (channel,) * lanes * names
        processes = (Process(),) * len(scope.settings)
        log = (UNSENT,) * len(rows)
        return World(database, database, channels, log, processes, (), scope.terms, scope.faults)

    def wrong(self, world: World) -> str:
        """Returns the property that is broken: a row was delivered twice, out of order, or is lost."""
        if world.wrong:
            return world.wrong
        for row, (leader_id, place) in enumerate(zip(world.database.rows, world.log, strict=True)):
            if leader_id == GONE and place == UNSENT and row not in _on_the_way(world):
                return "loss"
        return ""

    def rest(self, world: World) -> bool:
        """Returns whether the outbox is empty, or an operator is asked for."""
        if all(leader_id == GONE for leader_id in world.database.rows):
            return True
        return "forget" in self._scope.menu and any(
            lane.phase == "refused" for process in world.processes for lane in process.lanes
        )

    def steps(self, world: World) -> Iterator[Step]:
        """Returns all that may happen next."""
        for words, after in self._all(world):
            yield words, simplified(self._without_vain(after) if after.strays else after)

    def _all(self, world: World) -> Iterator[Step]:
        for number, process in enumerate(world.processes):
            if not process.token:
                yield from self._elect(world, number)
            elif world.terms and not process.draining:
                yield f"process {number + 1} is told to hand over", drained(world, number)
        yield from self._lanes.steps(world)
        yield from self.coordinate(world)
        for place, call in enumerate(world.strays):
            yield from self.stray(world, place, call)
        for row in self._scope.late:
            if self._may_be_stashed(world, row):
                yield f"row {row} is committed", self._stashed(world, row)
        for head in world.database.parked:
            yield f"row {head}, and its key, is freed", freed(world, head)
        if world.faults:
            once = world._replace(faults=world.faults - 1)
            for fault in self._faults:
                yield from fault(self._lanes, once)

    # --- leaders ------------------------------------------------------------------------------------

    def _elect(self, world: World, number: int) -> Iterator[Step]:
        settings = self._scope.settings
        if any(not world.processes[n].token and settings[n] == settings[number] for n in range(number)):
            return  # of idle processes that are alike the first will do
        token = world.database.fence[0].token
        if token and any(process.token == token for process in world.processes):
            if not world.terms:
                return
            world = world._replace(terms=world.terms - 1)
        setting = settings[number]
        if "raise the fence before the checkpoint is read" in self._off:
            lanes = tuple(lane._replace(phase="recall") for lane in self._lanes.begin(world, number))
            yield f"process {number + 1} is elected", with_process(world, number, Process(UNRAISED, lanes))
            return
        world, token = self._servers.bump(world, setting.lanes)
        process = Process(token, self._lanes.begin(world, number))
        delivery = "exactly-once" if setting.once else "at-least-once"
        words = f"process {number + 1} is elected and bumps the fence: {setting.lanes} lanes, {delivery}"
        yield words, with_process(world, number, process)

    # --- what happens by itself ---------------------------------------------------------------------

    def coordinate(self, world: World) -> Iterator[Step]:
        """Returns what the broker may do by itself."""
        for number, channel in enumerate(world.channels):
            whose = told_channel(world, number)
            if channel.transaction and channel.transaction.prepared:
                done = self._servers.completed(channel, late="late log" in self._scope.menu)
                yield f"the broker completes the transaction of {whose}", with_channel(world, number, done)
            if channel.late:
                shown = channel._replace(late=False)
                yield f"the broker shows what {whose} has committed", with_channel(world, number, shown)

    # --- applications -------------------------------------------------------------------------------

    def _may_be_stashed(self, world: World, row: int) -> bool:
        """Returns whether a row may come: behind those that cause it, or that had its id."""
        rows, keys = world.database.rows, self._scope.keys
        causes = (other for other in self._scope.late if other < row and keys[other] == keys[row])
        replaced = self._servers.outbox.replaced(row, rows)
        return (
            rows[row] == ABSENT
            and all(rows[cause] != ABSENT for cause in causes)
            and all(world.log[other] != UNSENT for other in replaced)
        )

    def _stashed(self, world: World, row: int) -> World:
        """Has a row be committed; one that had the same id is gone, as after a TRUNCATE."""
        replaced = self._servers.outbox.replaced(row, world.database.rows)
        rows = tuple(
            FREE if other == row else GONE if other in replaced else each
            for other, each in enumerate(world.database.rows)
        )
        database = world.database._replace(rows=rows)
        return world._replace(database=database, disk=database)

    def stray(self, world: World, place: int, call: Call) -> Iterator[Step]:
        rest = world._replace(strays=world.strays[:place] + world.strays[place + 1 :])
        if call.name == "end":
            yield from ended(self._servers, rest, *call.arguments)
            return
        outcome = self._servers.execute(rest, call)
        if outcome is None:
            return
        after, answer = outcome
        if call.name == "fill" and answer == "done":  # the thread that does this goes on
            after = after._replace(strays=(*after.strays, Call("commit", call.arguments[:2])))
        yield f"a late call is carried out: {call.name} {call.arguments}, {answer}", after

    def _without_vain(self, world: World) -> World:
        strays = (call for call in world.strays if not self._servers.vain(world, call))
        return world._replace(strays=tuple(sorted(strays, key=repr)))


def drained(world: World, number: int) -> World:
    """Has a process begin nothing new and end once all has settled."""
    process = world.processes[number]
    lanes = tuple(
        lane._replace(selected=None, advance=in_vain(lane)) if lane.phase == "run" else lane
        for lane in process.lanes
    )
    after = world._replace(terms=world.terms - 1)
    return with_process(after, number, process._replace(lanes=lanes, draining=True))


def freed(world: World, head: int) -> World:
    """Has an operator free a key, whose head is tried again."""
    database = with_parked(world.database, set(world.database.parked) - {head})
    return world._replace(database=database, disk=database)


def _on_the_way(world: World) -> set[int]:
    """Returns the rows that transactions may still bring into the log."""
    rows = {row for channel in world.channels if channel.transaction for row in channel.transaction.rows}
    rows.update(row for channel in world.channels for row in channel.hanging)
    rows.update(row for call in world.strays if call.name == "fill" for row in call.arguments[2].rows)
    for process in world.processes:
        for lane in process.lanes:
            if lane.selected and lane.phase == "run":
                rows.update(lane.selected.rows)
    return rows
