"""What a lane of exactly-once delivery does: batch after batch, one published while the next is selected.

As ``outbox_core.delivery.exactly_once`` decides, but at any time: what that does at once may here as well
come later.
"""

from __future__ import annotations

from collections.abc import Iterator

from .broker import CONTRADICTED, FENCED, Outcome
from .lane_view import LaneView, Step, told, told_checkpoint, told_rows
from .scope import Rule
from .servers import LOST, Servers
from .world import Advance, Batches, Call, Lane, Note, Selected, Wish


def run(view: LaneView, servers: Servers, limits: tuple[int, ...]) -> Iterator[Step]:
    """Returns what a lane may do next; ``limits`` are how many rows a selection may ask for."""
    lane = view.lane
    if lane.publishing:
        yield _commit(view, servers, lane.publishing)
    elif lane.selected and lane.spent:
        yield view.anew("needs a new producer, and starts anew")
    elif lane.selected:
        yield from _fill(view, servers, lane.selected)
    if lane.advance:
        yield advanced(view, servers, lane.advance)
    else:
        yield from _ask(view, servers, limits)
        locked = lane.locked and "drain waits for locked rows" not in view.off
        if view.process.draining and not (lane.publishing or lane.finished or locked):
            over = lane._replace(phase="over")
            yield _note(view, servers, "is drained, and deletes the note", over, None)
        if lane.poison is not None:
            after, answer = servers.park(view.world, view.right, lane.poison)
            words = f"parks the key of row {lane.poison}"
            yield (
                view.fenced(after) if answer is LOST else view.step(words, after, lane._replace(poison=None))
            )
    noted = view.world.database.fence[lane.number].noted
    if lane.finished and not noted and "note before the first publish" in view.off:
        yield _note(view, servers, "notes that it transacts", lane, view.note)


def _commit(view: LaneView, servers: Servers, publishing: Selected) -> Step:
    """Returns the step in which a lane has its transaction committed, or is told that it cannot be."""
    lane = view.lane
    after, answer = servers.commit(view.world, lane.channel, lane.epoch)
    if answer is CONTRADICTED and "a contradiction is unknown" in view.off:
        words = f"is contradicted, and takes {told_rows(publishing)} for aborted"
        return view.step(words, after, taken_back(lane, view.off))
    if answer is CONTRADICTED:
        return view.anew("is contradicted, and starts anew", world=after)
    words = f"has {told_rows(publishing)} committed"
    return _unless_fenced(view, words, (after, answer), committed(lane, publishing))


def taken_back(lane: Lane, off: frozenset[Rule]) -> Lane:
    """Returns a lane that takes its transaction for aborted, and selects its rows anew."""
    back = lane._replace(publishing=None, last=-1)
    if "abandon what is selected behind" in off:
        return back
    return back._replace(selected=None, advance=in_vain(lane))


def in_vain(lane: Lane) -> Advance | None:
    """Returns the advance that is out, what it selects being of no use any more."""
    return lane.advance and lane.advance._replace(vain=True)


def committed(lane: Lane, publishing: Selected) -> Lane:
    """Returns a lane that takes its transaction for committed."""
    return lane._replace(publishing=None, finished=(*lane.finished, publishing.batch))


def advanced(
    view: LaneView, servers: Servers, advance: Advance, locked: frozenset[int] = frozenset()
) -> Step:
    """Returns the step in which the database carries out an advance, while others have locked rows."""
    after, answer = servers.advance(view.world, *advance.call.arguments, locked=locked)
    if answer is LOST:
        return view.fenced(after)
    finished = advance.call.arguments[1]
    words = f"purges {told(finished)} " if finished else ""
    words += f"but for {told(answer.locked)} " if answer.locked else ""
    words += f"and selects {told_rows(answer.selected)}"
    lane = view.lane._replace(advance=None, locked=view.lane.locked + answer.locked)
    if advance.vain or not answer.selected:
        return view.step(f"{words} in vain" if advance.vain else words, after, lane)
    if "see lower ids" in view.off:
        lane = lane._replace(last=answer.selected.batch.ids[-1])
    return view.step(words, after, lane._replace(selected=answer.selected))


def _fill(view: LaneView, servers: Servers, selected: Selected) -> Iterator[Step]:
    if outcome := servers.execute(view.world, next(view.under_way())):
        words = f"sends {told_rows(selected)} with checkpoint {told_checkpoint(view.checkpoint(selected))}"
        yield _unless_fenced(view, words, outcome, view.lane._replace(publishing=selected, selected=None))


def _unless_fenced(view: LaneView, words: str, outcome: Outcome, lane: Lane) -> Step:
    after, answer = outcome
    if answer is FENCED:
        return view.anew("is fenced by the broker, and starts anew", world=after)
    return view.step(words, after, lane)


def _ask(view: LaneView, servers: Servers, limits: tuple[int, ...]) -> Iterator[Step]:
    """Returns the advances that make sense; one that would find nothing to do changes nothing."""
    lane = view.lane
    publishing = (lane.publishing.batch,) if lane.publishing else ()
    if view.process.draining or lane.selected or _parks(view):
        limits = ()
    for finished, locked in _kept(lane):
        purged = tuple(each for each in (*lane.finished, *lane.locked) if each not in finished + locked)
        if "delete after the commit" in view.off:
            purged += publishing
        left_out = () if "leave out what is locked" in view.off else locked
        wish = Wish(1, publishing + finished + left_out, after=lane.last)
        may = limits if servers.eligible(view.world, view.right, wish, purged) else ()
        if purged and (lane.publishing or not may):
            may = (0, *may)
        for limit in may:
            words = f"asks to purge {told(purged)}" if purged else "asks"
            words += f" to select {limit}" if limit else ""
            call = Call("advance", (view.right, purged, wish._replace(limit=limit)))
            yield view.step(
                words, lane=lane._replace(advance=Advance(call), finished=finished, locked=locked)
            )


def _kept(lane: Lane) -> Iterator[tuple[Batches, Batches]]:
    """Returns which finished batches, and which locked rows, an advance may leave for a later one."""
    for finished in ((), lane.finished) if lane.finished else ((),):
        for locked in ((), lane.locked) if lane.locked else ((),):
            yield finished, locked


def _parks(view: LaneView) -> bool:
    return view.lane.poison is not None and "park before the next selection" not in view.off


def _note(view: LaneView, servers: Servers, words: str, lane: Lane, note: Note | None) -> Step:
    after, answer = servers.set_transactional(view.world, view.right, note)
    return view.fenced(after) if answer is LOST else view.step(words, after, lane)
