"""What the model sees of a trace: the lanes that a key has had, and its rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .lane_view import LaneView, end
from .lanes import Lanes
from .protocol import ExactlyOnce
from .scope import Fault, Scope, Setting
from .servers import Servers
from .traces import Asked, Projection, lanes_of
from .world import FREE, Batch, Checkpoint, Process, Selected, World

_NUMBERS = 27720
"""The least number that all up to 12 divide."""


class Seen:
    """Some lanes of several processes, and the rows of one key.

    Args:
        calls: The calls that concern the lanes.
        key: The key.
        menu: The faults that may happen.

    Attributes:
        seen: What the trace has of these rows.
        settings: Those of the processes.
        model: The model of them.
        servers: Its servers.
        lanes: Its lanes.
    """

    def __init__(self, calls: Sequence[Asked], key: str, menu: frozenset[Fault]) -> None:
        self.seen = Projection(calls, key)
        self._followed = {call.lane for call in calls}
        rows = len(self.seen.ids)
        lanes = {call.who: call.asks["lanes"] for call in calls if call.do == "bump"}
        processes = range(1 + max((call.who for call in calls), default=0))
        self.settings = tuple(Setting(lanes=lanes.get(who, 1)) for who in processes)
        number = _number(lanes_of(calls, key))
        scope = Scope("", self.settings, (number,) * rows, frozenset(range(rows)), menu=menu)
        self.model = ExactlyOnce(scope)
        self.servers = Servers(scope, frozenset())
        self.lanes = Lanes(scope, frozenset(), self.servers)

    def first(self) -> World:
        """Returns the state in which nobody has ever led."""
        return self.model.first()._replace(faults=1, terms=0)

    def wrong(self, world: World) -> str:
        """Returns the property that is broken."""
        return self.model.wrong(world)

    def tidy(self, world: World) -> World:
        """Has the broker complete what is prepared, and forgets calls that are of no effect any more."""
        while step := next(iter(self.model.coordinate(world)), None):
            _, world = step
        lanes = {lane.number for process in world.processes for lane in process.lanes}
        if not lanes <= self._followed:
            world = world._replace(processes=tuple(map(self.only_followed, world.processes)))
        if not world.strays:
            return world
        strays = {call for call in world.strays if not self.servers.vain(world, call)}
        return world._replace(strays=tuple(sorted(strays, key=repr)))

    def only_followed(self, process: Process) -> Process:
        """Returns a process without the lanes that are not followed: these have other keys only."""
        lanes = tuple(lane for lane in process.lanes if lane.number in self._followed)
        return process._replace(lanes=lanes)

    def view(self, world: World, call: Asked) -> LaneView | None:
        """Returns the lane that calls; ``None`` if there is none any more."""
        for place, lane in enumerate(world.processes[call.who].lanes):
            if lane.number == call.lane:
                return self.at(world, call.who, place)
        return None

    def at(self, world: World, who: int, place: int) -> LaneView:
        """Returns a lane of a process, by its place there."""
        return LaneView(world, who, place, self.settings[who], frozenset())

    def over(self, world: World, who: int) -> World:
        """Returns a state in which a process no longer leads."""
        return end(world, who, self.settings[who], frozenset()) if world.processes[who].token else world

    def batch_of(self, call: Asked) -> Selected:
        """Returns what a call publishes; maybe a batch without rows, as there are others in it."""
        rows = self.seen.rows(call.asks["rows"])
        return self.servers.outbox.batch(rows) or Selected(Batch((), -2 - call.asks["rows"][0]), ())

    def same_checkpoint(self, world: World, ours: Checkpoint, theirs: dict[str, Any]) -> bool:
        """Returns whether the model's checkpoint says the same of all rows that are not purged."""
        attempted = theirs["attempted"]
        if (ours.attempted is None) != (attempted is None):
            return False
        mine = self.left(world, (ours.attempted,) if ours.attempted else ())
        same = mine == self.there(world, (attempted,) if attempted else ())
        return same and self.left(world, ours.published) == self.there(world, theirs["published"])

    def left(self, world: World, batches: Sequence[Batch]) -> set[int]:
        """Returns the rows of the model's batches that are not purged; others do not matter."""
        return self.servers.outbox.of(world.database.rows, tuple(batches))

    def there(self, world: World, batches: Any) -> set[int]:
        """Returns the same of a trace's batches."""
        return {row for row in self.seen.of(batches) if world.database.rows[row] >= FREE}


def _number(places: Collection[tuple[int, int]]) -> int:
    """Returns the number of a key which is that of these lanes, of so many each.

    Raises:
        ValueError: There is none.
    """
    fitting = (number for number in range(_NUMBERS) if all(number % lanes == lane for lanes, lane in places))
    if (number := next(fitting, None)) is None:
        raise ValueError(f"a key is not of one lane only: {sorted(places)}")
    return number
