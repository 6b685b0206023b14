"""What may go wrong, and what else does not happen by itself; each so many times as the scope says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, combinations

from .batches import advanced, committed
from .broker import with_channel, with_checkpoint, with_committed
from .lane_view import LaneView, Step, end, harvesting, told_channel, with_process, with_strays
from .lanes import Lanes
from .scope import Fault
from .world import Advance, Call, Lane, Process, Rows, World

_BROKER = ("open", "fill", "commit", "freshen")
"""Calls that a crash of the database does not concern."""


def crash(lanes: Lanes, world: World) -> Iterator[Step]:
    """A process is no more; what it has asked for is on its way."""
    for number, (process, setting) in enumerate(zip(world.processes, lanes.settings, strict=True)):
        if process.token:
            yield f"process {number + 1} crashes", end(world, number, setting, lanes.off)


def doubt(lanes: Lanes, world: World) -> Iterator[Step]:
    """A call is not answered: it is carried out and its answer lost, or it comes late, or never.

    That it is carried out at once is one way of coming late.
    """
    for view in lanes.lane_views(world):
        lane = view.lane
        if lane.phase != "run":
            if lane.phase != "look" and (call := lanes.call(view)):
                yield view.anew(f"waits in vain for '{call.name}', and starts anew", call)
        elif lane.publishing and "unknown never purges" in lanes.off:
            after = with_strays(world, (Call("commit", (lane.channel, lane.epoch)),))
            yield view.step("takes an unknown commit for done", after, committed(lane, lane.publishing))
        elif lane.publishing or lane.selected or lane.advance or lane.poison is not None:
            yield view.anew("waits in vain, and starts anew")


def bump(lanes: Lanes, world: World) -> Iterator[Step]:
    """Somebody has asked for a token, which comes late, or never, and to nobody."""
    for lanes_then in {setting.lanes for setting in lanes.settings}:
        call = Call("bump", (lanes_then,))
        yield (
            f"a bump for {lanes_then} lanes is on its way, and nobody waits for it",
            with_strays(world, (call,)),
        )


def abort(lanes: Lanes, world: World) -> Iterator[Step]:
    """A record is refused, so its transaction is aborted for sure, and its rows are selected anew."""
    for view in lanes.lane_views(world):
        for rows, after, back in _aborted(lanes, view):
            yield view.step(f"aborts rows {list(rows)} because of a record", after, back)


def park(lanes: Lanes, world: World) -> Iterator[Step]:
    """The same, and the key of the record is to be parked: it is the first of its key in the batch."""
    for view in lanes.lane_views(world):
        for rows, after, back in _aborted(lanes, view):
            for number, row in enumerate(rows):
                if not any(lanes.keys[other] == lanes.keys[row] for other in rows[:number]):
                    words = f"aborts rows {list(rows)} because of row {row}, to park it"
                    yield view.step(words, after, back._replace(poison=row))


def _aborted(lanes: Lanes, view: LaneView) -> Iterator[tuple[Rows, World, Lane]]:
    lane, channel = view.lane, view.world.channels[view.lane.channel]
    if not lane.publishing or lane.epoch != channel.epoch:
        return
    if channel.transaction and not channel.transaction.prepared:
        after = with_channel(view.world, lane.channel, channel._replace(transaction=None))
        back = lane._replace(publishing=None, last=-1)
        if "abandon what is selected behind" not in lanes.off:
            back = back._replace(selected=None, advance=in_vain(lane))
        yield lane.publishing.rows, after, back


def lock(lanes: Lanes, world: World) -> Iterator[Step]:
    """Others have locked rows that are to be deleted."""
    outbox = lanes.servers.outbox
    for view in lanes.lane_views(world):
        lane = view.lane
        if not view.setting.once:
            continue
        finished = (
            lane.advance.call.arguments[1] if lane.advance else lane.known if lane.phase == "purge" else ()
        )
        rows = sorted(outbox.of(world.database.rows, finished))
        for locked in chain.from_iterable(combinations(rows, some) for some in range(1, len(rows) + 1)):
            if lane.advance:
                yield advanced(view, lanes.servers, lane.advance, frozenset(locked))
            elif call := lanes.call(view):
                outcome = lanes.servers.advance(world, *call.arguments, locked=frozenset(locked))
                yield lanes.answered(view, call, *outcome)


def timeout(_: Lanes, world: World) -> Iterator[Step]:
    """An open transaction takes too long: the coordinator aborts it and fences its producer."""
    for number, channel in enumerate(world.channels):
        if channel.transaction and not channel.transaction.prepared:
            after = channel._replace(transaction=None, epoch=channel.epoch + 1)
            words = f"the transaction of {told_channel(world, number)} times out"
            yield words, with_channel(world, number, after)


def loss(_: Lanes, world: World) -> Iterator[Step]:
    """The broker loses an open transaction, and does not know of it when it shall be committed."""
    for number, channel in enumerate(world.channels):
        if channel.transaction and not channel.transaction.prepared:
            after = channel._replace(transaction=None)
            words = f"the broker loses the transaction of {told_channel(world, number)}"
            yield words, with_channel(world, number, after)


def tear(lanes: Lanes, world: World) -> Iterator[Step]:
    """The coordinator crashes after it was asked to commit: each partition is committed or aborted.

    That of the checkpoint as well. Nobody is told; the client finds its producer fenced.
    """
    for number, channel in enumerate(world.channels):
        transaction = channel.transaction
        if not transaction or transaction.prepared:
            continue
        keys = sorted({lanes.keys[row] for row in transaction.rows})
        for some in chain.from_iterable(combinations(keys, size) for size in range(len(keys) + 1)):
            rows = tuple(row for row in transaction.rows if lanes.keys[row] in some)
            for checkpoint in (transaction.checkpoint, None):
                words = (
                    f"the broker tears the transaction of {told_channel(world, number)}: rows {list(rows)} "
                )
                words += f"are committed, the checkpoint is {'committed' if checkpoint else 'aborted'}"
                yield words, lanes.servers.prepare(world, number, rows, checkpoint)


def restart(lanes: Lanes, world: World) -> Iterator[Step]:
    """The database crashes and comes back; what was not durable is lost, or it is not."""
    after = world
    while cut := next((view for view in lanes.lane_views(after) if view.lane.advance), None):
        _, after = cut.anew("")
    after = after._replace(strays=tuple(call for call in after.strays if call.name in _BROKER))
    yield "the database crashes", after._replace(database=after.disk)
    if after.database != after.disk:
        yield "the database crashes, with all on the disk", after._replace(disk=after.database)


def forget(_: Lanes, world: World) -> Iterator[Step]:
    """The broker forgets a checkpoint."""
    for number, channel in enumerate(world.channels):
        for place, checkpoint in enumerate(channel.checkpoints):
            if checkpoint is not None:
                forgotten = with_committed(with_checkpoint(channel, place, None), place, None)
                after = with_channel(world, number, forgotten)
                yield f"the broker forgets the checkpoint of {told_channel(world, number)}", after


def age(lanes: Lanes, world: World) -> Iterator[Step]:
    """No fault: a lane that is settled starts anew, so that its checkpoint is written anew."""
    for view in lanes.lane_views(world):
        lane = view.lane
        busy = lane.publishing or lane.advance or lane.finished or lane.poison is not None
        if lane.phase == "run" and not busy:
            yield view.step("has grown old, and starts anew", lane=Lane(lane.number, lane.channel))


def rerun(lanes: Lanes, world: World) -> Iterator[Step]:
    """An engine runs the lanes of a term once more, in another process, while they still run in the first."""
    for process, setting in zip(world.processes, lanes.settings, strict=True):
        if not process.token or process.draining or any(lane.settles for lane in process.lanes):
            continue
        for other, idle in enumerate(world.processes):
            if not idle.token and lanes.settings[other] == setting:
                again = Process(process.token, harvesting(setting, len(world.database.fence)))
                yield f"process {other + 1} runs these lanes as well", with_process(world, other, again)


def in_vain(lane: Lane) -> Advance | None:
    """Returns the advance that is out, what it selects being of no use any more."""
    return lane.advance and lane.advance._replace(vain=True)


FAULTS: Mapping[Fault, Callable[[Lanes, World], Iterator[Step]]] = {
    "crash": crash,
    "doubt": doubt,
    "bump": bump,
    "abort": abort,
    "park": park,
    "lock": lock,
    "timeout": timeout,
    "loss": loss,
    "tear": tear,
    "restart": restart,
    "forget": forget,
    "age": age,
    "rerun": rerun,
}
"""What happens by the name of a fault."""
