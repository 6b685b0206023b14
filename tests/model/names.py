"""Names of batches: one is as good as another, so a fresh one is any that is not to be found anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from .world import Batch, Checkpoint, Lane, World


def fresh(world: World) -> int:
    """Returns the lowest name that appears nowhere; that it may have been used long ago cannot matter."""
    used = {*world.database.rows, *world.disk.rows, *_asked(world)}
    lanes = (lane for process in world.processes for lane in process.lanes)
    used.update(batch.name for lane in lanes for batch in _of_lane(lane))
    used.update(batch.name for batch in _at_the_broker(world))
    name = 1
    while name in used:
        name += 1
    return name


def _asked(world: World) -> Iterator[int]:
    """Returns the names in calls to the database."""
    calls = [lane.advance.call for process in world.processes for lane in process.lanes if lane.advance]
    for name, arguments in (*calls, *world.strays):
        if name == "advance":
            _, finished, wish = arguments
            yield from (batch.name for batch in (*finished, *wish.pending))
            yield wish.name
        elif name == "mark":
            yield arguments[1]


def _at_the_broker(world: World) -> Iterator[Batch]:
    for channel in world.channels:
        for checkpoint in channel.checkpoints:
            yield from checkpoint or ()
        for transaction in (channel.transaction, channel.late):
            yield from transaction.checkpoint if transaction else ()
    for name, arguments in world.strays:
        if name == "fill":
            yield from arguments[-1].checkpoint
        elif name == "freshen":
            yield from arguments[-1]


def _of_lane(lane: Lane) -> Checkpoint:
    own = [selected.batch for selected in (lane.publishing, lane.selected) if selected]
    return (*lane.known, *lane.finished, *lane.locked, *own)
