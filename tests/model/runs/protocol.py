"""The model: what can happen to a leader that sends runs, to the database, and to the broker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count, product

from .harvester import Seen
from .leader import Leader, raised
from .network import Network
from .outbox import Outbox
from .scope import Rule, Scope
from .world import ABSENT, FREE, GONE, OUT, Log, Process, Rows, World

Step = tuple[str, World]


class Runs:
    """At-least-once delivery of runs, in which the product's own code decides."""

    def __init__(self, scope: Scope, off: frozenset[Rule] = frozenset()) -> None:
        self._scope, self._off = scope, off
        self._leader = Leader(scope)
        self._seen, self._do = self._leader.seen, self._leader.do
        self._outbox = Outbox(scope, off, self._leader)
        self._network = Network(scope, off)

    def first(self) -> World:
        scope = self._scope
        rows = tuple(ABSENT if row in scope.late else FREE for row in range(len(scope.keys)))
        return World(rows, tuple(Log() for _ in {*scope.keys}), faults=scope.faults)

    def wrong(self, world: World) -> str:
        return world.wrong

    def rest(self, world: World) -> bool:
        return {*world.rows} == {GONE}

    def steps(self, world: World) -> Iterator[Step]:
        for words, after in self._steps(world):
            yield words, after if after.wrong else after._replace(wrong=self._judged(after))

    def _judged(self, world: World) -> str:
        """Returns which property a state breaks."""
        if error := raised(world.process):
            return error
        for key, log in enumerate(world.log):
            rows = [row for row, each in enumerate(self._scope.keys) if each == key]
            left = [world.rows[row] for row in rows if world.rows[row] != ABSENT]
            if GONE in left[log.rows :]:
                return "loss"
            if sum(each != GONE for each in left[: log.rows]) > self._scope.run:
                return "repeats"
            if left and {*left} == {GONE} and log.last != len(left) - 1:
                return "stale"
        return ""

    def _steps(self, world: World) -> Iterator[Step]:
        yield from self._outbox.commits(world)
        yield from self._outbox.late(world)
        yield from self._network.late(world)
        process = world.process
        if process is None:
            strays = self._outbox.beyond_the_fence(world)
            begun = self._leader.first(_fresh({call.leader for call in strays}))
            yield "a leader begins", self._outbox.abandoned(world)._replace(process=begun, strays=strays)
            return
        yield from self._decisions(world, process)
        yield from self._outbox.answers(world, process)
        yield from self._network.steps(world, process)
        if world.faults:
            yield from self._faults(world, process)

    # --- what a leader does ---------------------------------------------------------------------------

    def _decisions(self, world: World, process: Process) -> Iterator[Step]:
        seen = self._seen(process)
        yield from self._turns(world, process, seen)
        if process.marker is None:
            if seen.refreshes:
                yield "the leader marks anew", self._refreshed(world, process, seen)
            if seen.marks and self._outbox.waits(world, seen.leader):
                yield "the leader asks for a mark", world._replace(process=self._do(process, "mark"))
            if seen.unholds:
                asks = self._do(process, "unhold")
                words = f"the leader asks for a {asks.marker.verb if asks.marker else 'reset'}"
                yield words, world._replace(process=asks)
        for left in (False, True):
            if process.purger is None and (seen.purges_left if left else seen.purges):
                words = "the leader asks for a purge" + (" of what was locked" if left else "")
                yield words, world._replace(process=self._do(process, "purge", left=left))
        if seen.drained:
            yield "the leader has handed over", self._outbox.abandoned(world)

    def _turns(self, world: World, process: Process, seen: Seen) -> Iterator[Step]:
        heard = tuple(number for number, each in enumerate(process.alone) if each.stage != OUT)
        lines = process.client.lines if process.client else ()
        written = tuple(line.partition for line in lines if line.written)
        choices: list[tuple[Rows, Rows]] = [((each,), ()) for each in heard]
        choices += [((), (each,)) for each in written]
        if len(choices) > 1:
            choices.append((heard, written))
        if seen.turns:
            choices.append(((), ()))
        for some, places in choices:
            words = (
                f"the leader hears of {[process.alone[each].row for each in some]}, {[*places]}, and sends"
            )
            yield words, world._replace(process=self._do(process, "turn", some, places))
        if seen.turns and world.faults and "lapse" in self._scope.menu:
            turned = self._do(process, "turn", (), (), leads=False)
            yield "the leader's lease ends before it sends", _fault(world)._replace(process=turned)

    def _refreshed(self, world: World, process: Process, seen: Seen) -> World:
        strays = self._outbox.beyond_the_fence(world)
        leader = _fresh({*world.rows, *seen.leaders, *(call.leader for call in strays)})
        process = self._do(process, "refresh", leader)
        living = self._seen(process).leaders
        rows = tuple(row if row in living else min(row, FREE) for row in world.rows)
        return world._replace(rows=rows, process=process, strays=strays)

    # --- faults ---------------------------------------------------------------------------------------

    def _faults(self, world: World, process: Process) -> Iterator[Step]:
        menu, after = self._scope.menu, _fault(world)
        if "crash" in menu:
            yield from self._crashes(after, process)
        if "restart" in menu:
            yield from self._outbox.restarts(after, process)
        if "lapse" in menu:
            yield "the leader's lease lapses", after._replace(process=self._do(process, "lapse"))
        if "drain" in menu and (drains := self._do(process, "drain")) != process:
            yield "the leader is told to hand over", after._replace(process=drains)
        if "timeout" in menu and self._seen(process).gives_up:
            turned = self._do(process, "turn", (), (), patient=False)
            yield "the leader gives up its producer of runs", after._replace(process=turned)

    def _crashes(self, world: World, process: Process) -> Iterator[Step]:
        """Loses the leader; what it has asked of the servers is carried out, or never."""
        calls = [call for call in (process.marker, process.purger) if call]
        for done in product((False, True), repeat=len(calls)):
            after, words = world, "the leader crashes"
            for call in (call for call, each in zip(calls, done, strict=True) if each):
                after, words = self._outbox.carried_out(after, call), f"{words}, after its {call.verb}"
            for told, last in self._network.last_requests(after, process):
                yield words + told, self._outbox.abandoned(last)


def _fresh(used: Collection[int]) -> int:
    """Returns the lowest leader id that appears nowhere; that it was used long ago cannot matter."""
    return next(each for each in count(1) if each not in used)


def _fault(world: World) -> World:
    return world._replace(faults=world.faults - 1)
