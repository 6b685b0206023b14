"""Finds out why a broker refused a timestamp: a wrong clock, or a topic that permits too little."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from outbox_api import MarkedRecord, OutboxError
from outbox_kafka_client.admin import KafkaAdmin

from outbox_kafka.errors import driver_error

_MAX_CLOCK_ERROR_MS: Final = 60_000
"""Milliseconds by which a synchronized clock is never wrong, the time to send a record included."""

_UNLIMITED_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Milliseconds from which on a limit has no effect."""

_TIMEOUT: Final = 5.0
"""Seconds to wait for the broker's answer."""

_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"


class TimestampLimits(NamedTuple):
    """The timestamps that a topic permits.

    Attributes:
        before: Milliseconds by which a record's time may be before the broker's.
        after: Milliseconds by which it may be after the broker's.
    """

    before: int
    after: int


class TimestampRefusal(NamedTuple):
    """Why the broker refused a timestamp of this machine's clock.

    Attributes:
        clock_is_wrong: Whether the clock is the cause, rather than the topic's settings.
        reason: The message for users.
    """

    clock_is_wrong: bool
    reason: str


def diagnose(settings: Mapping[str, Any], topic: str) -> TimestampRefusal:
    """Returns why a broker refused a record of ``topic`` that had this machine's current time.

    Takes up to 5 s. If the topic's settings cannot be read, the result blames the clock.
    """
    return explain(topic, _limits(settings, topic), datetime.now(UTC))


def untimely(settings: Mapping[str, Any], records: Sequence[MarkedRecord]) -> list[MarkedRecord]:
    """Returns those records whose own timestamps their topics do not permit, as far as their settings tell.

    Takes up to 5 s for each topic.
    """
    own = [record for record in records if record.timestamp_ms]
    limits = {topic: _limits(settings, topic) for topic in {record.topic for record in own}}
    now_ms = time.time() * 1000
    return [
        record
        for record in own
        if (found := limits[record.topic]) is not None
        and record.timestamp_ms is not None
        and not -found.before <= record.timestamp_ms - now_ms <= found.after
    ]


def explain(topic: str, limits: TimestampLimits | None, now: datetime) -> TimestampRefusal:
    """Returns why a timestamp was refused, given the topic's limits.

    Args:
        topic: The topic.
        limits: Its limits, ``None`` if they are not known.
        now: The time of this machine's clock.
    """
    what = f"Kafka refuses the time of this machine's clock, {now:%Y-%m-%dT%H:%M:%SZ}, for topic '{topic}'"
    if limits is None:
        cure = f"correct the clock, or look at {_BEFORE} and {_AFTER} of the topic"
        return TimestampRefusal(clock_is_wrong=True, reason=f"{what}: {cure}")
    if min(limits) < _MAX_CLOCK_ERROR_MS:
        why = f"{what}, which permits {limits.before} ms before and {limits.after} ms after its own"
        return TimestampRefusal(
            clock_is_wrong=False, reason=f"{why}; raise {_BEFORE} and {_AFTER} of the topic"
        )
    wrong = " or ".join(
        f"more than {limit // 1000} s {side}"
        for limit, side in ((limits.after, "ahead of"), (limits.before, "behind"))
        if limit < _UNLIMITED_MS
    )
    return TimestampRefusal(
        clock_is_wrong=True, reason=f"{what}: it is {wrong or 'far from'} the broker's; correct the clock"
    )


def _limits(settings: Mapping[str, Any], topic: str) -> TimestampLimits | None:
    try:
        values = KafkaAdmin(settings, driver_error).topic_config(topic, _TIMEOUT)
        return TimestampLimits(int(values[_BEFORE]), int(values[_AFTER]))
    except (KafkaException, OutboxError, KeyError):  # not permitted, no answer in time, or an older broker
        return None
