"""The model's steps for what a trace tells of one lane and one key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from .batches import advanced, run
from .batches import in_vain as _abandoned
from .broker import DONE
from .faults import FAULTS
from .lane_view import LaneView, Step, end, harvesting, with_process, with_strays
from .lanes import Lanes
from .protocol import ExactlyOnce, drained, freed
from .scope import Fault, Scope, Setting
from .servers import LOST, Servers
from .traces import Asked, Projection, lanes_of
from .world import ABSENT, FREE, NOTHING, Batch, Call, Checkpoint, Process, Selected, World

Steps = Iterable[Step]

_PHASES = {
    "enter": ("enter",),
    "recall": ("recall",),
    "open": ("open", "former"),
    "look": ("look",),
    "read": ("read",),
    "find": ("find",),
    "purge": ("purge",),
    "freshen": ("empty",),
    "note": ("note",),
}
"""What a lane is about to do as it makes a call of its recovery."""
_SPENT = ("not answered at once", "put back", "certificates have changed")
"""What is said of a producer that has ended, though its last call has succeeded."""
_NUMBERS = 27720
"""The least number that all up to 12 divide."""
_TWICE = "is sent twice"


class Follow:
    """One lane of several processes, and the rows of one key.

    Args:
        calls: The calls that concern the lane.
        key: The key.
        menu: The faults that may happen.

    Attributes:
        setting: That of all processes.
        lanes: The model's lanes.
    """

    def __init__(self, calls: Sequence[Asked], key: str, menu: frozenset[Fault]) -> None:
        self._seen = Projection(calls, key)
        self._followed = {call.lane for call in calls}
        rows, lanes = (
            len(self._seen.ids),
            {call.who: call.asks["lanes"] for call in calls if call.do == "bump"},
        )
        processes = range(1 + max((call.who for call in calls), default=0))
        self.settings = tuple(Setting(lanes=lanes.get(who, 1)) for who in processes)
        number = _number(lanes_of(calls, key))
        scope = Scope("", self.settings, (number,) * rows, frozenset(range(rows)), menu=menu)
        self._model = ExactlyOnce(scope)
        self._servers = Servers(scope, frozenset())
        self.lanes = Lanes(scope, frozenset(), self._servers)

    def first(self) -> World:
        """Returns the state in which nobody has ever led."""
        return self._model.first()._replace(faults=1, terms=0)

    def wrong(self, world: World) -> str:
        """Returns the property that is broken."""
        return self._model.wrong(world)

    def tidy(self, world: World) -> World:
        """Has the broker complete what is prepared, and forgets calls that are of no effect any more."""
        while step := next(iter(self._model.coordinate(world)), None):
            _, world = step
        lanes = {lane.number for process in world.processes for lane in process.lanes}
        if not lanes <= self._followed:
            world = world._replace(processes=tuple(map(self._only_followed, world.processes)))
        if not world.strays:
            return world
        strays = {call for call in world.strays if not self._servers.vain(world, call)}
        return world._replace(strays=tuple(sorted(strays, key=repr)))

    def late(self, world: World) -> Iterator[Step]:
        """Returns what becomes of calls that nobody waits for, and what operators may do."""
        for place, call in enumerate(world.strays):
            yield from self._model.stray(world, place, call)
        for head in world.database.parked:
            yield f"row {head}, and its key, is freed", freed(world, head)

    def _only_followed(self, process: Process) -> Process:
        lanes = tuple(lane for lane in process.lanes if lane.number in self._followed)
        return process._replace(lanes=lanes)

    def _view(self, world: World, call: Asked) -> LaneView | None:
        for place, lane in enumerate(world.processes[call.who].lanes):
            if lane.number == call.lane:
                return self._at(world, call.who, place)
        return None

    def _at(self, world: World, who: int, place: int) -> LaneView:
        return LaneView(world, who, place, self.settings[who], frozenset())

    def over(self, world: World, who: int) -> World:
        """Returns a state in which a process no longer leads."""
        return end(world, who, self.settings[who], frozenset()) if world.processes[who].token else world

    # --- what a lane asks for -----------------------------------------------------------------------

    def anew(self, world: World, call: Asked) -> Steps:
        """Returns the state in which a leader or a lane begins, whatever has ended the one before."""
        view = self._view(world, call)
        if call.do == "bump":
            return (("", self.over(world, call.who)),)
        if view is None:
            return ()
        return (("", world if view.lane.phase == "enter" else view.anew("")[1]),)

    def ask(self, world: World, call: Asked) -> Iterator[Step]:
        """Returns the states in which a call is on its way to its server."""
        view = self._view(world, call)
        if call.do == "bump" or view is None:
            if call.do == "bump":
                yield "", world
        elif call.do == "advance":
            yield from self._asks(view, call)
        elif call.do == "publish":
            yield from self._offers(view, call)
        elif call.do == "park":
            poison = self._seen.rows(call.asks["rows"])
            yield "", view.step("", lane=view.lane._replace(poison=poison[0] if poison else None))[1]
        elif call.do == "drained":
            told = world.processes[call.who].draining
            words = "" if told else f"process {call.who + 1} is told to hand over"
            yield words, world if told else drained(world, call.who)._replace(terms=0)
        else:
            yield "", world

    def _asks(self, view: LaneView, call: Asked) -> Iterator[Step]:
        rows = self._seen.rows([row for row, _ in (call.answer or {}).get("rows", ())])
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
            before = self._at(view.step("", world, lane)[1], view.number, view.place)
            for words, after in run(before, self._servers, (len(rows),) if rows else ()):
                asking = after.processes[view.number].lanes[view.place]
                if asking.advance and self._same(world, asking.advance.call, call, len(rows)):
                    if unheard:
                        asking = asking._replace(finished=(*asking.finished, last), publishing=None)
                    yield words, self._at(after, view.number, view.place).step("", lane=asking)[1]

    def _same(self, world: World, advance: Call, call: Asked, limit: int) -> bool:
        _, finished, wish = advance.arguments
        purges = bool(finished) == bool(call.asks["finished"])
        same = self._left(world, finished) == self._there(world, call.asks["finished"])
        pending = not limit or self._left(world, wish.pending) == self._there(world, call.asks["pending"])
        return purges and same and pending and wish.limit == limit

    def _offers(self, view: LaneView, call: Asked) -> Iterator[Step]:
        rows, lane = self._seen.rows(call.asks["rows"]), view.lane
        if lane.phase != "run" or (lane.selected.rows if lane.selected else ()) != rows:
            return
        yield "", view.step("", lane=lane._replace(selected=self._selected(call)))[1]

    def _selected(self, call: Asked) -> Selected:
        rows = self._seen.rows(call.asks["rows"])
        return self._servers.outbox.batch(rows) or Selected(Batch((), -2 - call.asks["rows"][0]), ())

    def dropped(self, world: World, call: Asked) -> World:
        """Returns the state in which a batch is given up before anything of it was sent."""
        view = self._view(world, call)
        if view is None:
            return world
        return view.step("", lane=view.lane._replace(selected=None, advance=_abandoned(view.lane)))[1]

    def _committed(self, world: World, rows: Sequence[int]) -> World:
        """Returns a state in which the applications have committed rows."""
        if all(world.database.rows[row] != ABSENT for row in rows):
            return world
        there = tuple(
            FREE if row in rows and each == ABSENT else each for row, each in enumerate(world.database.rows)
        )
        database = world.database._replace(rows=there)
        return world._replace(database=database, disk=database)

    # --- what servers carry out ---------------------------------------------------------------------

    def carry_out(self, world: World, call: Asked, *, again: bool) -> Iterator[Step]:
        """Returns the steps in which a server carries out a call, with the answer that the trace has.

        Args:
            world: The state.
            call: The call.
            again: Whether what is aborted is published again at once, in the same call to publish.
        """
        if call.do == "bump":
            yield from self._bump(world, call)
            return
        view = self._view(world, call)
        if view is None:
            return
        if call.do in _PHASES:
            yield from self._recover(view, call)
            return
        once = world._replace(faults=1)
        words = {"publish": "sends", "commit": "has", "park": "parks", "drained": "is drained"}
        if call.do == "advance":
            yield from self._advance(view, call)
        elif call.do == "abort" and again:
            yield from self._abort_and_fill(view)
        elif call.do == "abort":
            steps = FAULTS["repeat" if call.spent else "abort"](self.lanes, once)
            yield from self._only(view, steps, "aborts", twice=call.spent)
        elif call.do == "commit" and call.spent:
            yield from self._only(view, FAULTS["repeat"](self.lanes, once), "has", twice=True)
        elif call.do == "park" and view.lane.poison is None:
            yield "", world
        elif call.do != "publish" or self._same_checkpoint(
            world, view.checkpoint(self._selected(call)), call.asks
        ):
            yield from self._only(view, run(view, self._servers, ()), words[call.do])

    def _abort_and_fill(self, view: LaneView) -> Iterator[Step]:
        lane, transaction = view.lane, view.world.channels[view.lane.channel].transaction
        outcome = self._servers.abort(view.world, lane.channel, lane.epoch)
        if lane.publishing and transaction and outcome and outcome[1] is DONE:
            again = self._servers.fill(outcome[0], lane.channel, lane.epoch, transaction)
            if again:
                words = f"aborts rows {list(lane.publishing.rows)} because of a record"
                yield view.told(words), again[0]

    def _only(self, view: LaneView, steps: Steps, words: str, *, twice: bool = False) -> Iterator[Step]:
        for told, after in steps:
            if told.startswith(view.told(words)) and (_TWICE in told) == twice:
                yield told, after

    def _bump(self, world: World, call: Asked) -> Iterator[Step]:
        token = call.answer["token"] if call.answer else world.database.fence[0].token + 1
        if world.processes[call.who].token or token <= world.database.fence[0].token:
            return
        world, _ = self._servers.bump(world, call.asks["lanes"])
        fence = tuple(row._replace(token=token) for row in world.database.fence)
        database = world.database._replace(fence=fence)
        world = world._replace(database=database, disk=database)
        process = self._only_followed(Process(token, self.lanes.begin(world, call.who)))
        if not process.lanes:  # others are settled before
            own = harvesting(self.settings[call.who], len(fence))
            process = self._only_followed(process._replace(lanes=own))
        words = f"process {call.who + 1} is elected and bumps the fence"
        yield words, with_process(world, call.who, process)

    def _recover(self, view: LaneView, call: Asked) -> Iterator[Step]:
        lane, answer = view.lane, call.answer
        if lane.phase not in _PHASES[call.do]:
            if call.do == "find" and not self._seen.rows(call.asks["rows"]):
                yield "", view.world
            return
        asked = self.lanes.call(view)
        if asked is None or not self._as_asked(view, call):
            return
        if call.spent and call.do in ("open", "freshen"):
            steps = FAULTS["repeat"](self.lanes, view.world._replace(faults=1))
            yield from self._only(view, steps, "", twice=True)
            return
        outcome = self._servers.execute(view.world, asked)
        if call.do == "purge" and answer:
            locked = frozenset(self._there(view.world, answer.get("locked", ())))
            outcome = self._servers.advance(view.world, *asked.arguments, locked=locked)
        if outcome is not None and self._as_answered(view.world, call, outcome[1]):
            yield self.lanes.answered(view, asked, *outcome)

    def _as_asked(self, view: LaneView, call: Asked) -> bool:
        """Returns whether the model's lane asks for the same rows."""
        world, lane = view.world, view.lane
        match call.do:
            case "purge":
                return self._left(world, lane.known) == self._there(world, call.asks["finished"])
            case "find":
                return lane.unsure == self._seen.rows(call.asks["rows"])
            case "note":
                return lane.settles == (call.asks["noted"] is None)
            case "freshen":
                return self._same_checkpoint(world, Checkpoint(lane.locked), call.asks)
        return True

    def _as_answered(self, world: World, call: Asked, answer: Any) -> bool:
        """Returns whether the model's server answers the same."""
        told = call.answer
        same = True
        if told is None:
            pass
        elif call.lost or answer is LOST:
            same = call.lost and answer is LOST
        elif call.do == "enter":
            same = answer == told["epoch"]
        elif call.do == "recall":
            noted = told["notes"].get(str(call.lane))
            same = (answer and answer.lanes) == (noted and noted[0])
        elif call.do == "look" and "missing" in told:
            same = answer is None
        elif call.do == "look":
            same = answer is not None and self._same_checkpoint(world, answer, told)
        elif call.do in ("read", "find"):
            same = answer == self._seen.rows(told["rows"])
        return same

    def _advance(self, view: LaneView, call: Asked) -> Iterator[Step]:
        world, advance = view.world, view.lane.advance
        if advance is None:
            lost = self._servers.advance(world, view.right, (), NOTHING)[1] is LOST
            if lost == call.lost or call.answer is None:
                yield view.fenced(world) if lost else ("", world)
            return
        answer = call.answer
        locked = frozenset(self._there(world, answer.get("locked", ()) if answer else ()))
        _, found = self._servers.advance(world, *advance.call.arguments, locked=locked)
        if answer is not None and (found is LOST) != call.lost:
            return
        if answer is not None and found is not LOST:
            rows = self._seen.rows([row for row, _ in answer["rows"]])
            unused = view.lane.spent and not advance.call.arguments[2].limit
            if not unused and (found.selected.rows if found.selected else ()) != rows:
                return
        yield advanced(view, self._servers, advance, locked)

    def _same_checkpoint(self, world: World, ours: Checkpoint, theirs: dict[str, Any]) -> bool:
        attempted = theirs["attempted"]
        if (ours.attempted is None) != (attempted is None):
            return False
        mine = self._left(world, (ours.attempted,) if ours.attempted else ())
        same = mine == self._there(world, (attempted,) if attempted else ())
        return same and self._left(world, ours.published) == self._there(world, theirs["published"])

    def _carries(self, view: LaneView, call: Asked) -> bool:
        """Returns whether a batch is published with the model's checkpoint."""
        return self._same_checkpoint(view.world, view.checkpoint(self._selected(call)), call.asks)

    def _left(self, world: World, batches: Sequence[Batch]) -> set[int]:
        """Returns the rows of the model's batches that are not purged; others do not matter."""
        return self._servers.outbox.of(world.database.rows, tuple(batches))

    def _there(self, world: World, batches: Any) -> set[int]:
        """Returns the same of a trace's batches."""
        return {row for row in self._seen.of(batches) if world.database.rows[row] >= FREE}

    def settles(self, world: World, call: Asked) -> bool:
        """Returns whether a call is of a lane that is settled: a failure ends its whole term."""
        view = self._view(world, call)
        return view is not None and view.lane.settles

    # --- what nobody answers ------------------------------------------------------------------------

    def in_vain(self, world: World, call: Asked) -> Iterator[Step]:
        """Returns the ways in which a lane starts anew after a call has failed."""
        if call.do == "bump":
            yield "", with_strays(world, (Call("bump", (call.asks["lanes"],)),))
        view = self._view(world, call)
        if view is None or call.do == "bump":
            return
        lane = view.lane
        if call.do == "publish":
            if any(words in call.says for words in _SPENT):
                if lane.spent:
                    yield view.anew("needs a new producer, and starts anew")
                return
            for words, after in run(view, self._servers, ()):
                if words.endswith("and starts anew"):
                    yield words, after
        is_phase = call.do not in _PHASES or lane.phase in _PHASES[call.do]
        found = list(self._only(view, FAULTS["doubt"](self.lanes, world._replace(faults=1)), "waits in vain"))
        if is_phase and found:
            yield from found
        else:
            yield "", view.anew("")[1]


def _number(places: Collection[tuple[int, int]]) -> int:
    """Returns the number of a key which is that of these lanes, of so many each.

    Raises:
        ValueError: There is none.
    """
    fitting = (number for number in range(_NUMBERS) if all(number % lanes == lane for lanes, lane in places))
    if (number := next(fitting, None)) is None:
        raise ValueError(f"a key is not of one lane only: {sorted(places)}")
    return number
