"""What an operator does to pause a topic, or the whole outbox, and how it is known to be in effect."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from time import monotonic, sleep

from outbox_api.base.errors import OutboxError
from outbox_api.seams.pausing import Pause, subject_of

from outbox_core.delivery.recovery import QUERY
from outbox_core.operations.journalled import Operator, journalled, operating
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings
from outbox_core.status.pauses import in_effect
from outbox_core.status.snapshot import is_silent, longest_silence, present_lanes, silence
from outbox_core.text.wording import date_clock_and_zone, duration

LONGEST_TOPIC = 249
"""Characters of the longest topic: Kafka has no longer ones."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """Something was paused or resumed."""

    verb: Verb  # which of the two
    topic: str  # which topic, or WHOLE
    pause: Pause | None  # the pause that is on now, or has ended; None if none was on
    query: bool  # whether a query of Spark reads the outbox, which ignores pauses
    unnoted: str = ""  # why the journal lacks the outcome; empty if it has it


@dataclass(frozen=True, slots=True)
class Effect:
    """How far a pause is in effect: nothing of it is in flight, and nothing of it can be sent."""

    open: tuple[str, ...] = ()  # what is known of each lane that has not said so
    led: bool = True  # whether any lane is heard; whoever leads next reads the pauses before its first mark

    @property
    def complete(self) -> bool:
        """Whether it is in effect in all lanes."""
        return not self.open


@operating()
def pause(settings: HarvestSettings, topic: str, operator: Operator, seconds: float | None) -> PauseChanged:
    """Pauses a topic, or ``WHOLE``; see :meth:`outbox_api.OutboxTable.pause`. Returns once that is stored."""
    if len(topic) > LONGEST_TOPIC:
        raise OutboxError(f"no topic has a name of more than {LONGEST_TOPIC} characters")
    with closing(settings.dialect.create().connect()) as table:
        query = any(each.sender.startswith(QUERY) for each in table.transactional_lanes().values())
        with journalled(settings, Verb.PAUSE, subject_of(topic), operator, at_once=True) as outcome:
            made = table.pause(topic, operator.name, operator.reason, seconds)
            outcome.text = f"until {date_clock_and_zone(made.until)}" if made.until else "without an end"
    return PauseChanged(Verb.PAUSE, topic, made, query, outcome.unnoted)


@operating()
def resume(settings: HarvestSettings, topic: str, operator: Operator) -> PauseChanged:
    """Resumes a topic, or ``WHOLE``. Idempotent. Lanes go on within a second or two."""
    with (
        closing(settings.dialect.create().connect()) as table,
        journalled(settings, Verb.RESUME, subject_of(topic), operator, at_once=True) as outcome,
    ):
        ended = table.resume(topic)
        outcome.text = "was not paused" if ended is None else f"was paused for {duration(ended.lasted)}"
    return PauseChanged(Verb.RESUME, topic, ended, query=False, unnoted=outcome.unnoted)


def change_pause(
    settings: HarvestSettings, verb: Verb, topic: str, operator: Operator, seconds: float | None
) -> PauseChanged:
    """Pauses or resumes, as the verb says; see :func:`pause` and :func:`resume`."""
    if verb is Verb.PAUSE:
        return pause(settings, topic, operator, seconds)
    return resume(settings, topic, operator)


def topics_waiting(settings: HarvestSettings) -> Mapping[str, int]:
    """Returns how many of the first ``MAX_COUNTED`` records each topic has; reads only."""
    with closing(settings.dialect.create().watch()) as view:
        return view.waiting()


def seconds_until(settings: HarvestSettings, moment: datetime) -> float:
    """Returns how many seconds there are until a moment, by the database's clock; negative for a past one."""
    with closing(settings.dialect.create().watch()) as view:
        return (moment - view.now()).total_seconds()


def await_effect(
    settings: HarvestSettings, pause: Pause, seconds: float, tell: Callable[[Effect], None] = lambda _: None
) -> Effect:
    """Waits until a pause is in effect, or for so many seconds at most; returns how far it is.

    ``tell`` is called after each look, of which there are several in a second.

    Raises:
        OutboxError: The pause has ended meanwhile.
    """
    deadline, longest = monotonic() + seconds, longest_silence(settings)
    with closing(settings.dialect.create().watch()) as view:
        while True:
            if all((each.topic, each.since) != (pause.topic, pause.since) for each in view.pauses()):
                raise OutboxError(f"{pause.subject} is not paused any more")
            lanes = present_lanes(view.lane_statuses())
            silent = {lane.fence.lane: silence(lane) for lane in lanes if is_silent(lane, longest)}
            open_ = [lane.fence.lane for lane in lanes if not in_effect(lane.metrics, pause)]
            if len(silent) == len(lanes):
                effect = Effect(led=False)
            else:
                effect = Effect(tuple(_open(number, silent) for number in open_))
            tell(effect)
            if effect.complete or monotonic() >= deadline:
                return effect
            sleep(_POLL_SECONDS)


def _open(number: int, silent: dict[int, float]) -> str:
    if number in silent:
        return f"lane {number} has sent no heartbeat for {duration(silent[number])}"
    return f"lane {number} has not answered, or something is in flight there"
