"""Finds settings that are right one by one and wrong together."""

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_sdk.finding import Finding, Level

from outbox_core.config.duration import format_duration
from outbox_core.config.settings import Delivery, HarvestSettings

LEAVE_SECONDS = 5.0
"""A harvester that is told to stop is gone after this."""

READ_COMMITTED = Finding(
    Level.OK,
    "delivery",
    "exactly-once for consumers that set isolation.level=read_committed; others see what is aborted too",
)
"""What those who choose exactly-once delivery have to know."""


def look(settings: HarvestSettings) -> list[Finding]:
    """Returns what is to be said about the settings as a whole; needs neither database nor broker."""
    if settings.delivery is Delivery.EXACTLY_ONCE:
        reminders, wrong = [READ_COMMITTED], [*_times(settings), *_clusters(settings)]
    else:
        reminders, wrong = [], [*_records(settings), *_times(settings), *_counts(settings)]
    return [*reminders, *(wrong or [Finding(Level.OK, "limits", "times and counts fit together")])]


def _records(settings: HarvestSettings) -> Iterator[Finding]:
    """Looks at the times of single records, which do not matter to exactly-once delivery.

    There nothing waits behind a record in front, so the queue timeout has nothing to end. And a client that
    goes on sending is refused by the broker as soon as the new leader opens the lane, before it sends
    anything itself; what was sent until then is aborted.
    """
    limits = settings.limits
    session = _session(settings.elector.options)
    delivery = _delivery_timeout(settings.publisher.options)
    if delivery is not None and session is not None and delivery >= session:
        yield Finding(
            Level.WARNING,
            "delivery timeout",
            f"the client may go on sending for {_(delivery)}, and after {_(session)} without a sign of life "
            "another process leads: a message of the old leader can arrive behind those of the new one",
            f"set delivery.timeout.ms in harvest.producerKafkaConfig below {session * 1000:.0f}",
        )
    if delivery is not None and limits.queue_timeout <= delivery:
        yield Finding(
            Level.WARNING,
            "queue timeout",
            f"records are marked anew after {_(limits.queue_timeout)}, "
            f"while the one in front of them may be under way for {_(delivery)}",
            f"set harvest.limits.queueTimeout above {_(delivery)}",
        )


def _times(settings: HarvestSettings) -> Iterator[Finding]:
    limits = settings.limits
    session = _session(settings.elector.options)
    leave = LEAVE_SECONDS if session is None else min(session, LEAVE_SECONDS)
    if limits.min_poll_interval * 2 > limits.heartbeat_timeout:
        yield Finding(
            Level.WARNING,
            "poll interval",
            f"polled every {_(limits.min_poll_interval)}, leadership can be confirmed hardly more than once "
            f"in the {_(limits.heartbeat_timeout)} after which the leader gives up",
            "set harvest.limits.minPollInterval to less than half of heartbeatTimeout",
        )
    if limits.drain_interval >= leave:
        yield Finding(
            Level.WARNING,
            "drain interval",
            f"a leader that is told to stop waits up to {_(limits.drain_interval)} for what is in flight, "
            f"but has {_(leave)}",
            f"set harvest.limits.drainInterval below {_(leave)}",
        )


def _counts(settings: HarvestSettings) -> Iterator[Finding]:
    """Looks at what lanes share; those of exactly-once delivery have batches of their own."""
    limits = settings.limits
    if limits.max_in_flight_records < limits.send_concurrency:
        yield Finding(
            Level.WARNING,
            "lanes",
            f"{limits.send_concurrency} lanes share {limits.max_in_flight_records} records in flight, "
            "and each takes at least one",
            "set harvest.limits.sendConcurrency to no more than maxInFlightRecords",
        )


def _clusters(settings: HarvestSettings) -> Iterator[Finding]:
    """Finds what exactly-once delivery cannot know: one broker keeps the checkpoints, for one database."""
    if settings.affinity.driver != "none":
        yield Finding(
            Level.WARNING,
            "affinity",
            f"exactly-once holds within one cluster: with the affinity '{settings.affinity.driver}' one that "
            "takes over another's records cannot know which of them were published",
            "set harvest.affinity to none, or see to it that no cluster takes over records of another",
        )


def _session(elector: Any) -> float | None:
    """Returns after how long the elector elects somebody else; ``None`` where its options do not say."""
    if (written := _milliseconds(elector, "session.timeout.ms")) is not None:
        return written
    own = getattr(elector, "session_timeout", None)
    return float(own) if isinstance(own, int | float) else None


def _delivery_timeout(publisher: Any) -> float | None:
    """Returns for how long the publisher tries to send one record; ``None`` where its options do not say."""
    for name in ("delivery.timeout.ms", "message.timeout.ms"):
        if (written := _milliseconds(publisher, name)) is not None:
            return written
    return None


def _milliseconds(options: Any, name: str) -> float | None:
    """Returns, in seconds, a time from the Kafka settings that a driver was given."""
    kafka = getattr(options, "kafka", None)
    try:
        return float(str(kafka[name])) / 1000 if isinstance(kafka, Mapping) and name in kafka else None
    except ValueError:
        return None  # the driver itself says what is wrong with it


def _(seconds: float) -> str:
    return format_duration(seconds)
