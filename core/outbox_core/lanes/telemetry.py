"""What a lane says of itself: its reading, written beside the fence now and then, its events, and its log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from outbox_sdk import Failure, Parked, Poison

from outbox_core.delivery.retries import Policy
from outbox_core.events import Event
from outbox_core.lanes.table_thread import TableThread
from outbox_core.leadership.protocol import BEAT_SECONDS
from outbox_core.metrics import Reading, as_numbers

log = logging.getLogger(__name__)

LEAST_BEAT_SECONDS = 1.0
"""Between two readings, at least: each is a transaction."""

TOLD_MOST = 5
"""Failures told one by one; of many at once (say, the broker is away) the rest are only counted."""


class Diary:
    """One lane's reading, events and log.

    Args:
        lane: The lane's number.
        interval: Seconds between two readings beside the fence.
        now: The present time in seconds.

    Attributes:
        reading: What the lane has done, and its gauges.
    """

    def __init__(self, lane: int, interval: float, now: float) -> None:
        self.reading = Reading()
        self._events: deque[Event] = deque()
        self._lane = lane
        self._interval = max(interval, LEAST_BEAT_SECONDS)
        self._next_beat = now + self._interval
        self._beaten = (now, 0)
        self._next_gauge = 0.0
        self._parked = Parked(0, None)
        self._done_before = 0

    def tell(self, event: Event) -> None:
        """Keeps an event until somebody takes it."""
        self._events.append(event)

    def take_events(self) -> list[Event]:
        """Returns the events since the last call; for one thread, beside the lane's own."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def gauge(
        self,
        now: float,
        writer: TableThread,
        policy: Policy,
        troubled: Callable[[float], tuple[int, float]],
        more: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        """Brings the slow gauges up to date, and has the reading written when that is due.

        Args:
            now: The time.
            writer: Writes the reading, and counts what is parked.
            policy: Learns how much is parked.
            troubled: Returns how many keys have failed, and for how many seconds the first of them.
            more: Returns what is to be written with the reading.
        """
        reading = self.reading
        if now >= self._next_gauge:
            self._next_gauge = now + BEAT_SECONDS
            reading.held, blocked = troubled(now)
            reading.blocked_seconds = round(blocked, 1)
            if writer.parked is not self._parked:  # counted anew since; a park of ours may come on top
                self._parked = writer.parked
                policy.counted(self._parked.keys, self._done_before)
            reading.parked, reading.parked_seconds = policy.parked, self._parked.oldest or 0.0
        if now >= self._next_beat:
            since, purged = self._beaten
            self._done_before = policy.done
            rate = (reading.purged - purged) / (now - since)
            writer.beat({**as_numbers(reading, rate), **more()})
            self._beaten = (now, reading.purged)
            self._next_beat = now + self._interval

    def failed(self, failures: Sequence[Failure]) -> None:
        """Counts and logs records that were not delivered."""
        self.reading.failed += len(failures)
        for failure in failures[:TOLD_MOST]:
            record = failure.record
            log.warning(
                "lane %d: record %d of topic %r was not delivered and its key %r is held: %s",
                self._lane,
                record.id,
                record.topic,
                record.key,
                failure.reason,
            )
        if (untold := len(failures) - TOLD_MOST) > 0:
            log.warning("lane %d: and %d more records were not delivered", self._lane, untold)

    def parked(self, poisons: Sequence[Poison], keys: int) -> None:
        """Logs records whose keys were to be parked, of which so many are."""
        if keys < len(poisons):
            log.warning("lane %d: %d of %d keys could be parked", self._lane, keys, len(poisons))
            return
        for poison in poisons[:TOLD_MOST]:
            log.warning(
                "lane %d: record %d and its key are parked after %d attempts ('outbox parked list'): %s",
                self._lane,
                poison.id,
                poison.attempts,
                poison.reason,
            )
        if (untold := len(poisons) - TOLD_MOST) > 0:
            log.warning("lane %d: and %d more keys are parked", self._lane, untold)
