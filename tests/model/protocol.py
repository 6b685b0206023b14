"""All that can happen: elections, the steps of lanes and servers, and faults."""

from __future__ import annotations

from collections.abc import Iterator

from .faults import FAULTS, in_vain
from .lane_view import Step, told, told_channel, with_process
from .lanes import Lanes
from .numbers import simplified
from .scope import Rule, Scope
from .servers import Servers, with_channel, with_checkpoint
from .world import (
    ABSENT,
    FREE,
    GONE,
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
        channels = (Channel(checkpoints=(None,) * places),) * lanes * names
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
                yield f"process {number + 1} is told to hand over", _drained(world, number)
        yield from self._lanes.steps(world)
        yield from self._coordinate(world)
        for place, call in enumerate(world.strays):
            yield from self._stray(world, place, call)
        for row in self._scope.late:
            if world.database.rows[row] == ABSENT:
                yield f"row {row} is committed", _stashed(world, row)
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
        world, token = self._servers.bump(world, setting.lanes)
        process = Process(token, self._lanes.begin(world, number))
        delivery = "exactly-once" if setting.once else "at-least-once"
        words = f"process {number + 1} is elected and bumps the fence: {setting.lanes} lanes, {delivery}"
        yield words, with_process(world, number, process)

    # --- what happens by itself ---------------------------------------------------------------------

    def _coordinate(self, world: World) -> Iterator[Step]:
        for number, channel in enumerate(world.channels):
            whose, transaction, late = told_channel(world, number), channel.transaction, channel.late
            if transaction and transaction.prepared and late is None:
                done = channel._replace(transaction=None)
                if "late checkpoint" in self._scope.menu:
                    done = done._replace(late=transaction)
                else:
                    done = with_checkpoint(done, transaction.place, transaction.checkpoint)
                words = (
                    f"the broker completes the commit of {whose}, checkpoint {told(transaction.checkpoint)}"
                )
                yield words, with_channel(world, number, done)
            if late is not None:
                shown = with_checkpoint(channel._replace(late=None), late.place, late.checkpoint)
                yield f"the broker shows the checkpoint of {whose}", with_channel(world, number, shown)

    def _stray(self, world: World, place: int, call: Call) -> Iterator[Step]:
        rest = world.strays[:place] + world.strays[place + 1 :]
        outcome = self._servers.execute(world._replace(strays=rest), call)
        if outcome is None:
            return
        after, answer = outcome
        if call.name == "fill" and answer == "done":  # the thread that does this goes on
            after = after._replace(strays=(*after.strays, Call("commit", call.arguments[:2])))
        yield f"a late call is carried out: {call.name} {call.arguments}, {answer}", after

    def _without_vain(self, world: World) -> World:
        strays = (call for call in world.strays if not self._servers.vain(world, call))
        return world._replace(strays=tuple(sorted(strays, key=repr)))


def _drained(world: World, number: int) -> World:
    """Has a process begin nothing new and end once all has settled."""
    process = world.processes[number]
    lanes = tuple(
        lane._replace(marked=None, advance=in_vain(lane)) if lane.phase == "run" else lane
        for lane in process.lanes
    )
    after = world._replace(terms=world.terms - 1)
    return with_process(after, number, process._replace(lanes=lanes, draining=True))


def _stashed(world: World, row: int) -> World:
    rows = (*world.database.rows[:row], FREE, *world.database.rows[row + 1 :])
    database = world.database._replace(rows=rows)
    return world._replace(database=database, disk=database)


def _on_the_way(world: World) -> set[int]:
    """Returns the rows that transactions may still bring into the log."""
    rows = {row for channel in world.channels if channel.transaction for row in channel.transaction.rows}
    rows.update(row for call in world.strays if call.name == "fill" for row in call.arguments[2].rows)
    for process in world.processes:
        for lane in process.lanes:
            if lane.marked and lane.phase == "run":
                rows.update(lane.marked.rows)
    return rows
