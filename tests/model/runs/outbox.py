"""The database of the model: what it does when it is asked, also where nobody hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from .leader import Leader
from .scope import Rule, Scope
from .world import ABSENT, FREE, GONE, Call, Loop, Process, Rows, World

Step = tuple[str, World]


class Outbox:
    """The rows."""

    def __init__(self, scope: Scope, off: frozenset[Rule], leader: Leader) -> None:
        self._scope, self._off = scope, off
        self._do = leader.do

    def commits(self, world: World) -> Iterator[Step]:
        """Commits the next row of a key."""
        keys = set[int]()
        for row in sorted(self._scope.late):
            key = self._scope.keys[row]
            if world.rows[row] == ABSENT and key not in keys:
                keys.add(key)
                yield f"row {row} is committed", world._replace(rows=_with(world.rows, [row], FREE))
        for key in sorted(world.parked):
            yield f"key {key} is freed", world._replace(parked=world.parked - {key})

    def waits(self, world: World, leader: int) -> bool:
        """Returns whether a mark may find something."""
        return bool(self._rows(world, Call("mark", leader, limit=1)))

    def answers(self, world: World, process: Process) -> Iterator[Step]:
        """Carries out what the leader waits for."""
        for call in (process.marker, process.purger):
            if call is not None and call.loop in process.cut:
                unknown = world._replace(process=self._do(process, "unknown", call))
                yield f"the connection for the {call.verb} is lost", unknown
            elif call is not None:
                yield from self._answers(world, process, call)
                if world.faults and "doubt" in self._scope.menu:
                    yield from self._doubts(world._replace(faults=world.faults - 1), process, call)

    def _answers(self, world: World, process: Process, call: Call) -> Iterator[Step]:
        rows, after = self._rows(world, call), world._replace(process=self._answered(world, process, call))
        yield f"the database does the {call.verb} {[*rows]}", self.carried_out(after, call)
        if call.verb == "mark" or not world.faults or "lock" not in self._scope.menu:
            return
        for row in rows:
            left = self._left(world, call, row)
            answer = self._answered(world, process, call, left)
            after = world._replace(process=answer, faults=world.faults - 1)
            words = f"the database does the {call.verb} but for {[*left]}: {row} is locked"
            yield words, self.carried_out(after, call, left)

    def _answered(self, world: World, process: Process, call: Call, left: Rows = ()) -> Process:
        rows = self._rows(world, call)
        if call.verb == "mark":
            return self._do(process, "marked", rows)
        if call.verb == "reset":
            return self._do(process, "reset_done", left)
        if call.verb == "park":
            return self._do(process, "park_done", len(self._parked(world, call, left)), left)
        return self._do(process, "purged", len(rows) - len(left), left)

    def _doubts(self, world: World, process: Process, call: Call) -> Iterator[Step]:
        unknown = world._replace(process=self._do(process, "unknown", call))
        yield f"the database does the {call.verb}, without a reply", self.carried_out(unknown, call)
        words = f"the database does not reply to the {call.verb} yet"
        yield words, unknown._replace(strays=tuple(sorted({*unknown.strays, call})))

    def late(self, world: World) -> Iterator[Step]:
        """Carries out what nobody waits for."""
        for call in world.strays:
            after = world._replace(strays=tuple(each for each in world.strays if each != call))
            yield f"a late {call.verb} is carried out", self.carried_out(after, call)

    def restarts(self, world: World, process: Process) -> Iterator[Step]:
        """Restarts the database: purges and resets are durable, and marks of the last rows are undone."""
        cut = world._replace(process=process._replace(cut=get_args(Loop)), strays=())
        for row in (row for row, leader in enumerate(world.rows) if leader > FREE):
            lost = tuple(min(leader, FREE) for leader in world.rows[row:])
            words = f"the database restarts, and rows from {row} on are unmarked"
            yield words, cut._replace(rows=(*world.rows[:row], *lost))

    def carried_out(self, world: World, call: Call, left: Rows = ()) -> World:
        """Returns what a call makes of the rows, but for those that it leaves."""
        rows = [row for row in self._rows(world, call) if row not in left]
        becomes = {"mark": call.leader, "purge": GONE}.get(call.verb, FREE)
        parked = world.parked.union(self._scope.keys[row] for row in self._parked(world, call, left))
        return world._replace(rows=_with(world.rows, rows, becomes), parked=parked)

    def _parked(self, world: World, call: Call, left: Rows) -> Rows:
        """Returns the heads whose keys a call parks."""
        return tuple(row for row in call.heads if row in self._rows(world, call) and row not in left)

    def abandoned(self, world: World) -> World:
        """Returns a world without a leader: no leader id means anything any more."""
        rows = tuple(min(row, FREE) for row in world.rows)
        return world._replace(rows=rows, process=None)

    def beyond_the_fence(self, world: World) -> tuple[Call, ...]:
        """Returns the late calls that are still carried out when the token or the epoch has risen."""
        return world.strays if "the fence refuses late calls" in self._off else ()

    def _rows(self, world: World, call: Call) -> Rows:
        """Returns the rows that a call finds."""
        if call.verb != "mark":
            return tuple(row for row in call.ids if world.rows[row] == call.leader)
        parked = () if "leave out parked keys" in self._off else world.parked
        excluded = {*call.excluded, *map(str, parked)}
        found = tuple(
            row
            for row, leader in enumerate(world.rows)
            if leader >= FREE and leader != call.leader and str(self._scope.keys[row]) not in excluded
        )
        return found[: call.limit]

    def _left(self, world: World, call: Call, locked: int) -> Rows:
        """Returns the rows that a call leaves because one is locked."""
        if "purge none behind a locked row" in self._off and call.verb == "purge":
            return (locked,)
        keys = self._scope.keys
        return tuple(row for row in self._rows(world, call) if row >= locked and keys[row] == keys[locked])


def _with(rows: Rows, changed: list[int], becomes: int) -> Rows:
    return tuple(becomes if row in changed else leader for row, leader in enumerate(rows))
