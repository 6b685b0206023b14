"""What servers carry out: the model's steps with the answers that a trace has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .batches import advanced, run
from .broker import DONE
from .faults import FAULTS
from .lane_view import LaneView, Step, harvesting, with_process
from .protocol import freed
from .seen import Seen
from .servers import LOST
from .traces import Asked
from .world import NOTHING, Checkpoint, Lane, Process, World

Steps = Iterable[Step]

PHASES = {
    "enter": ("enter",),
    "recall": ("recall",),
    "open": ("open", "former"),
    "look": ("look",),
    "read": ("read",),
    "find": ("find",),
    "purge": ("purge", "clean"),
    "freshen": ("empty",),
    "note": ("note", "end"),
}
"""What a lane is about to do as it makes a call of its recovery."""
_TWICE = "is sent twice"


class Answers(Seen):
    """The model's servers, and what its lanes make of their answers."""

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
        view = self.view(world, call)
        if view is None:
            return
        if call.do in PHASES:
            yield from self._recover(view, call)
            return
        once = world._replace(faults=1)
        words = {"commit": "has", "park": "parks", "drained": "is drained"}
        if call.do == "advance":
            yield from self._advance(view, call)
        elif call.do == "abort":
            yield from self._abort_and_fill(view) if again else self._aborts(view, call)
        elif call.do == "commit" and call.spent:
            yield from self.only(view, FAULTS["repeat"](self.lanes, once), "has", twice=True)
        elif call.do == "park" and view.lane.poison is None:
            yield "", world
        elif call.do == "publish":
            yield from self._sends(view, call)
        else:
            yield from self.only(view, run(view, self.servers, ()), words[call.do])

    def late(self, world: World) -> Iterator[Step]:
        """Returns what becomes of calls that nobody waits for, and what operators may do."""
        for place, call in enumerate(world.strays):
            yield from self.model.stray(world, place, call)
        for head in world.database.parked:
            yield f"row {head}, and its key, is freed", freed(world, head)

    def _aborts(self, view: LaneView, call: Asked) -> Iterator[Step]:
        """Yields the steps after which the batch is selected anew, or goes on without its last rows."""
        steps = FAULTS["repeat" if call.spent else "abort"](self.lanes, view.world._replace(faults=1))
        for told, after in self.only(view, steps, "aborts", twice=call.spent):
            if "goes on with nothing" in told:
                yield told, after
                yield told, self.goes_on(self.at(after, view.number, view.place), view.lane)

    def goes_on(self, view: LaneView, before: Lane) -> World:
        """Returns the state in which a lane takes its batch again; it may leave the last rows out."""
        batches = (before.publishing, before.selected)
        rows = tuple(row for batch in batches if batch for row in batch.rows)
        again = self.servers.outbox.batch(rows) or before.publishing or before.selected
        return view.step("", lane=view.lane._replace(selected=again))[1]

    def begun(self, world: World, call: Asked) -> Iterator[World]:
        """Yields the states in which a batch is being published, and nothing of it was sent yet.

        What it leaves of its selection is selected anew, or is the next batch.
        """
        view = self.view(world, call)
        if view is None or view.lane.publishing or view.lane.selected is None or view.lane.spent:
            return
        batch = self.batch_of(call)
        lane = view.lane._replace(publishing=batch, selected=None)
        yield view.step("", lane=lane)[1]
        if left := self.servers.outbox.batch(view.lane.selected.rows[len(batch.rows) :]):
            yield view.step("", lane=lane._replace(selected=left))[1]

    def aborted_unsent(self, world: World, call: Asked) -> World:
        """Returns the state in which a transaction ends of which nothing was sent."""
        view = self.view(world, call)
        if view is None or not call.spent:
            return world
        return view.step("", lane=view.lane._replace(spent=True))[1]

    def _sends(self, view: LaneView, call: Asked) -> Iterator[Step]:
        """Yields the step in which a batch that was begun is sent."""
        lane = view.lane
        if lane.publishing is None:
            return
        unbegun = view.step("", lane=lane._replace(publishing=None, selected=lane.publishing))[1]
        view = self.at(unbegun, view.number, view.place)
        if not self.same_checkpoint(view.world, view.checkpoint(self.batch_of(call)), call.asks):
            return
        for told, after in self.only(view, run(view, self.servers, ()), "sends"):
            sent = self.at(after, view.number, view.place)
            yield told, sent.step("", lane=sent.lane._replace(selected=lane.selected))[1]

    def _abort_and_fill(self, view: LaneView) -> Iterator[Step]:
        lane, transaction = view.lane, view.world.channels[view.lane.channel].transaction
        outcome = self.servers.abort(view.world, lane.channel, lane.epoch)
        if lane.publishing and transaction and outcome and outcome[1] is DONE:
            again = self.servers.fill(outcome[0], lane.channel, lane.epoch, transaction)
            if again:
                words = f"aborts rows {list(lane.publishing.rows)} because of a record"
                yield view.told(words), again[0]

    def only(self, view: LaneView, steps: Steps, words: str, *, twice: bool = False) -> Iterator[Step]:
        """Returns those steps of a lane whose words begin so, and whose request is sent twice or not."""
        for told, after in steps:
            if told.startswith(view.told(words)) and (_TWICE in told) == twice:
                yield told, after

    def _bump(self, world: World, call: Asked) -> Iterator[Step]:
        token = call.answer["token"] if call.answer else world.database.fence[0].token + 1
        if world.processes[call.who].token or token <= world.database.fence[0].token:
            return
        world, _ = self.servers.bump(world, call.asks["lanes"])
        fence = tuple(row._replace(token=token) for row in world.database.fence)
        database = world.database._replace(fence=fence)
        world = world._replace(database=database, disk=database)
        process = self.only_followed(Process(token, self.lanes.begin(world, call.who)))
        if not process.lanes:  # others are settled before
            own = harvesting(self.settings[call.who], len(fence))
            process = self.only_followed(process._replace(lanes=own))
        words = f"process {call.who + 1} is elected and bumps the fence"
        yield words, with_process(world, call.who, process)

    def _recover(self, view: LaneView, call: Asked) -> Iterator[Step]:
        lane, answer = view.lane, call.answer
        if lane.phase not in PHASES[call.do]:
            yield from self._unneeded(view, call)
            return
        asked = self.lanes.call(view)
        if asked is None or not self._as_asked(view, call):
            return
        if call.spent and call.do in ("open", "freshen"):
            steps = FAULTS["repeat"](self.lanes, view.world._replace(faults=1))
            yield from self.only(view, steps, "", twice=True)
            return
        outcome = self.servers.execute(view.world, asked)
        if call.do == "purge" and answer:
            locked = frozenset(self.there(view.world, answer.get("locked", ())))
            outcome = self.servers.advance(view.world, *asked.arguments, locked=locked)
        if outcome is not None and self._as_answered(view.world, call, outcome[1]):
            yield self.lanes.answered(view, asked, *outcome)

    def _unneeded(self, view: LaneView, call: Asked) -> Iterator[Step]:
        """Returns the step of a call that concerns no row of the key: the model has none for it."""
        world = view.world
        if call.do == "find" and not self.seen.rows(call.asks["rows"]):
            yield "", world
        elif call.do == "purge" and not self.there(world, call.asks["finished"]):
            yield from self._purges_nothing(view, call)

    def _purges_nothing(self, view: LaneView, call: Asked) -> Iterator[Step]:
        lost = self.servers.advance(view.world, view.right, (), NOTHING)[1] is LOST
        if lost == call.lost or call.answer is None:
            yield view.fenced(view.world) if lost else ("", view.world)

    def _as_asked(self, view: LaneView, call: Asked) -> bool:
        """Returns whether the model's lane asks for the same rows."""
        world, lane = view.world, view.lane
        match call.do:
            case "purge":
                purged = lane.known if lane.phase == "purge" else lane.found
                return self.left(world, purged) == self.there(world, call.asks["finished"])
            case "find":
                return lane.unsure == self.seen.rows(call.asks["rows"])
            case "note":
                return (lane.phase == "end") == (call.asks["noted"] is None)
            case "freshen":
                return self.same_checkpoint(world, Checkpoint((*lane.locked, *lane.found)), call.asks)
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
            same = answer is not None and self.same_checkpoint(world, answer, told)
        elif call.do in ("read", "find"):
            same = answer == self.seen.rows(told["rows"])
        return same

    def _advance(self, view: LaneView, call: Asked) -> Iterator[Step]:
        world, advance = view.world, view.lane.advance
        if advance is None:
            yield from self._purges_nothing(view, call)
            return
        answer = call.answer
        locked = frozenset(self.there(world, answer.get("locked", ()) if answer else ()))
        _, found = self.servers.advance(world, *advance.call.arguments, locked=locked)
        if answer is not None and (found is LOST) != call.lost:
            return
        if answer is not None and found is not LOST:
            rows = self.seen.rows([row for row, _ in answer["rows"]])
            unused = view.lane.spent and not advance.call.arguments[2].limit
            if not unused and (found.selected.rows if found.selected else ()) != rows:
                return
        yield advanced(view, self.servers, advance, locked)
