"""One lane of one process, and what becomes of the world with it."""

from __future__ import annotations

from collections.abc import Iterator

from .scope import Rule, Setting
from .servers import Right
from .world import Batches, Call, Checkpoint, Lane, Note, Process, Selected, Transaction, World

Step = tuple[str, World]
"""What happens, in words, and what comes of it."""


class LaneView:
    """Where a lane is.

    Args:
        world: The state.
        number: The process's, from 0.
        place: The lane's, among those of the process.
        setting: The process's.
        off: The rules that are off.
    """

    def __init__(self, world: World, number: int, place: int, setting: Setting, off: frozenset[Rule]) -> None:
        self.world = world
        self.setting = setting
        self.off = off
        self.process = world.processes[number]
        self.lane = lane = self.process.lanes[place]
        self.right: Right = (lane.number, setting.lanes, self.process.token, lane.attempt)
        self.number = number
        self.place = place

    @property
    def note(self) -> Note:
        """What it is to note."""
        return Note(self.setting.lanes, self.setting.name, self.setting.place)

    @property
    def stale(self) -> bool:
        """Whether somebody else has bumped the fence."""
        return self.process.token != self.world.database.fence[0].token

    def told(self, what: str) -> str:
        """Returns what the lane does, in words."""
        settles = " (settles)" if self.lane.settles else ""
        return f"process {self.number + 1}, lane {self.lane.number}{settles}: {what}"

    def step(self, what: str, world: World | None = None, lane: Lane | None = None) -> Step:
        """Returns a step: its words, and the world with another state of the lane."""
        world, lane, place = world or self.world, lane or self.lane, self.place
        lanes = (*self.process.lanes[:place], lane, *self.process.lanes[place + 1 :])
        process = self.process._replace(lanes=lanes)
        if lane.phase == "over":
            process = _ended(process, self.setting, len(world.database.fence))
        return self.told(what), with_process(world, self.number, process)

    def anew(self, what: str, *strays: Call, world: World | None = None) -> Step:
        """Returns a step with which the lane starts anew; what its threads have asked for is on its way.

        A lane that is settled does not: its process begins the whole term anew.
        """
        world = with_strays(world or self.world, (*strays, *self.under_way()))
        if self.lane.settles:
            return self.told(what), end(world, self.number, self.setting, self.off)
        return self.step(what, world, Lane(self.lane.number, self.lane.channel))

    def fenced(self, world: World) -> Step:
        """Returns the step with which the process finds that somebody else leads."""
        words = self.told("finds that it is fenced, which ends the term")
        return words, end(world, self.number, self.setting, self.off)

    def under_way(self) -> Iterator[Call]:
        """Returns what the threads of a lane have asked for, or may have."""
        lane = self.lane
        if lane.publishing:
            yield Call("commit", (lane.channel, lane.epoch))
        elif lane.selected and lane.phase == "run" and not lane.spent:
            checkpoint = self.checkpoint(lane.selected)
            transaction = Transaction(lane.selected.rows, self.setting.place, checkpoint)
            yield Call("fill", (lane.channel, lane.epoch, transaction))
        if lane.advance:
            yield lane.advance.call
        elif lane.poison is not None:
            yield Call("park", (self.right, lane.poison))

    def checkpoint(self, selected: Selected) -> Checkpoint:
        """Returns the checkpoint that goes with a batch: all that may be in the log and not purged."""
        lane = self.lane
        # A purge that is out may fail.
        purging = lane.advance.call.arguments[1] if lane.advance else ()
        if "checkpoint lists what is being purged" in self.off:
            purging = ()
        locked = () if "checkpoint lists what is locked" in self.off else lane.locked
        return Checkpoint((*locked, *purging, *lane.finished), selected.batch)


def harvesting(setting: Setting, most: int) -> tuple[Lane, ...]:
    """Returns the lanes of a process that has none to settle; ``most`` is how many the fence has."""
    return tuple(Lane(number, setting.name * most + number) for number in range(setting.lanes))


def _ended(process: Process, setting: Setting, most: int) -> Process:
    """Returns a process of which a lane is over."""
    lanes = tuple(lane for lane in process.lanes if not (lane.settles and lane.phase == "over"))
    if process.draining and all(lane.phase == "over" for lane in lanes):
        return Process()
    return process._replace(lanes=lanes or harvesting(setting, most))


def lane_views(world: World, number: int, setting: Setting, off: frozenset[Rule]) -> Iterator[LaneView]:
    """Returns the lanes of a process."""
    for place in range(len(world.processes[number].lanes)):
        yield LaneView(world, number, place, setting, off)


def raised(world: World, view: LaneView, token: int) -> World:
    """Returns a world in which a lane's process has a token."""
    return with_process(world, view.number, world.processes[view.number]._replace(token=token))


def end(world: World, number: int, setting: Setting, off: frozenset[Rule]) -> World:
    """Ends a process's term; what its threads have asked for is on its way."""
    strays = [call for view in lane_views(world, number, setting, off) for call in view.under_way()]
    return with_process(with_strays(world, strays), number, Process())


def with_strays(world: World, strays: list[Call] | tuple[Call, ...]) -> World:
    """Returns a world with more calls that nobody waits for."""
    return world._replace(strays=(*world.strays, *strays)) if strays else world


def with_process(world: World, number: int, process: Process) -> World:
    """Returns a world with another state of one process."""
    return world._replace(processes=(*world.processes[:number], process, *world.processes[number + 1 :]))


def told(batches: Batches) -> str:
    """Returns batches in words."""
    return f"[{', '.join(str(list(batch.ids)) for batch in batches)}]"


def told_checkpoint(checkpoint: Checkpoint | None) -> str:
    """Returns a checkpoint in words."""
    if checkpoint is None:
        return "none"
    attempted = checkpoint.attempted
    return told(checkpoint.published) + (f" and perhaps {list(attempted.ids)}" if attempted else "")


def told_rows(selected: Selected | None) -> str:
    """Returns the rows of a batch in words."""
    return f"rows {list(selected.rows)}" if selected else "nothing"


def told_channel(world: World, number: int) -> str:
    """Returns a lane at the broker in words."""
    name, lane = divmod(number, len(world.database.fence))
    return f"lane {lane} by its other name" if name else f"lane {lane}"
