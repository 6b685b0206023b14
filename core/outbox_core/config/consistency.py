"""Checks settings that are valid one by one but do not fit together."""

from collections.abc import Iterator, Mapping
from typing import Any

from outbox_api.base.finding import Finding, Level

from outbox_core.settings import Delivery, HarvestSettings
from outbox_core.text.duration import format_duration

STOP_SECONDS = 5.0
"""Seconds within which a harvester that is told to stop has ended."""

READ_COMMITTED = Finding(
    Level.OK,
    "delivery",
    "exactly-once for consumers that set isolation.level=read_committed; others see what is aborted too",
)
"""A reminder for users of exactly-once delivery."""


def check_settings(settings: HarvestSettings) -> list[Finding]:
    """Checks the settings as a whole; asks neither database nor broker."""
    if settings.delivery is Delivery.EXACTLY_ONCE:
        reminders, wrong = [READ_COMMITTED], [*_check_times(settings), *_check_affinity(settings)]
    else:
        reminders, wrong = (
            [],
            [*_check_record_timeouts(settings), *_check_times(settings), *_check_lanes(settings)],
        )
    return [*reminders, *(wrong or [Finding(Level.OK, "limits", "times and counts fit together")])]


def _check_record_timeouts(settings: HarvestSettings) -> Iterator[Finding]:
    """Checks the timeouts of single records, which do not concern exactly-once delivery.

    In that mode no record waits behind another, so the queue timeout has no effect. And the broker refuses a
    former leader's client as soon as the new leader opens the lane, before the new leader sends anything;
    what the former leader sent until then is aborted.
    """
    limits = settings.limits
    session = _session_timeout(settings.elector.options)
    delivery = _delivery_timeout(settings.publisher.options)
    if delivery is not None and session is not None and delivery >= session:
        yield Finding(
            Level.WARNING,
            "delivery timeout",
            f"the client may send for {format_duration(delivery)}, but after a session timeout of "
            f"{format_duration(session)} another process leads: a message of the old leader can arrive "
            "behind those of the new one",
            f"set delivery.timeout.ms in harvest.producerKafkaConfig below {session * 1000:.0f}",
        )
    if delivery is not None and limits.queue_timeout <= delivery:
        yield Finding(
            Level.WARNING,
            "queue timeout",
            f"waiting records are marked anew after {format_duration(limits.queue_timeout)}, "
            f"but the record in front of them may be in flight for {format_duration(delivery)}",
            f"set harvest.limits.queueTimeout above {format_duration(delivery)}",
        )


def _check_times(settings: HarvestSettings) -> Iterator[Finding]:
    limits = settings.limits
    session = _session_timeout(settings.elector.options)
    available = STOP_SECONDS if session is None else min(session, STOP_SECONDS)
    if limits.min_poll_interval * 2 > limits.heartbeat_timeout:
        yield Finding(
            Level.WARNING,
            "poll interval",
            f"with a poll every {format_duration(limits.min_poll_interval)}, leadership is confirmed at most "
            f"once within the heartbeat timeout of {format_duration(limits.heartbeat_timeout)}",
            "set harvest.limits.minPollInterval to less than half of heartbeatTimeout",
        )
    if limits.drain_interval >= available:
        yield Finding(
            Level.WARNING,
            "drain interval",
            f"a leader that is told to stop waits up to {format_duration(limits.drain_interval)} for what is "
            f"in flight, but must end within {format_duration(available)}",
            f"set harvest.limits.drainInterval below {format_duration(available)}",
        )


def _check_lanes(settings: HarvestSettings) -> Iterator[Finding]:
    """Checks limits that lanes share; a lane of exactly-once delivery does not share its limits."""
    limits = settings.limits
    if limits.max_in_flight_records < limits.send_concurrency:
        yield Finding(
            Level.WARNING,
            "lanes",
            f"{limits.send_concurrency} lanes share {limits.max_in_flight_records} records in flight, "
            "and each takes at least one",
            "set harvest.limits.sendConcurrency to no more than maxInFlightRecords",
        )


def _check_affinity(settings: HarvestSettings) -> Iterator[Finding]:
    """Says what exactly-once delivery promises where several clusters harvest copies of a table.

    A checkpoint is in the log of one cluster's broker, so it says nothing to another cluster.
    """
    if settings.affinity.driver != "none":
        yield Finding(
            Level.WARNING,
            "affinity",
            f"with the affinity '{settings.affinity.driver}' delivery is exactly once within a cluster, and "
            "across clusters only while nobody takes over: a cluster that takes over records of another "
            "cannot know which of them that one has published",
            "let consumers tolerate repeats after a takeover, and keep the maximum delay well above the "
            "longest replication delay",
        )


def _session_timeout(elector: Any) -> float | None:
    """Returns the elector's session timeout in seconds; ``None`` if its options do not say."""
    if (written := _milliseconds(elector, "session.timeout.ms")) is not None:
        return written
    own = getattr(elector, "session_timeout", None)
    return float(own) if isinstance(own, int | float) else None


def _delivery_timeout(publisher: Any) -> float | None:
    """Returns the publisher's delivery timeout in seconds; ``None`` if its options do not say."""
    for name in ("delivery.timeout.ms", "message.timeout.ms"):
        if (written := _milliseconds(publisher, name)) is not None:
            return written
    return None


def _milliseconds(options: Any, name: str) -> float | None:
    """Returns, in seconds, a time from the Kafka settings among a driver's options."""
    kafka = getattr(options, "kafka", None)
    try:
        return float(str(kafka[name])) / 1000 if isinstance(kafka, Mapping) and name in kafka else None
    except ValueError:
        return None  # the driver reports it
