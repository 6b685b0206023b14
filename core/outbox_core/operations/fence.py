"""What an operator does to the fence."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from outbox_api.base.errors import LeadershipLost, OutboxError
from outbox_api.seams.fence import LaneStatus, TransactionalLane
from outbox_api.seams.outbox_table import OutboxTable

from outbox_core.operations.journalled import Operator, journalled, operating
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings

_MAX_TRIES = 5
"""How often to raise the token if a leader raises it too, as one does whose lanes refuse to start."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The fence was raised."""

    token: int
    lanes: int  # the number of lanes for which it holds
    holder: str  # who holds the fence now: the operator, until a leader raises it again
    fenced: str = ""  # who held it before, and under which token; empty if nobody has ever led
    unnoted: str = ""  # why the journal lacks the outcome; empty if it has it


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Notes of lanes that publish in transactions were removed."""

    token: int | None = None  # the token that was raised for it; None if there was nothing to forget
    holder: str | None = None  # who holds the fence now; None likewise
    notes: Mapping[int, TransactionalLane] = field(default_factory=dict)  # lane → the note that was removed
    unnoted: str = ""  # why the journal lacks the outcome; empty if it has it


@operating()
def raise_fence(settings: HarvestSettings, operator: Operator, seen: int | None = None) -> Raised:
    """Raises the token, so that the leader of the token ``seen``, or any, can change nothing from now on.

    Raises:
        OutboxError: Somebody has raised the token since; nothing was done.
    """
    with closing(settings.dialect.create().connect()) as table:
        held = table.lane_statuses()
        fenced = held_by(held)
        refuse_if_raised(held, seen)
        with journalled(settings, Verb.RAISE_FENCE, fenced, operator, at_once=True) as outcome:
            lanes = lane_count(held, settings)
            try:
                token = table.bump(lanes, operator.holder, seen)
            except LeadershipLost as error:
                raise _raised_meanwhile(held_by(table.lane_statuses())) from error
            outcome.text = f"token {token}"
    return Raised(token, lanes, operator.holder, fenced, outcome.unnoted)


@operating()
def forget(settings: HarvestSettings, operator: Operator) -> Forgotten:
    """Treats all rows of lanes that publish in transactions as unpublished; raises the token for it.

    Does nothing, and notes nothing, where the fence has no note of such a lane.

    Raises:
        LeadershipLost: Leaders raised the token again and again at the same time; some notes may be left.
    """
    with closing(settings.dialect.create().connect()) as table:
        notes = table.transactional_lanes()
        if not notes:
            return Forgotten()
        with journalled(settings, Verb.FORGET, lane_list(notes), operator) as outcome:
            token = _end_notes(table, settings, operator.holder)
            outcome.text = f"token {token}"
    return Forgotten(token, operator.holder, notes, outcome.unnoted)


def refuse_if_raised(held: Sequence[LaneStatus], seen: int | None) -> None:
    """Makes sure that the fence has the token that an operator has seen, if one is given."""
    if seen not in {None, held_token(held)}:
        raise _raised_meanwhile(held_by(held))


def held_by(held: Sequence[LaneStatus]) -> str:
    """Returns who holds the fence, and under which token; empty before the first leader."""
    return f"{held[0].holder}, token {held[0].fence.token}" if held else ""


def held_token(held: Sequence[LaneStatus]) -> int:
    """Returns the fence's token; 0 before the first leader."""
    return held[0].fence.token if held else 0


def lane_count(held: Sequence[LaneStatus], settings: HarvestSettings) -> int:
    """Returns the present number of lanes; before the first leader, that of the settings."""
    return held[0].fence.lanes if held else settings.limits.send_concurrency


def lane_list(notes: Mapping[int, TransactionalLane]) -> str:
    """Returns the lanes that have notes, for people."""
    return f"{'lane' if len(notes) == 1 else 'lanes'} {', '.join(map(str, notes))}"


def _raised_meanwhile(holder: str) -> OutboxError:
    return OutboxError(
        f"nothing was done: the fence has changed meanwhile, and {holder or 'nobody'} holds it now; look at "
        "the outbox again"
    )


def _end_notes(table: OutboxTable, settings: HarvestSettings, holder: str) -> int:
    """Removes the notes of all lanes; returns the token that was raised for it."""
    tries = 0
    while True:
        tries += 1
        lanes = lane_count(table.lane_statuses(), settings)
        token = table.bump(lanes, holder)
        try:
            for lane in table.transactional_lanes():
                table.set_transactional(table.enter(lane, lanes, token), None)
        except LeadershipLost:
            if tries == _MAX_TRIES:
                raise
        else:
            return token
