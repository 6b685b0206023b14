"""Adds partitions to a topic of the broker, so that the records of each key keep their order.

More partitions move keys. What was sent before is to be read before anything is sent to the new place of a
key. So the topic is paused, consumers read all of it, partitions are added, and the topic is resumed once
every broker tells of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from time import monotonic

from outbox_api.base.errors import ConfigError, DriverError, OutboxError
from outbox_api.seams.partitions import PartitionedPublisher, PartitionedTopic
from outbox_api.seams.pausing import WHOLE, Pause

from outbox_core.delivery.recovery import QUERY
from outbox_core.operations.fence import raise_fence
from outbox_core.operations.journalled import Operator, journalled
from outbox_core.operations.pausing import await_effect, pause, resume
from outbox_core.operations.reason import LONGEST_REASON
from outbox_core.operations.verbs import Verb
from outbox_core.settings import HarvestSettings
from outbox_core.text.wording import duration

_GLANCE = 0.2
"""Seconds between two looks at what is waited for."""
_LONGEST_MARKED = 150
"""Characters of a topic by which the reason of its pause names it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Which partitions are wanted."""

    topic: str  # as the broker names it
    partitions: int  # how many it is to have
    groups: Sequence[str] = ()  # the groups of consumers that must have read what was sent before
    outbox_topics: Sequence[str] = ()  # what is paused, as outboxes name it; empty for whatever it takes

    @property
    def mark(self) -> str:
        """By what the reason of its pauses begins, so that the next call of the command knows them."""
        # A pause keeps less of a reason than the longest topic needs.
        return f"'outbox partitions add {self.topic[:_LONGEST_MARKED]} {self.partitions}'"

    def paused_of(self, settings: HarvestSettings) -> Sequence[str]:
        """Returns what is paused of an outbox: all of it if its transforms may change topics."""
        return self.outbox_topics or ([WHOLE] if settings.transforms else [self.topic])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, and what is known of it before."""

    wish: Wish
    outboxes: Sequence[HarvestSettings]
    topic: PartitionedTopic
    before: int  # how many partitions it has
    goes_on: bool  # whether an earlier call has paused it
    others: Sequence[str]  # the groups that have read the topic, and are not waited for
    queries: Sequence[str]  # the outboxes that a query of Spark reads, or did


