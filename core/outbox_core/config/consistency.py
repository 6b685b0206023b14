"""Finds settings that are right one by one and wrong together."""

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_sdk.finding import Finding, Level

from outbox_core.config.duration import format_duration
from outbox_core.config.settings import Delivery, HarvestSettings

LEAVE_SECONDS = 5.0
"""A harvester that is told to stop is gone after this."""

_SESSION_SECONDS = 10.0
_DELIVERY_SECONDS = 8.0
"""What the default elector and publisher use where nothing is set."""


def look(settings: HarvestSettings) -> list[Finding]:
    """Returns what is to be said about the settings as a whole; needs neither database nor broker."""
    found = [*_delivery(settings), *_times(settings), *_counts(settings)]
    return found or [Finding(Level.OK, "limits", "times and counts fit together")]


def _delivery(settings: HarvestSettings) -> Iterator[Finding]:
    if settings.delivery is Delivery.EXACTLY_ONCE:
        yield Finding(
            Level.ERROR,
            "delivery",
            "exactly-once does not exist yet",
            "set harvest.delivery to at-least-once",
        )


def _times(settings: HarvestSettings) -> Iterator[Finding]:
    limits = settings.limits
    session = _seconds(settings.elector.options, "session.timeout.ms", _SESSION_SECONDS)
    delivery = _seconds(
        settings.publisher.options, "delivery.timeout.ms", _DELIVERY_SECONDS, alias="message.timeout.ms"
    )
    if delivery >= session:
        yield Finding(
            Level.WARNING,
            "delivery timeout",
            f"the client may go on sending for {_(delivery)}, and after {_(session)} without a sign of life "
            "another process leads: a message of the old leader can arrive behind those of the new one",
            f"set delivery.timeout.ms in harvest.producerKafkaConfig below {session * 1000:.0f}",
        )
    if limits.heartbeat_timeout >= session:
        yield Finding(
            Level.WARNING,
            "heartbeat timeout",
            f"a leader gives up {_(limits.heartbeat_timeout)} after its last confirmation, "
            f"and its successor is elected after {_(session)}",
            f"set harvest.limits.heartbeatTimeout below {_(session)}",
        )
    if limits.min_poll_interval * 2 > limits.heartbeat_timeout:
        yield Finding(
            Level.WARNING,
            "poll interval",
            f"polled every {_(limits.min_poll_interval)}, leadership can be confirmed hardly more than once "
            f"in the {_(limits.heartbeat_timeout)} after which the leader gives up",
            "set harvest.limits.minPollInterval to less than half of heartbeatTimeout",
        )
    if limits.queue_timeout <= delivery:
        yield Finding(
            Level.WARNING,
            "queue timeout",
            f"records are marked anew after {_(limits.queue_timeout)}, "
            f"while the one in front of them may be under way for {_(delivery)}",
            f"set harvest.limits.queueTimeout above {_(delivery)}",
        )
    if limits.drain_interval >= min(session, LEAVE_SECONDS):
        yield Finding(
            Level.WARNING,
            "drain interval",
            f"a leader that is told to stop waits up to {_(limits.drain_interval)} for what is in flight, "
            f"but has {_(min(session, LEAVE_SECONDS))}",
            f"set harvest.limits.drainInterval below {_(min(session, LEAVE_SECONDS))}",
        )


def _counts(settings: HarvestSettings) -> Iterator[Finding]:
    limits = settings.limits
    if limits.max_in_flight_records < limits.send_concurrency:
        yield Finding(
            Level.WARNING,
            "lanes",
            f"{limits.send_concurrency} lanes share {limits.max_in_flight_records} records in flight, "
            "and each takes at least one",
            "set harvest.limits.sendConcurrency to no more than maxInFlightRecords",
        )


def _seconds(options: Any, name: str, default: float, alias: str = "") -> float:
    """Returns a time limit from the Kafka settings that a driver was given; the default for other drivers."""
    kafka = getattr(options, "kafka", None)
    if not isinstance(kafka, Mapping):
        return default
    written = kafka.get(name) or kafka.get(alias)
    try:
        return float(str(written)) / 1000 if written else default
    except ValueError:
        return default  # the driver itself says what is wrong with it


def _(seconds: float) -> str:
    return format_duration(seconds)
