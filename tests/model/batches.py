"""What a lane of exactly-once delivery does: batch after batch, one published while the next is marked.

As ``outbox_core.delivery.exactly_once`` decides, but at any time: what that does at once may here as well
come later.
"""

from __future__ import annotations

from collections.abc import Iterator

from .names import fresh
from .seat import Seat, Step, told, told_rows
from .servers import FENCED, LOST, Outcome, Servers
from .world import Advance, Call, Lane, Marked, Note, Wish


def run(seat: Seat, servers: Servers, limits: tuple[int, ...]) -> Iterator[Step]:
    """Returns what a lane may do next; ``limits`` are how many rows a mark may ask for."""
    lane = seat.lane
    if lane.publishing:
        outcome = servers.commit(seat.world, lane.channel, lane.epoch)
        yield _unless_fenced(
            seat, f"has {told_rows(lane.publishing)} committed", outcome, committed(lane, lane.publishing)
        )
    elif lane.marked:
        yield from _fill(seat, servers, lane.marked)
    if lane.advance:
        yield _advance(seat, servers, lane.advance)
    else:
        yield from _ask(seat, servers, limits)
        if seat.process.draining and not (lane.publishing or lane.finished):
            over = lane._replace(phase="over")
            yield _note(seat, servers, "is drained, and deletes the note", over, None)
    noted = seat.world.database.fence[lane.number].noted
    if lane.finished and not noted and "note before the first publish" in seat.off:
        yield _note(seat, servers, "notes that it transacts", lane, seat.note)


def committed(lane: Lane, publishing: Marked) -> Lane:
    """Returns a lane that takes its transaction for committed."""
    return lane._replace(publishing=None, finished=(*lane.finished, publishing.batch))


def _fill(seat: Seat, servers: Servers, marked: Marked) -> Iterator[Step]:
    if outcome := servers.carry_out(seat.world, next(seat.under_way())):
        words = f"sends {told_rows(marked)} with checkpoint {told(seat.checkpoint(marked))}"
        yield _unless_fenced(seat, words, outcome, seat.lane._replace(publishing=marked, marked=None))


def _unless_fenced(seat: Seat, words: str, outcome: Outcome, lane: Lane) -> Step:
    after, answer = outcome
    if answer is FENCED:
        return seat.anew("is fenced by the broker, and starts anew", world=after)
    return seat.step(words, after, lane)


def _ask(seat: Seat, servers: Servers, limits: tuple[int, ...]) -> Iterator[Step]:
    """Returns the advances that make sense; one that would find nothing to do changes nothing."""
    lane = seat.lane
    pending = (lane.publishing.batch.name,) if lane.publishing else ()
    own = {batch.name for batch in lane.finished} | set(pending)
    if seat.process.draining or lane.marked or not servers.eligible(seat.world, seat.right, own):
        limits = ()
    if lane.finished and (lane.publishing or not limits):
        limits = (0, *limits)
    for limit in limits:
        name = fresh(seat.world, reused="fresh names" in seat.off) if limit else 0
        words = f"asks to purge {told(lane.finished)}" if lane.finished else "asks"
        words += f" to mark {limit} as batch {name}" if limit else ""
        advance = Advance(Call("advance", (seat.right, lane.finished, Wish(name, limit, pending))))
        yield seat.step(words, lane=lane._replace(advance=advance, finished=()))


def _advance(seat: Seat, servers: Servers, advance: Advance) -> Step:
    after, answer = servers.advance(seat.world, *advance.call.arguments)
    if answer is LOST:
        return seat.fenced(after)
    finished = advance.call.arguments[1]
    words = f"purges {told(finished)} and marks" if finished else "marks"
    lane = seat.lane._replace(advance=None)
    if advance.vain:
        return seat.step(f"{words} {told_rows(answer)} in vain", after, lane)
    return seat.step(f"{words} {told_rows(answer)}", after, lane._replace(marked=answer or lane.marked))


def _note(seat: Seat, servers: Servers, words: str, lane: Lane, note: Note | None) -> Step:
    after, answer = servers.set_transactional(seat.world, seat.right, note)
    return seat.fenced(after) if answer is LOST else seat.step(words, after, lane)
