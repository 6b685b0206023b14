"""Names of marked batches: one is as good as another, so a fresh one is any that is found nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from .world import World


def fresh(world: World) -> int:
    """Returns the lowest name that appears nowhere; that it may have been used long ago cannot matter."""
    used = {*world.database.rows, *world.disk.rows, *_asked(world)}
    lanes = (lane for process in world.processes for lane in process.lanes)
    used.update(lane.selected.batch.name for lane in lanes if lane.selected)
    name = 1
    while name in used:
        name += 1
    return name


def _asked(world: World) -> Iterator[int]:
    """Returns the names in calls to the database that nobody waits for."""
    for name, arguments in world.strays:
        if name == "advance":
            yield from (batch.name for batch in arguments[1])
        elif name == "mark":
            yield arguments[1]
