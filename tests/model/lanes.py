"""What lanes do one thing after the other: acquire, settle, and deliver at least once.

The order is that of ``outbox_core.delivery.recovery``: enter, open, look at the checkpoint of the last
attempt, read which of the attempt's rows are in the outbox, find which of these are in the log, purge what
the checkpoint says is there; write the checkpoint anew, with the rows that were found or could not be purged,
note that the lane transacts, and purge ("clean") what was found. Where another name is noted, that is opened
first, and the own one when it is known what is in the log. To settle a lane is to do so under the name that
is noted until nothing is left, and to delete the note. What a lane makes of an answer belongs to the step in
which the server carries out what was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .batches import run
from .broker import FENCED
from .lane_view import LaneView, Step, harvesting, lane_views, raised, told, told_checkpoint, told_rows
from .names import fresh
from .scope import Rule, Scope
from .servers import LOST, Servers
from .world import NOTHING, ONCE, UNRAISED, Call, Checkpoint, Lane, Note, Phase, Rows, Wish, World

_PURGE: tuple[Phase, ...] = ("purge", "empty", "note", "clean")


class Lanes:
    """The steps of the lanes of all processes.

    Args:
        scope: What is explored.
        off: The rules that are off.
        servers: What the lanes call.
    """

    def __init__(self, scope: Scope, off: frozenset[Rule], servers: Servers) -> None:
        self.settings = scope.settings
        self.limits = scope.limits
        self.keys = scope.keys
        self.off = off
        self.servers = servers

    def begin(self, world: World, number: int) -> tuple[Lane, ...]:
        """Returns the lanes with which a process begins to lead: those to settle, if there are any."""
        setting = self.settings[number]
        fence, same = world.database.fence, setting.lanes if setting.once else 0
        noted = [lane for lane, row in enumerate(fence) if row.noted and row.noted.lanes != same]
        if ("settle former lanes" if setting.once else "settle before at-least-once") in self.off:
            noted = []
        former = tuple(Lane(lane, settles=True) for lane in noted)
        if former and "settle before the first selection" not in self.off:
            return former
        return former + harvesting(setting, len(fence))

    def lane_views(self, world: World) -> Iterator[LaneView]:
        """Returns the lanes of all processes."""
        for number, setting in enumerate(self.settings):
            yield from lane_views(world, number, setting, self.off)

    def steps(self, world: World) -> Iterator[Step]:
        """Returns what lanes may do next."""
        for view in self.lane_views(world):
            if view.lane.phase == "run":
                yield from run(view, self.servers, self.limits)
            elif view.lane.phase == "mark" and view.process.draining:
                yield view.step("is drained", lane=view.lane._replace(phase="over"))
            elif view.lane.phase == "send":
                yield self._send(view)
            elif view.lane.phase == "empty" and view.lane.spent:
                yield view.anew("needs a new producer, and starts anew")
            elif call := self.call(view):
                yield from self._execute(view, call)

    def call(self, view: LaneView) -> Call | None:
        """Returns what a lane asks of a server next."""
        lane, right = view.lane, view.right
        if lane.phase == "mark" and not self.servers.eligible(view.world, right, Wish(1, ()), ()):
            return None
        if lane.phase == "empty" and lane.spent:
            return None
        calls: dict[Phase, tuple[str, tuple[Any, ...]]] = {
            "enter": ("enter", right[:3]),
            "recall": ("recall", (lane.number,)),
            "former": ("open", (self._noted_at(view)[0],)),
            "open": ("open", (lane.channel,)),
            "look": ("look", self._noted_at(view)),
            "raise": ("bump", (view.setting.lanes,)),
            "read": ("read", (lane.attempted,)),
            "find": ("find", (*self._noted_at(view), lane.attempted, lane.unsure)),
            "purge": ("advance", (right, lane.known, NOTHING)),
            "empty": ("freshen", (lane.channel, lane.epoch, view.setting.place, self._left(lane))),
            "note": ("set_transactional", (right, self._note(view))),
            "clean": ("advance", (right, lane.found, NOTHING)),
            "end": ("set_transactional", (right, None)),
            "clear": ("advance", (right, (lane.selected.batch,) if lane.selected else (), NOTHING)),
        }
        if lane.phase == "mark":
            return Call("mark", (right, fresh(view.world), 1))
        return Call(*calls[lane.phase]) if lane.phase in calls else None

    def _execute(self, view: LaneView, call: Call) -> Iterator[Step]:
        outcome = self.servers.execute(view.world, call)
        if outcome is not None:
            yield self.answered(view, call, *outcome)

    def answered(self, view: LaneView, call: Call, after: World, answer: Any) -> Step:
        """Returns the step in which a server carries out a call, and the lane goes on."""
        if answer is LOST:
            return view.fenced(after)
        if answer is FENCED:
            return view.anew("is fenced by the broker, and starts anew", world=after)
        if refusal := self._refusal(view, answer):
            return view.step(refusal, after, view.lane._replace(phase="refused"))
        words, lane = self._heeded(view, answer)
        phase = self._next(view, lane)
        if phase in ("run", "over"):
            lane = lane._replace(noted=None)
        words, after = view.step(words, after, lane._replace(phase=phase))
        return words, raised(after, view, answer) if call.name == "bump" else after

    def _refusal(self, view: LaneView, answer: Any) -> str:
        """Returns why a lane does not start, empty if it does."""
        if view.lane.phase != "look":
            return ""
        if answer is None and view.lane.noted and self._refuses(view.lane):
            return "finds the checkpoint forgotten, and refuses"
        return ""

    def _left(self, lane: Lane) -> Checkpoint:
        locked = () if "recovery lists what is locked" in self.off else lane.locked
        return Checkpoint((*locked, *lane.found))

    def _note(self, view: LaneView) -> Note:
        """Returns what a lane notes: one that is settled, only where its checkpoint is now."""
        noted = view.lane.noted
        return noted._replace(place=view.setting.place) if view.lane.settles and noted else view.note

    def _noted_at(self, view: LaneView) -> tuple[int, int]:
        """Returns the channel and the place of the checkpoint that is noted, else of the lane's own."""
        noted = view.lane.noted or view.note
        if "heed the former sender's checkpoint" in self.off and not view.lane.settles:
            noted = noted._replace(name=view.setting.name)
        place = view.setting.place if "read the checkpoint where it is noted" in self.off else noted.place
        return noted.name * len(view.world.database.fence) + view.lane.number, place

    def _channel(self, view: LaneView, lane: Lane) -> int:
        """Returns where a lane publishes: one that is settled, where it did."""
        if not lane.settles or not lane.noted:
            return lane.channel
        return lane.noted.name * len(view.world.database.fence) + lane.number

    def _next(self, view: LaneView, lane: Lane) -> Phase:
        """Returns what a lane does after its present phase."""
        if lane.phase in ("enter", "mark", "clear") and not (view.setting.once or lane.settles):
            return "send" if lane.phase == "mark" and lane.selected else "mark"
        waits = lane.settles and "settling waits for locked rows" not in self.off
        order = self._order(lane, view.setting.name)
        for phase in order[order.index(lane.phase) + 1 :]:
            if phase == "end" and lane.locked and waits:
                return "purge"
            if self._needed(phase, lane, view):
                return phase
        return "over" if lane.settles else "run"

    def _order(self, lane: Lane, name: int) -> list[Phase]:
        """Returns the phases in which a lane is acquired under a name, or settled."""
        if lane.settles:
            return ["enter", "recall", "former", "look", "read", "find", *_PURGE, "end"]
        order: list[Phase] = ["enter", "recall", "open", "look", "read", "find", *_PURGE]
        if "init before checkpoint" in self.off:
            order = ["enter", "recall", "look", "read", "find", "open", *_PURGE]
        if "purge before emptying the checkpoint" in self.off:
            order = ["enter", "recall", "open", "look", "read", "find", "empty", "purge", "note", "clean"]
        if lane.noted and lane.noted.name != name and "heed the former sender's checkpoint" not in self.off:
            order = ["enter", "recall", "former", "look", "read", "find", "open", *_PURGE]
        if "raise the fence before the checkpoint is read" in self.off:
            order.remove("enter")
            look = order.index("look") + 1
            order[look:look] = ["raise", "enter"]
        if "open the former sender" in self.off:
            order = [phase for phase in order if phase != "former"]
        if "note before the first publish" in self.off:
            order.remove("note")
        return order

    def _needed(self, phase: Phase, lane: Lane, view: LaneView) -> bool:
        noted = lane.noted
        match phase:
            case "read":
                needed = lane.attempted is not None
            case "find":
                needed = bool(lane.unsure)
            case "raise":
                needed = view.process.token == UNRAISED
            case "purge" if "fence before the checkpoint is written" in self.off:
                needed = bool(lane.known)
            case "recall":
                needed = True
            case "note" if not lane.settles or noted:
                same = self._note(view)
                needed = not noted if "note another name or place" in self.off else noted != same
            case "clean":
                needed = bool(lane.found)
            case _:
                needed = phase == "end" or not lane.settles or noted is not None
        return needed

    def _refuses(self, lane: Lane) -> bool:
        if lane.settles:
            return "refuse to settle by a forgotten checkpoint" not in self.off
        return "refuse a forgotten checkpoint" not in self.off

    def _send(self, view: LaneView) -> Step:
        rows = view.lane.selected.rows if view.lane.selected else ()
        if view.stale and "excuse stale copies" not in self.off:
            # At-least-once delivery allows a lost leader a stale copy, whatever the new leader's mode.
            rows = tuple(row for row in rows if view.world.log[row] < ONCE)
        words, lane = f"sends {told_rows(view.lane.selected)}", view.lane._replace(phase="clear")
        return view.step(words, self.servers.send(view.world, rows), lane)

    def _heeded(self, view: LaneView, answer: Any) -> tuple[str, Lane]:
        """Returns what was answered, in words, and what a lane keeps of it."""
        lane = view.lane
        match lane.phase:
            case "enter":
                words, lane = "enters", lane._replace(attempt=answer)
            case "recall":
                words, lane = "looks at its note", lane._replace(noted=answer)
                lane = lane._replace(channel=self._channel(view, lane))
            case "former":
                words = "opens the former producer"
                lane = lane._replace(epoch=answer) if lane.settles else lane
            case "open":
                words, lane = "opens its producer", lane._replace(epoch=answer)
            case "look":
                published, attempted = answer or Checkpoint()
                words = f"reads the checkpoint {told_checkpoint(answer)}"
                lane = lane._replace(known=published, attempted=attempted)
            case "raise":
                words = "bumps the fence"
            case "empty":
                words = f"commits the checkpoint {told((*lane.locked, *lane.found))}"
            case "note":
                words = "notes that it transacts"
            case "end":
                words = "deletes the note"
            case _:
                words, lane = self._changed(lane, answer)
        return words, lane

    def _changed(self, lane: Lane, answer: Any) -> tuple[str, Lane]:
        """Returns the same where rows were looked for, marked or purged."""
        match lane.phase:
            case "read":
                words = f"reads rows {list(answer)} of the attempt"
                lane = lane._replace(unsure=answer, attempted=lane.attempted if answer else None)
            case "find":
                words = f"finds rows {list(answer)} in the log"
                lane = self._found(lane, answer)
            case "purge":
                words, left = f"purges {told(lane.known)}", answer.locked
                words += f" but for {told(left)}" if left else ""
                lane = lane._replace(known=left if lane.settles else (), locked=left)
            case "clean":
                words, locked = f"purges {told(lane.found)}", (*lane.locked, *answer.locked)
                words += f" but for {told(answer.locked)}" if answer.locked else ""
                lane = lane._replace(known=locked if lane.settles else (), found=(), locked=locked)
            case "mark":
                words, lane = f"marks {told_rows(answer)}", lane._replace(selected=answer)
            case _:
                words, lane = f"purges {told_rows(lane.selected)}", lane._replace(selected=None)
        return words, lane

    def _found(self, lane: Lane, rows: Rows) -> Lane:
        """Returns a lane that takes rows of the attempt for published, and the others for not published."""
        found = self.servers.outbox.batch(rows)
        if found and lane.attempted:
            batch = found.batch._replace(newest=lane.attempted.newest)
            if "list what is found before its purge" in self.off:
                lane = lane._replace(known=(*lane.known, batch))
            else:
                lane = lane._replace(found=(batch,))
        return lane._replace(attempted=None, unsure=())
