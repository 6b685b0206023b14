"""A lane's telemetry: metrics, which heartbeats write beside the fence; measurements; events; and its log."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from time import time

from outbox_api import (
    Deliveries,
    DriverError,
    Failure,
    LeadershipLost,
    MarkedRecord,
    Parked,
    Poison,
    Repartitioned,
    RolledBack,
)
from outbox_api.seams.parking import LONGEST_KEY

from outbox_core.control.protocol import REPORT_SECONDS
from outbox_core.delivery.coalescing import Coalesced
from outbox_core.delivery.held import FAILING_KEYS, HeldTopics
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.events import LaneEvent
from outbox_core.events.measurements import LaneWork, Measurements, SendTimes, count_topics
from outbox_core.events.metrics import LaneMetrics, as_numbers
from outbox_core.events.recent import RecentWork
from outbox_core.lanes.takeovers import TakeoverLog
from outbox_core.lanes.unacknowledged import Unacknowledged
from outbox_core.settings import MIN_HEARTBEAT_SECONDS
from outbox_core.settings.logs import KeyNames

log = logging.getLogger("outbox.lanes")

FIRST_HEARTBEAT_SECONDS = 0.5
"""The time from a lane's start to its first heartbeat, by which others learn who leads, and by what."""
LEAST_SECONDS = 0.1
"""The least time between two heartbeats."""
MAX_REPORTED = 5
"""Failures that are logged one by one; if there are more at once, the rest is only counted."""
REPORTED_SECONDS = 0.001
"""Reports of the publisher within so many seconds are measured as one."""
MAX_UNCOUNTED = 500
"""So many acknowledged records are kept at most until their topics are counted."""

_topic = attrgetter("topic")


