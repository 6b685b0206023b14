"""Finds out why a broker refused a timestamp: a wrong clock, or a topic that permits too little."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from outbox_api import MarkedRecord, OutboxError

from outbox_kafka.client.admin import KafkaAdmin
from outbox_kafka.errors import driver_error

_MAX_CLOCK_ERROR_MS: Final = 60_000
"""Milliseconds by which a synchronized clock is never wrong, the time to send a record included."""

_UNLIMITED_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Milliseconds from which on a limit has no effect."""

_TIMEOUT: Final = 5.0
_FRESH_SECONDS: Final = 1.0
_MAX_TOPICS: Final = 1000
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"


class TimestampLimits(NamedTuple):
    """The timestamps that a topic permits."""

    before: int
    after: int


class TimestampRefusal(NamedTuple):
    """Why the broker refused a timestamp of this machine's clock."""

    clock_is_wrong: bool
    reason: str


def diagnose(settings: Mapping[str, Any], topic: str) -> TimestampRefusal:
    """Returns why a broker refused a record of ``topic`` that had this machine's current time.

    Takes up to 5 s. If the topic's settings cannot be read, the result blames the clock.
    """
    return explain(topic, _limits(settings, topic), datetime.now(UTC))


class KnownLimits:
    """The limits of topics that have refused a timestamp. Reading takes up to 5 s for each topic.

    A refusal by a broker costs the transactions after it, too, so it is foreseen.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._known: dict[str, tuple[float, TimestampLimits]] = {}

    def refused(self, records: Sequence[MarkedRecord]) -> list[MarkedRecord]:
        """Reads the limits of the records' topics, one of which has refused a timestamp."""
        self._read({record.topic for record in records if record.timestamp_ms})
        return self._untimely(records, 0)

    def foreseen(self, records: Sequence[MarkedRecord]) -> list[MarkedRecord]:
        """Returns records that brokers would refuse for their own timestamps, however wrong a clock is."""
        if not self._known:
            return []
        topics = {record.topic for record in self._untimely(records, _MAX_CLOCK_ERROR_MS)}
        oldest = time.monotonic() - _FRESH_SECONDS
        self._read(topic for topic in topics if self._known[topic][0] < oldest)
        return self._untimely(records, _MAX_CLOCK_ERROR_MS)

    def _read(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._known.pop(topic, None)
            limits = _limits(self._settings, topic)
            if limits is not None and len(self._known) < _MAX_TOPICS:
                self._known[topic] = time.monotonic(), limits

    def _untimely(self, records: Sequence[MarkedRecord], error_ms: int) -> list[MarkedRecord]:
        now_ms = time.time() * 1000
        return [
            record
            for record in records
            if record.timestamp_ms
            and (known := self._known.get(record.topic)) is not None
            and not -known[1].before - error_ms <= record.timestamp_ms - now_ms <= known[1].after + error_ms
        ]


def explain(topic: str, limits: TimestampLimits | None, now: datetime) -> TimestampRefusal:
    """Returns why a timestamp was refused, given the topic's limits."""
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
