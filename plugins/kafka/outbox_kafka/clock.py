"""Whether a broker refused a timestamp of ours for this machine's clock, or for the topic's settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # public, but not in its types
from outbox_sdk import OutboxError

from outbox_kafka.topics import Administration

_SOUND_MS: Final = 60_000
"""Milliseconds by which a clock that somebody looks after is never wrong, the way of a record included."""

_FAR_MS: Final = 10 * 365 * 24 * 3600 * 1000
"""Milliseconds that are as good as no bound."""

_REACH: Final = 5.0
"""Seconds to wait for the broker's answer."""

_PRODUCERS: Final = frozenset(
    {"acks", "delivery.report.only.error", "enable.idempotence", "transaction.timeout.ms", "transactional.id"}
)
"""Settings that would make an administrator a producer of records."""

_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"


class Bounds(NamedTuple):
    """What a topic permits.

    Attributes:
        before: How many milliseconds the time of a record may be before the broker's.
        after: How many it may be after it.
    """

    before: int
    after: int


class Verdict(NamedTuple):
    """Why a timestamp of ours was refused.

    Attributes:
        clock: Whether this machine's clock is to blame.
        reason: What to tell people.
    """

    clock: bool
    reason: str


def judge(settings: Mapping[str, Any], topic: str) -> Verdict:
    """Says why a broker refused a record of ``topic`` that was given the time just then.

    Takes up to 5 s. Where the topic's settings may not be read, the clock is blamed.

    Args:
        settings: The producer's settings.
        topic: The record's topic.
    """
    return verdict(topic, _bounds(settings, topic), datetime.now(UTC))


def verdict(topic: str, bounds: Bounds | None, now: datetime) -> Verdict:
    """Judges by what the topic permits.

    Args:
        topic: The topic.
        bounds: Its bounds, ``None`` if they are not known.
        now: What this machine's clock says.
    """
    said = f"Kafka refuses the time of this machine's clock, {now:%Y-%m-%dT%H:%M:%SZ}, for topic '{topic}'"
    if bounds is None:
        return Verdict(
            clock=True, reason=f"{said}: correct the clock, or look at {_BEFORE} and {_AFTER} of the topic"
        )
    if min(bounds) < _SOUND_MS:
        why = f"{said}, which permits {bounds.before} ms before and {bounds.after} ms after its own"
        return Verdict(clock=False, reason=f"{why}; raise {_BEFORE} and {_AFTER} of the topic")
    wrong = " or ".join(
        f"more than {bound // 1000} s {side}"
        for bound, side in ((bounds.after, "ahead of"), (bounds.before, "behind"))
        if bound < _FAR_MS
    )
    return Verdict(clock=True, reason=f"{said}: it is {wrong or 'far from'} the broker's; correct the clock")


def _bounds(settings: Mapping[str, Any], topic: str) -> Bounds | None:
    own = {name: value for name, value in settings.items() if name not in _PRODUCERS}
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        admin = Administration(own).client
        [future] = admin.describe_configs([resource], request_timeout=_REACH).values()
        values = {name: entry.value for name, entry in future.result().items()}
        return Bounds(int(values[_BEFORE]), int(values[_AFTER]))
    except (KafkaException, OutboxError, KeyError, TypeError):  # not permitted, not in time, not told
        return None