class Telemetry:
    """One lane's metrics, events and log, whose lines wait for :meth:`write_lines`: a log may block."""

    def __init__(
        self,
        lane: int,
        interval: float,
        now: float,
        takeovers: TakeoverLog | None = None,
        *,
        key_names: KeyNames | None = None,
        wall_clock: Callable[[], float] = time,
        unacknowledged: Unacknowledged | None = None,
    ) -> None:
        self._wall_clock = wall_clock
        self.metrics = LaneMetrics()
        self.measurements = Measurements()
        self._send_times = SendTimes()
        self._reported, self._reported_at = 0, now  # reports that are not measured yet, from when on
        self._delivered: list[tuple[float, list[MarkedRecord]]] = []
        """Records that are not counted yet, and the time of day when they were delivered."""
        self._uncounted = 0  # how many these are
        self._recent = RecentWork(now)
        self._blocked_by = ""  # why the key that failed first fails; empty if none does
        self.takeovers = takeovers or TakeoverLog(lane)
        self.unacknowledged = unacknowledged or Unacknowledged()
        self.opened = False  # whether the lane has begun to work
        self._events: deque[LaneEvent] = deque()
        self._lines: deque[Callable[[], None]] = deque()
        self._lane = lane
        self._key_names = key_names or KeyNames()
        self._interval = max(interval, MIN_HEARTBEAT_SECONDS)
        self._next_heartbeat = now + FIRST_HEARTBEAT_SECONDS
        self._last_heartbeat = (now, 0)
        self._heartbeat_outstanding = False
        self._next_gauge = 0.0
        self._parked_before = 0

    @property
    def work(self) -> LaneWork:
        """What the lane has done until now. Goes on changing: add it to something to have a copy."""
        return LaneWork(self.metrics, self.measurements)

    def add_event(self, event: LaneEvent) -> None:
        """Adds an event for :meth:`take_events`."""
        self._events.append(event)

    def take_events(self) -> list[LaneEvent]:
        """Returns the events since the last call. One thread other than the lane's may call it."""
        return [self._events.popleft() for _ in range(len(self._events))]

    @property
    def has_lines(self) -> bool:
        """Whether lines wait to be written."""
        return bool(self._lines)

    def write_lines(self) -> None:
        """Writes the lines that wait. Several threads may call it."""
        while self._lines:
            with suppress(IndexError):  # another thread writes them, too
                self._lines.popleft()()

    def warn(self, text: str, *arguments: object, extra: Mapping[str, object] | None = None) -> None:
        """Adds a warning for :meth:`write_lines`."""
        self._lines.append(partial(log.warning, text, *arguments, extra=extra))

    def marked(self, now: float, source: int, records: int) -> None:
        """Counts what a mark or selection of a source returned; tells when a takeover begins with it."""
        self.metrics.marked += records
        metrics = self.metrics
        if not (records or metrics.in_flight or metrics.waiting or metrics.held):
            self.unacknowledged.idle()
        cluster = self.takeovers.cluster_of(source)
        if cluster is not None and records:
            self.metrics.taken_over += records
            if event := self.takeovers.add(now, cluster, records):
                self.add_event(event)
                why = "as it was told to" if event.deliberate else "which has not published them in time"
                self.warn("lane %d takes over records of cluster %d, %s", self._lane, cluster, why)

    def coalesced(self, found: Coalesced, seconds: float, *, is_first: bool) -> None:
        """Counts records that were superseded; says so at the first ones of a backlog."""
        self.measurements.step("coalesce", seconds, found.superseded)
        self.metrics.superseded += found.superseded
        if is_first:
            self._lines.append(
                partial(
                    log.info,
                    "lane %d: a backlog waits: only the newest records of its keys are sent",
                    self._lane,
                )
            )

    def no_longer_coalesced(self, number: int) -> None:
        """Says how many records a backlog had that were not sent; nothing for none."""
        if number:
            text = "lane %d: %s records were not sent, as later ones of their keys waited"
            self._lines.append(partial(log.info, text, self._lane, f"{number:,}"))

    def failed_to_answer(self, now: float, error: Exception, seconds: float) -> None:
        """Handles an error after so many seconds; what has waited in vain has been due since it began.

        So a leader whose database is silent hands over as one does whose broker is.
        """
        if isinstance(error, DriverError) and error.retryable and not isinstance(error, RolledBack):
            self.unacknowledged.due(now - seconds)

    def sending(self, now: float, records: Sequence[MarkedRecord]) -> None:
        """Counts records that are handed to the publisher one by one."""
        self.metrics.sent += len(records)
        self._send_times.sent(now, len(records))
        if records:
            self.measurements.size("publish", len(records))
            self.unacknowledged.due(now)

    def publishing(self, now: float, records: Sequence[MarkedRecord]) -> None:
        """Counts the records of a transaction that begins."""
        self.metrics.sent += len(records)
        self.unacknowledged.due(now)

    def published(
        self, now: float, records: Sequence[MarkedRecord], failures: Sequence[Failure], seconds: float
    ) -> None:
        """Handles what became of a transaction, after so many seconds."""
        self.measurements.step("publish", seconds, len(records))
        self.measurements.operations.add(seconds)
        if failures:
            count_topics(self.measurements.failed, _by_topic(records))
            self.metrics.aborted += 1
            self.unacknowledged.failed(now, failures)
        else:
            self._published([(self._wall_clock(), records)])
            self.unacknowledged.answered()

    def reported(self, now: float, deliveries: Deliveries) -> None:
        """Measures how long the publisher took for records that were handed to it one by one.

        The publisher reports of few records at a time, so those of about a millisecond are measured as one,
        and their topics are counted by :meth:`settle`.
        """
        delivered, failed = deliveries.delivered, deliveries.failed
        if is_later := now - self._reported_at > REPORTED_SECONDS:
            self._measure_reported(now)
        self._reported += len(delivered) + len(failed)
        if failed:
            count_topics(self.measurements.failed, _by_topic(failure.record for failure in failed))
            self.unacknowledged.failed(now, failed)
        if delivered:
            if is_later or not self._delivered:
                self._delivered.append((self._wall_clock(), []))
            self._delivered[-1][1].extend(delivered)
            self._uncounted += len(delivered)
            if self._uncounted >= MAX_UNCOUNTED:
                self._count_delivered()
            self.unacknowledged.answered()

    def settle(self) -> None:
        """Measures what was reported until now; a lane calls it several times a second, and at its end."""
        self._measure_reported(self._reported_at)
        self._count_delivered()

    def _measure_reported(self, now: float) -> None:
        if self._reported:
            self._send_times.reported(self._reported_at, self._reported, self.measurements)
        self._reported, self._reported_at = 0, now

    def _count_delivered(self) -> None:
        if self._delivered:
            self._published(self._delivered)
            self._delivered, self._uncounted = [], 0

    def _published(self, delivered: Sequence[tuple[float, Sequence[MarkedRecord]]]) -> None:
        records = chain.from_iterable(some for _, some in delivered)
        count_topics(self.measurements.published, _by_topic(records))
        for at, some in delivered:
            for created in [record.created for record in some if record.created is not None]:
                self.measurements.deliveries.add(at - created)

    def gauge(
        self,
        now: float,
        policy: RetryPolicy,
        blocked: Callable[[float], tuple[int, float, str]],
        topics: HeldTopics,
    ) -> None:
        """Updates the gauges that are expensive to read, a few times a second.

        ``blocked`` returns how many keys have failed, for how many seconds the first of them, and why.
        """
        self.opened = True
        if now >= self._next_gauge:
            self._next_gauge = now + REPORT_SECONDS
            self.settle()
            metrics = self.metrics
            metrics.held, seconds, self._blocked_by = blocked(now)
            metrics.blocked_seconds = round(seconds, 1)
            metrics.held_topics = len(topics.held)
            metrics.parked = policy.parked

    def heartbeat_due(self) -> float:
        """Returns when :meth:`next_heartbeat` is due."""
        return float("inf") if self._heartbeat_outstanding else self._next_heartbeat

    def hurry(self, now: float) -> None:
        """Has the next heartbeat be soon, as it has news."""
        self._next_heartbeat = min(self._next_heartbeat, max(now, self._last_heartbeat[0] + LEAST_SECONDS))

    def next_heartbeat(
        self, now: float, policy: RetryPolicy, more: Mapping[str, object]
    ) -> Mapping[str, object]:
        """Returns what to write beside the fence; answered by :meth:`beaten` or :meth:`not_beaten`."""
        since, purged = self._last_heartbeat
        rate = (self.metrics.purged - purged) / max(now - since, LEAST_SECONDS)
        self._last_heartbeat = now, self.metrics.purged
        self._next_heartbeat, self._heartbeat_outstanding = now + self._interval, True
        self._parked_before = policy.done
        recent = self._recent.as_data(now, self.measurements)
        told = {**recent, **self.takeovers.as_data(now), **self.unacknowledged.told(now)}
        if self._blocked_by:
            told["blocked_by"] = self._blocked_by
        return {**as_numbers(self.metrics, rate), **told, **more}

    def beaten(self, parked: Parked, policy: RetryPolicy) -> None:
        """Handles that the heartbeat is written, and how much was parked then."""
        self._heartbeat_outstanding = False
        self.counted(parked, policy, self._parked_before)

    def not_beaten(self, error: Exception) -> None:
        """Handles an error of the heartbeat. One of the database does not end the lane."""
        self._heartbeat_outstanding = False
        if not isinstance(error, DriverError | LeadershipLost):  # the next purge reports it, too
            raise error
        self._lines.append(partial(log.debug, "lane %d: metrics not written: %s", self._lane, error))

    def counted(self, parked: Parked, policy: RetryPolicy, done_before: int) -> None:
        """Sets the number of parked keys, counted when this lane had parked ``done_before`` keys."""
        policy.counted(parked.keys, done_before)
        self.metrics.parked_seconds = parked.oldest or 0.0

    def failed(self, failures: Sequence[Failure], held_topics: Sequence[str] = ()) -> None:
        """Counts and logs records that were not delivered, and topics that are held since."""
        self.metrics.failed += len(failures)
        for topic in held_topics:
            self.warn(
                "lane %d: the topic %r is held as a whole: %d keys of it failed, and no record of it was"
                " delivered meanwhile; its records wait and are tried now and then, all other topics go on",
                *(self._lane, topic[:LONGEST_KEY], FAILING_KEYS),
                extra={"always": True},
            )
        for failure in failures[:MAX_REPORTED]:
            record = failure.record
            self.warn(
                "lane %d: record %d of topic %r was not delivered and its key %s is held: %s",
                self._lane,
                record.id,
                record.topic[:LONGEST_KEY],
                self._key_names.of(record.key),
                failure.reason,
                extra={"error": failure.reason},
            )
        if (unreported := len(failures) - MAX_REPORTED) > 0:
            self.warn("lane %d: and %d more records were not delivered", self._lane, unreported)

    def repartitioned(self, changed: Sequence[Repartitioned]) -> None:
        """Counts and logs topics whose partitions have changed while their records were delivered."""
        self.metrics.repartitioned += len(changed)
        for each in changed:
            self.warn(
                "lane %d: the topic %r has %d partitions instead of %d, and its records were not paused: keys"
                " have moved, and consumers may read records of a key out of order; to add partitions in"
                " order, use 'outbox partitions add' (docs/runbook.md, OutboxPartitionsChanged)",
                *(self._lane, each.topic[:LONGEST_KEY], each.now, each.before),
                extra={"always": True},
            )

    def parked(self, poisons: Sequence[Poison], keys: int) -> None:
        """Logs records whose keys were to be parked, and of which ``keys`` were."""
        if keys < len(poisons):
            self.warn("lane %d: %d of %d keys could be parked", self._lane, keys, len(poisons))
            return
        for poison in poisons[:MAX_REPORTED]:
            self.warn(
                "lane %d: record %d and its key are parked after %d attempts ('outbox parked list'): %s",
                self._lane,
                poison.id,
                poison.attempts,
                poison.reason,
                extra={"error": poison.reason, "always": True},  # happens once to a key
            )
        if (unreported := len(poisons) - MAX_REPORTED) > 0:
            self.warn("lane %d: and %d more keys are parked", self._lane, unreported)


def _by_topic(records: Iterable[MarkedRecord]) -> Counter[str]:
    return Counter(map(_topic, records))
