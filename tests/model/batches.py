"""What a lane of exactly-once delivery does: batch after batch, one published while the next is marked.

As ``outbox_core.delivery.exactly_once`` decides, but at any time: what that does at once may here as well
come later.
"""

from __future__ import annotations

from collections.abc import Iterator

from .lane_view import LaneView, Step, told, told_rows
from .names import fresh
from .servers import FENCED, LOST, Outcome, Servers
from .world import Advance, Call, Lane, Marked, Note, Wish


def run(view: LaneView, servers: Servers, limits: tuple[int, ...]) -> Iterator[Step]:
    """Returns what a lane may do next; ``limits`` are how many rows a mark may ask for."""
    lane = view.lane
    if lane.publishing:
        outcome = servers.commit(view.world, lane.channel, lane.epoch)
        yield _unless_fenced(
            view, f"has {told_rows(lane.publishing)} committed", outcome, committed(lane, lane.publishing)
        )
    elif lane.marked:
        yield from _fill(view, servers, lane.marked)
    if lane.advance:
        yield _advance(view, servers, lane.advance)
    else:
        yield from _ask(view, servers, limits)
        if view.process.draining and not (lane.publishing or lane.finished):
            over = lane._replace(phase="over")
            yield _note(view, servers, "is drained, and deletes the note", over, None)
    noted = view.world.database.fence[lane.number].noted
    if lane.finished and not noted and "note before the first publish" in view.off:
        yield _note(view, servers, "notes that it transacts", lane, view.note)


def committed(lane: Lane, publishing: Marked) -> Lane:
    """Returns a lane that takes its transaction for committed."""
    return lane._replace(publishing=None, finished=(*lane.finished, publishing.batch))


def _fill(view: LaneView, servers: Servers, marked: Marked) -> Iterator[Step]:
    if outcome := servers.execute(view.world, next(view.under_way())):
        words = f"sends {told_rows(marked)} with checkpoint {told(view.checkpoint(marked))}"
        yield _unless_fenced(view, words, outcome, view.lane._replace(publishing=marked, marked=None))


def _unless_fenced(view: LaneView, words: str, outcome: Outcome, lane: Lane) -> Step:
    after, answer = outcome
    if answer is FENCED:
        return view.anew("is fenced by the broker, and starts anew", world=after)
    return view.step(words, after, lane)


def _ask(view: LaneView, servers: Servers, limits: tuple[int, ...]) -> Iterator[Step]:
    """Returns the advances that make sense; one that would find nothing to do changes nothing."""
    lane = view.lane
    pending = (lane.publishing.batch.name,) if lane.publishing else ()
    own = {batch.name for batch in lane.finished} | set(pending)
    if view.process.draining or lane.marked or not servers.eligible(view.world, view.right, own):
        limits = ()
    if lane.finished and (lane.publishing or not limits):
        limits = (0, *limits)
    for limit in limits:
        name = fresh(view.world, reused="fresh names" in view.off) if limit else 0
        words = f"asks to purge {told(lane.finished)}" if lane.finished else "asks"
        words += f" to mark {limit} as batch {name}" if limit else ""
        advance = Advance(Call("advance", (view.right, lane.finished, Wish(name, limit, pending))))
        yield view.step(words, lane=lane._replace(advance=advance, finished=()))


def _advance(view: LaneView, servers: Servers, advance: Advance) -> Step:
    after, answer = servers.advance(view.world, *advance.call.arguments)
    if answer is LOST:
        return view.fenced(after)
    finished = advance.call.arguments[1]
    words = f"purges {told(finished)} and marks" if finished else "marks"
    lane = view.lane._replace(advance=None)
    if advance.vain:
        return view.step(f"{words} {told_rows(answer)} in vain", after, lane)
    return view.step(f"{words} {told_rows(answer)}", after, lane._replace(marked=answer or lane.marked))


def _note(view: LaneView, servers: Servers, words: str, lane: Lane, note: Note | None) -> Step:
    after, answer = servers.set_transactional(view.world, view.right, note)
    return view.fenced(after) if answer is LOST else view.step(words, after, lane)
