"""A lane's telemetry: metrics, which heartbeats write beside the fence; events; and log messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from outbox_sdk import DriverError, Failure, LeadershipLost, Parked, Poison

from outbox_core.delivery.commands import Answer, Heartbeat
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.events import LaneEvent
from outbox_core.lanes.takeovers import TakeoverLog
from outbox_core.leadership.protocol import REPORT_SECONDS
from outbox_core.metrics import LaneMetrics, as_numbers

log = logging.getLogger(__name__)

MIN_HEARTBEAT_SECONDS = 1.0
"""The least time between two heartbeats, each of which is a transaction."""

MAX_REPORTED = 5
"""Failures that are logged one by one; if there are more at once, the rest is only counted."""


class Telemetry:
    """One lane's metrics, events and log.

    Args:
        lane: The lane's number.
        interval: Seconds between two heartbeats.
        now: The present time in seconds.
        takeovers: What the lane has taken over under this leader.

    Attributes:
        metrics: The lane's counters and gauges.
        takeovers: As given.
    """

    def __init__(self, lane: int, interval: float, now: float, takeovers: TakeoverLog | None = None) -> None:
        self.metrics = LaneMetrics()
        self.takeovers = takeovers or TakeoverLog(lane)
        self._events: deque[LaneEvent] = deque()
        self._lane = lane
        self._interval = max(interval, MIN_HEARTBEAT_SECONDS)
        self._next_heartbeat = now + self._interval
        self._last_heartbeat = (now, 0)
        self._heartbeat_outstanding = False
        self._next_gauge = 0.0
        self._parked_before = 0

    def add_event(self, event: LaneEvent) -> None:
        """Adds an event for :meth:`take_events`."""
        self._events.append(event)

    def take_events(self) -> list[LaneEvent]:
        """Returns the events since the last call. One thread other than the lane's may call it."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def marked(self, now: float, source: int, records: int) -> None:
        """Counts what a mark or selection of a source returned; tells when a takeover begins with it."""
        self.metrics.marked += records
        cluster = self.takeovers.cluster_of(source)
        if cluster is not None and records:
            self.metrics.taken_over += records
            if event := self.takeovers.add(now, cluster, records):
                self.add_event(event)

    def gauge(self, now: float, policy: RetryPolicy, blocked: Callable[[float], tuple[int, float]]) -> None:
        """Updates the gauges that are expensive to read, a few times a second.

        Args:
            now: The time.
            policy: Knows how much is parked.
            blocked: Returns how many keys have failed, and for how many seconds the first of them.
        """
        if now >= self._next_gauge:
            self._next_gauge = now + REPORT_SECONDS
            metrics = self.metrics
            metrics.held, seconds = blocked(now)
            metrics.blocked_seconds = round(seconds, 1)
            metrics.parked = policy.parked

    def heartbeat(
        self, now: float, policy: RetryPolicy, more: Callable[[], Mapping[str, object]] = dict
    ) -> list[Heartbeat]:
        """Returns the heartbeat if one is due and the one before was answered.

        Args:
            now: The time.
            policy: Takes the number of parked keys from the answer.
            more: Returns what to write besides the metrics.
        """
        if now < self._next_heartbeat or self._heartbeat_outstanding:
            return []
        since, purged = self._last_heartbeat
        rate = (self.metrics.purged - purged) / (now - since)
        self._last_heartbeat, self._next_heartbeat, self._heartbeat_outstanding = (
            (now, self.metrics.purged),
            now + self._interval,
            True,
        )
        self._parked_before = policy.done
        return [Heartbeat({**as_numbers(self.metrics, rate), **self.takeovers.as_data(now), **more()})]

    def answered(self, answer: Answer, policy: RetryPolicy) -> None:
        """Handles the answer to a heartbeat. An error of the database has no consequence.

        Raises:
            Exception: The heartbeat failed with another error than one of the database.
        """
        self._heartbeat_outstanding = False
        if isinstance(answer.error, DriverError | LeadershipLost):  # the next purge reports it, too
            log.debug("lane %d: metrics not written: %s", self._lane, answer.error)
        elif answer.error is not None:
            raise answer.error
        elif answer.parked is not None:
            self.counted(answer.parked, policy, self._parked_before)

    def counted(self, parked: Parked, policy: RetryPolicy, done_before: int) -> None:
        """Sets the number of parked keys, counted when this lane had parked ``done_before`` keys."""
        policy.counted(parked.keys, done_before)
        self.metrics.parked_seconds = parked.oldest or 0.0

    def failed(self, failures: Sequence[Failure]) -> None:
        """Counts and logs records that were not delivered."""
        self.metrics.failed += len(failures)
        for failure in failures[:MAX_REPORTED]:
            record = failure.record
            log.warning(
                "lane %d: record %d of topic %r was not delivered and its key %r is held: %s",
                self._lane,
                record.id,
                record.topic,
                record.key,
                failure.reason,
            )
        if (unreported := len(failures) - MAX_REPORTED) > 0:
            log.warning("lane %d: and %d more records were not delivered", self._lane, unreported)

    def parked(self, poisons: Sequence[Poison], keys: int) -> None:
        """Logs records whose keys were to be parked, and of which ``keys`` were."""
        if keys < len(poisons):
            log.warning("lane %d: %d of %d keys could be parked", self._lane, keys, len(poisons))
            return
        for poison in poisons[:MAX_REPORTED]:
            log.warning(
                "lane %d: record %d and its key are parked after %d attempts ('outbox parked list'): %s",
                self._lane,
                poison.id,
                poison.attempts,
                poison.reason,
            )
        if (unreported := len(poisons) - MAX_REPORTED) > 0:
            log.warning("lane %d: and %d more keys are parked", self._lane, unreported)