@dataclass(frozen=True, slots=True)
class Watch:
    """How it is watched, and for how long."""

    tell: Callable[[str], None]  # receives each step
    waits: Callable[[str], None]  # receives what is waited for, several times a second
    stop: Callable[[float], bool]  # waits so many seconds, and returns whether to stop
    seconds: float  # how long to wait for lanes and consumers
    keeps_pause: bool = False  # whether the pause stays if they are too late


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Partitions were added."""

    before: int
    paused: float  # for how many seconds
    unnoted: str  # why a journal lacks the outcome; empty if all have it


def plan_partitions(outboxes: Sequence[HarvestSettings], wish: Wish) -> Plan:
    """Looks what would be done; changes nothing.

    Raises:
        OutboxError: It cannot be done.
    """
    topic = _publisher(outboxes).topic(wish.topic)
    if not (before := topic.count()):
        raise OutboxError(f"nothing was done: there is no topic '{wish.topic}'; 'outbox init' creates topics")
    goes_on, queries = False, []
    for box in outboxes:
        with closing(box.dialect.create().watch()) as view:
            found = view.pauses()
            if any(each.sender.startswith(QUERY) for each in view.transactional_lanes().values()):
                queries.append(box.title)
        goes_on |= _is_begun(wish, box, found)
    if before > wish.partitions or (before == wish.partitions and not goes_on):
        raise OutboxError(
            f"nothing was done: topic '{wish.topic}' has {before} partitions already,"
            " and none can be taken away"
        )
    for group in wish.groups if before < wish.partitions else ():
        if topic.unread(group, {}) is None:
            raise OutboxError(
                f"nothing was done: group '{group}' has committed no offset in topic '{wish.topic}', so that"
                " nobody can tell what it has read"
            )
    others = [each for each in topic.groups() if each not in wish.groups]
    return Plan(wish, outboxes, topic, before, goes_on, others, queries)


def add_partitions(plan: Plan, operator: Operator, watch: Watch) -> PartitionsAdded:
    """Pauses, waits for lanes and consumers, adds partitions, waits for all brokers, and resumes.

    If lanes or consumers are too late, or it is stopped, it resumes, as nothing has changed. From when on
    partitions may have been added the pause stays until the same call has succeeded.

    Raises:
        OutboxError: It was not done, or not to its end.
    """
    wish = plan.wish
    noted = replace(operator, reason=f"{wish.mark} {operator.reason}".strip()[:LONGEST_REASON])
    for box in plan.outboxes:  # whoever was asked may have thought about it for long
        _is_begun(wish, box, _pauses(box))
    paused = list[tuple[HarvestSettings, Pause]]()
    begun = plan.before == wish.partitions
    try:
        for box in plan.outboxes:
            for each in wish.paused_of(box):
                done = pause(box, each, noted, None).pause
                assert done is not None  # noqa: S101 - it is on
                paused.append((box, done))
        if not begun:
            _read_up(plan, paused, watch)
        _fence_silent(paused, noted, watch)
        begun = True
        watch.tell(f"adding partitions: {plan.before} now, {wish.partitions} then")
        unnoted = _grow(plan, operator)
        seconds = _resume(plan, noted, watch)
    except BaseException as error:
        if watch.keeps_pause or (begun and _may_have_grown(plan, error)):
            watch.tell(_STAYS)
        else:
            _give_back(plan, noted, watch)
        raise
    return PartitionsAdded(plan.before, seconds, unnoted)


def _grow(plan: Plan, operator: Operator) -> str:
    """Adds the partitions; returns why a journal lacks that."""
    wish, before = plan.wish, plan.before
    subject = f"topic {wish.topic}, {before} to {wish.partitions} partitions"
    with ExitStack() as stack:
        noted = [journalled(box, Verb.ADD_PARTITIONS, subject, operator) for box in plan.outboxes]
        outcomes = [stack.enter_context(each) for each in noted]
        plan.topic.grow(wish.partitions)
    return next((each.unnoted for each in outcomes if each.unnoted), "")


_STAYS = "the pause stays: repeat the command to go on, or end it with 'outbox resume'"


def _publisher(outboxes: Sequence[HarvestSettings]) -> PartitionedPublisher:
    first = outboxes[0]
    for box in outboxes[1:]:
        if box.publisher != first.publisher:
            raise ConfigError(
                f"outboxes '{first.title}' and '{box.title}' have other settings of their publishers: name"
                " one with --outbox, whose topic is paused; nothing else that sends to it is"
            )
    made = first.publisher.create()
    if not isinstance(made, PartitionedPublisher):
        raise OutboxError(f"nothing was done: publisher '{first.publisher.driver}' cannot add partitions")
    return made


def _is_begun(wish: Wish, box: HarvestSettings, found: Sequence[Pause]) -> bool:
    """Returns whether an earlier call has begun it; refuses what somebody else has paused."""
    pauses = [each for each in found if each.topic in wish.paused_of(box)]
    for each in pauses:
        if not each.reason.startswith(wish.mark):
            why = f" ({each.reason})" if each.reason else ""
            raise OutboxError(
                f"nothing was done: {each.operator} has paused {each.subject}{why}; end that first, with"
                " 'outbox resume', or repeat the command that has begun it"
            )
    return bool(pauses)


def _pauses(box: HarvestSettings) -> Sequence[Pause]:
    with closing(box.dialect.create().watch()) as view:
        return view.pauses()


def _may_have_grown(plan: Plan, error: BaseException) -> bool:
    """Returns whether there may be more partitions, now or soon, after the attempt to add some."""
    if plan.before == plan.wish.partitions or not isinstance(error, DriverError) or error.retryable:
        return True
    try:
        return plan.topic.count() > plan.before
    except OutboxError:
        return True


def _read_up(plan: Plan, paused: Sequence[tuple[HarvestSettings, Pause]], watch: Watch) -> None:
    """Waits until nothing is in flight, and consumers have read all that was sent."""
    deadline = monotonic() + watch.seconds
    watch.tell("paused; waiting until nothing is in flight")
    _wait(lambda: _open(paused), watch, deadline)
    if groups := plan.wish.groups:
        ends = plan.topic.ends()
        watch.tell(f"waiting until all was read by: {', '.join(groups)}")
        _wait(lambda: _unread(plan.topic, groups, ends), watch, deadline)
        _wait(lambda: _open(paused), watch, deadline)  # raises if somebody has resumed it meanwhile


def _fence_silent(paused: Sequence[tuple[HarvestSettings, Pause]], noted: Operator, watch: Watch) -> None:
    """Raises the fence where no lane is heard: a leader that is frozen would never learn of the pause.

    It would go on with the old partitions. One that is fenced begins anew, and asks for them.
    """
    silent = {box.title: box for box, each in paused if not await_effect(box, each, 0.0).led}
    for box in silent.values():
        watch.tell(
            f"no lane of outbox {box.outbox} is heard: raising the fence, in case its leader is frozen"
        )
        raise_fence(box, noted)


def _wait(look: Callable[[], str], watch: Watch, deadline: float) -> None:
    """Waits until nothing is left that ``look`` says."""
    while left := _look(look):
        watch.waits(left)
        if watch.stop(_GLANCE):
            raise OutboxError(f"no partitions were added, as it was stopped: {left}")
        if monotonic() > deadline:
            raise OutboxError(f"no partitions were added within {duration(watch.seconds)}: {left}")


def _look(look: Callable[[], str]) -> str:
    """Looks; says what does not answer for now, such as a coordinator that moves."""
    try:
        return look()
    except DriverError as error:
        if not error.retryable:
            raise
        return str(error)


def _open(paused: Sequence[tuple[HarvestSettings, Pause]]) -> str:
    effects = [await_effect(box, each, 0.0) for box, each in paused]
    return "; ".join(left for effect in effects for left in effect.open)


def _unread(topic: PartitionedTopic, groups: Sequence[str], ends: Mapping[int, int]) -> str:
    left = {group: topic.unread(group, ends) for group in groups}
    return "; ".join(
        f"group '{group}' has " + ("no offset" if count is None else f"about {count:,} records to read")
        for group, count in left.items()
        if count != 0
    )


def _give_back(plan: Plan, noted: Operator, watch: Watch) -> None:
    """Resumes after a failure that has changed nothing."""
    try:
        _resume(plan, noted, watch)
    except OutboxError as error:
        watch.tell(f"{_STAYS}; it cannot be ended now: {error}")
    else:
        watch.tell("resumed: nothing has changed")


def _resume(plan: Plan, noted: Operator, watch: Watch) -> float:
    """Resumes what was paused for it; returns for how many seconds the first was."""
    lasted = [0.0]
    for box in plan.outboxes:
        for each in _pauses(box):
            if each.topic not in plan.wish.paused_of(box):
                continue
            if not each.reason.startswith(plan.wish.mark):
                watch.tell(f"{each.subject} stays paused: {each.operator} has paused it meanwhile")
            elif (ended := resume(box, each.topic, noted).pause) is not None:
                lasted.append(ended.lasted)
    return max(lasted)
