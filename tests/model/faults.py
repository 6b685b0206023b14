"""What may go wrong, and what else does not happen by itself; each so many times as the scope says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, combinations, product

from .batches import advanced, committed, taken_back
from .broker import CONTRADICTED, DONE, FENCED, with_channel, with_checkpoint, with_committed
from .lane_view import LaneView, Step, end, harvesting, told_channel, told_rows, with_process, with_strays
from .lanes import Lanes
from .late_ends import with_copy
from .scope import Fault
from .world import COMPACTED, ONCE, Call, Lane, Process, Rows, Selected, World

_BROKER = ("open", "fill", "commit", "freshen", "end")
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
    """A record is refused, so its transaction is aborted for sure; some of its rows may go on at once."""
    for view in lanes.lane_views(world):
        for rows, after, back in _aborted(lanes, view):
            yield view.step(_words(rows, "a record", back), after, back)


def park(lanes: Lanes, world: World) -> Iterator[Step]:
    """The same, and the key of the record is to be parked: it is the first of its key in the batch."""
    for view in lanes.lane_views(world):
        for rows, after, back in _aborted(lanes, view) if view.lane.poison is None else ():
            on = back.selected.rows if back.selected else ()
            for number, row in enumerate(rows):
                alike = {other for other in rows if lanes.keys[other] == lanes.keys[row]}
                if alike.isdisjoint(rows[:number]) and alike.isdisjoint(on):
                    words = _words(rows, f"row {row}, to park it", back)
                    yield view.step(words, after, back._replace(poison=row))


def _aborted(lanes: Lanes, view: LaneView) -> Iterator[tuple[Rows, World, Lane]]:
    lane = view.lane
    outcome = lanes.servers.abort(view.world, lane.channel, lane.epoch) if lane.publishing else None
    if not lane.publishing or outcome is None:
        return
    after, answer = outcome
    # An abort that is contradicted ends like a commit that is.
    if answer is CONTRADICTED and "a contradiction is unknown" not in lanes.off:
        return
    back, batch = taken_back(lane, lanes.off), lane.publishing.batch
    yield lane.publishing.rows, after, back
    for rows in _going_on(lanes, lane.publishing.rows) if back.selected is None else ():
        ids = tuple(batch.ids[lane.publishing.rows.index(row)] for row in rows)
        yield lane.publishing.rows, after, back._replace(selected=Selected(batch._replace(ids=ids), rows))


def _going_on(lanes: Lanes, rows: Rows) -> Iterator[Rows]:
    """Yields parts of rows that contain, of each row, all earlier ones of its key."""
    if "what goes on has no gap in a key" in lanes.off:
        yield from chain.from_iterable(combinations(rows, some) for some in range(1, len(rows)))
        return
    keys = [[row for row in rows if lanes.keys[row] == key] for key in {lanes.keys[row] for row in rows}]
    for counts in product(*(range(len(each) + 1) for each in keys)):
        part = {row for each, count in zip(keys, counts, strict=True) for row in each[:count]}
        if 0 < len(part) < len(rows):
            yield tuple(row for row in rows if row in part)


def _words(rows: Rows, culprit: str, back: Lane) -> str:
    return f"aborts rows {list(rows)} because of {culprit}, and goes on with {told_rows(back.selected)}"


def lock(lanes: Lanes, world: World) -> Iterator[Step]:
    """Others have locked rows that are to be deleted."""
    outbox = lanes.servers.outbox
    for view in lanes.lane_views(world):
        lane = view.lane
        if not view.setting.once:
            continue
        purged = {"purge": lane.known, "clean": lane.found}.get(lane.phase, ())
        finished = lane.advance.call.arguments[1] if lane.advance else purged
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


def tear(lanes: Lanes, world: World, *, cuts: bool = False) -> Iterator[Step]:
    """The coordinator crashes after it was asked to commit: each partition is committed or aborted.

    That of the checkpoint as well. Nobody is told; the client finds that its transaction is not open.
    """
    for number, channel in enumerate(world.channels):
        transaction = channel.transaction
        if not transaction or transaction.prepared:
            continue
        for rows in _parts(lanes, transaction.rows, cuts=cuts):
            for checkpoint in (transaction.checkpoint, None):
                words = (
                    f"the broker tears the transaction of {told_channel(world, number)}: rows {list(rows)} "
                )
                words += f"are committed, the checkpoint is {'committed' if checkpoint else 'aborted'}"
                yield words, lanes.servers.prepare(world, number, rows, checkpoint)


def cut(lanes: Lanes, world: World) -> Iterator[Step]:
    """The same, and of each partition it may be a part that is committed: what was produced first."""
    return tear(lanes, world, cuts=True)


def _parts(lanes: Lanes, rows: Rows, *, cuts: bool) -> Iterator[Rows]:
    """Returns each choice of rows of which every key has all or none, or those that come first."""
    ways = []
    for key in sorted({lanes.keys[row] for row in rows}):
        of_key = tuple(row for row in rows if lanes.keys[row] == key)
        sizes = range(len(of_key) + 1) if cuts else (0, len(of_key))
        ways.append([of_key[:size] for size in sizes])
    for parts in product(*ways):
        yield tuple(sorted(chain.from_iterable(parts), key=rows.index))


def repeat(lanes: Lanes, world: World) -> Iterator[Step]:
    """The request to end a transaction is sent again, and answered well; the first copy is on its way.

    It may be that of a batch, to commit or to abort it; of the checkpoint of a recovery; of the transaction
    that a producer aborts as it begins. The producer has ended then.
    """
    for view in lanes.lane_views(world):
        lane = view.lane
        if lane.publishing:
            yield from _repeated(lanes, view)
        elif lane.phase in ("open", "former", "empty") and (call := lanes.call(view)):
            outcome = lanes.servers.execute(world, call)
            if outcome is None or outcome[1] is FENCED:
                continue
            after, answer = outcome
            commits, epoch = (True, lane.epoch) if lane.phase == "empty" else (False, answer)
            after = with_copy(after, call.arguments[0], epoch, commits=commits)
            told, after = lanes.answered(view, call, after, answer)
            if lane.phase != "former" or lane.settles:  # else that is of no more use
                after = _with_spent(lanes, after, view)
            yield f"{told}, {'which' if commits else 'whose first abort'} is sent twice", after


def _repeated(lanes: Lanes, view: LaneView) -> Iterator[Step]:
    """Returns the ends of a batch's transaction that are sent twice."""
    lane = view.lane
    after, answer = lanes.servers.commit(view.world, lane.channel, lane.epoch)
    if lane.publishing and answer is DONE:
        copied = with_copy(after, lane.channel, lane.epoch, commits=True)
        spent = _spent(lanes, committed(lane, lane.publishing))
        yield view.step(f"has {told_rows(lane.publishing)} committed, which is sent twice", copied, spent)
    for rows, after, back in _aborted(lanes, view):
        copied = with_copy(after, lane.channel, lane.epoch, commits=False)
        yield view.step(f"{_words(rows, 'a record', back)}, which is sent twice", copied, _spent(lanes, back))


def _spent(lanes: Lanes, lane: Lane) -> Lane:
    """Returns a lane whose producer has ended."""
    return lane._replace(spent="end a producer after an end in doubt" not in lanes.off)


def _with_spent(lanes: Lanes, world: World, view: LaneView) -> World:
    now = LaneView(world, view.number, view.place, view.setting, lanes.off)
    return now.step("", lane=_spent(lanes, now.lane))[1]


def compact(lanes: Lanes, world: World) -> Iterator[Step]:
    """No fault: the log has two records of a key, and keeps the later one."""
    for row, key in enumerate(lanes.keys):
        later = (other for other in range(row + 1, len(lanes.keys)) if lanes.keys[other] == key)
        if world.log[row] == ONCE and any(world.log[other] == ONCE for other in later):
            log = (*world.log[:row], COMPACTED, *world.log[row + 1 :])
            yield f"the broker compacts the log: row {row} is no longer in it", world._replace(log=log)


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
    "cut": cut,
    "repeat": repeat,
    "compact": compact,
    "restart": restart,
    "forget": forget,
    "age": age,
    "rerun": rerun,
}
"""What happens by the name of a fault."""
