"""What lanes ask for, and how they end: the model's steps with the calls that a trace has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .answers import PHASES, Answers, Steps
from .batches import in_vain as _abandoned
from .batches import run
from .faults import FAULTS
from .lane_view import LaneView, Step, with_strays
from .protocol import drained
from .traces import Asked
from .world import ABSENT, FREE, Call, Selected, World

_SPENT = ("not answered at once", "put back", "certificates have changed")
"""What is said of a producer that has ended, though its last call has succeeded."""


class Follow(Answers):
    """The model's lanes."""

    def anew(self, world: World, call: Asked) -> Steps:
        """Returns the state in which a leader or a lane begins, whatever has ended the one before."""
        view = self.view(world, call)
        if call.do == "bump":
            return (("", self.over(world, call.who)),)
        if view is None:
            return ()
        return (("", world if view.lane.phase == "enter" else view.anew("")[1]),)

    def ask(self, world: World, call: Asked) -> Iterator[Step]:
        """Returns the states in which a call is on its way to its server."""
        view = self.view(world, call)
        if call.do == "bump" or view is None:
            if call.do == "bump":
                yield "", world
        elif call.do == "advance":
            yield from self._asks(view, call)
        elif call.do == "publish":
            yield from self._offers(view, call)
        elif call.do == "park":
            poison = self.seen.rows(call.asks["rows"])
            yield "", view.step("", lane=view.lane._replace(poison=poison[0] if poison else None))[1]
        elif call.do == "drained":
            told = world.processes[call.who].draining
            words = "" if told else f"process {call.who + 1} is told to hand over"
            yield words, world if told else drained(world, call.who)._replace(terms=0)
        else:
            yield "", world

    def _asks(self, view: LaneView, call: Asked) -> Iterator[Step]:
        rows = self.seen.rows([row for row, _ in (call.answer or {}).get("rows", ())])
        if view.lane.phase != "run" or view.lane.advance:
            return
        if view.lane.spent and view.lane.selected:
            rows = ()  # it will learn that its producer has ended, and has selected them in vain
        if not rows and not call.asks["finished"]:
            yield "", view.world  # nothing that the model has a step for
            return
        world = self._committed(view.world, rows)
        for unheard in (False, True):
            lane = view.lane
            if unheard and (lane.publishing or not lane.finished):
                continue
            if unheard:  # of its last commit
                last = lane.finished[-1]
                lane = lane._replace(finished=lane.finished[:-1], publishing=Selected(last, ()))
            before = self.at(view.step("", world, lane)[1], view.number, view.place)
            for words, after in run(before, self.servers, (len(rows),) if rows else ()):
                asking = after.processes[view.number].lanes[view.place]
                if asking.advance and self._same(world, asking.advance.call, call, len(rows)):
                    if unheard:
                        asking = asking._replace(finished=(*asking.finished, last), publishing=None)
                    yield words, self.at(after, view.number, view.place).step("", lane=asking)[1]

    def _same(self, world: World, advance: Call, call: Asked, limit: int) -> bool:
        _, finished, wish = advance.arguments
        purges = bool(finished) == bool(call.asks["finished"])
        same = self.left(world, finished) == self.there(world, call.asks["finished"])
        pending = not limit or self.left(world, wish.pending) == self.there(world, call.asks["pending"])
        return purges and same and pending and wish.limit == limit

    def _offers(self, view: LaneView, call: Asked) -> Iterator[Step]:
        rows, lane = self.seen.rows(call.asks["rows"]), view.lane
        selected = lane.selected.rows if lane.selected else ()
        if lane.phase != "run" or selected[: len(rows)] != rows:
            return  # it may leave the last ones to the next batch
        yield "", view.step("", lane=lane._replace(selected=lane.selected or self.batch_of(call)))[1]

    def dropped(self, world: World, call: Asked) -> Iterator[World]:
        """Yields the states in which a batch of which nothing was sent is given up, or a part goes on."""
        view = self.view(world, call)
        if view is None:
            yield world
            return
        lane = view.lane
        idle = view.step("", lane=lane._replace(selected=None, publishing=None, advance=_abandoned(lane)))[1]
        yield idle
        yield self.goes_on(self.at(idle, view.number, view.place), lane)

    def _committed(self, world: World, rows: Sequence[int]) -> World:
        """Returns a state in which the applications have committed rows."""
        if all(world.database.rows[row] != ABSENT for row in rows):
            return world
        there = tuple(
            FREE if row in rows and each == ABSENT else each for row, each in enumerate(world.database.rows)
        )
        database = world.database._replace(rows=there)
        return world._replace(database=database, disk=database)

    def settles(self, world: World, call: Asked) -> bool:
        """Returns whether a call is of a lane that is settled: a failure ends its whole term."""
        view = self.view(world, call)
        return view is not None and view.lane.settles

    def in_vain(self, world: World, call: Asked) -> Iterator[Step]:
        """Returns the ways in which a lane starts anew after a call has failed."""
        if call.do == "bump":
            yield "", with_strays(world, (Call("bump", (call.asks["lanes"],)),))
        view = self.view(world, call)
        if view is None or call.do == "bump":
            return
        lane = view.lane
        if call.do == "publish":
            if any(words in call.says for words in _SPENT):
                if lane.spent:
                    yield view.anew("needs a new producer, and starts anew")
                return
            for words, after in run(view, self.servers, ()):
                if words.endswith("and starts anew"):
                    yield words, after
        is_phase = call.do not in PHASES or lane.phase in PHASES[call.do]
        found = list(self.only(view, FAULTS["doubt"](self.lanes, world._replace(faults=1)), "waits in vain"))
        if is_phase and found:
            yield from found
        else:
            yield "", view.anew("")[1]
