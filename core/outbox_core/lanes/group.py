"""A lane group: the lanes that one engine task runs, on threads; it reports to the leader for all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from uuid import uuid4

from outbox_api import DriverError, LeadershipLost
from outbox_api.support.context_thread import as_exception

from outbox_core.control.protocol import REPORT_SECONDS, ControlChannel, LaneControl, Refusal, Report
from outbox_core.events import LaneEvent
from outbox_core.events.measurements import LaneWork, Measurements
from outbox_core.events.metrics import LaneMetrics
from outbox_core.lanes.lane import Threads
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.takeovers import TakeoverLog
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.lanes.unacknowledged import Unacknowledged
from outbox_core.settings.logs import KeyNames
from outbox_core.text.log_context import log_about

log = logging.getLogger("outbox.lanes")

ORPHAN_SECONDS = 10.0
"""How long after its lease a group that cannot reach its leader ends."""
MEASURE_SECONDS = 1.0
"""The interval between two reports with measurements."""


RunLane = Callable[[int, LaneControl, Telemetry], None]
"""Runs a lane, by its number, for one epoch: until it is ordered to end or reaches its age limit.

Raises ``LeadershipLost``, a ``DriverError``, or another error if the lane has a defect.
"""


class LaneGroup:
    """The lanes that one engine task runs. Safe to use from any thread."""

    def __init__(
        self,
        token: int,
        group: int,
        numbers: Sequence[int],
        *,
        channel: ControlChannel,
        run_lane: RunLane,
        threads: Threads,
        interval: float,
        new_restarts: Callable[[], Restarts],
        incarnation: str = "",
        key_names: KeyNames | None = None,
    ) -> None:
        self.numbers = numbers
        self.control = LaneControl()  # the orders of the leader, for the lanes
        self.crash: Exception | None = None  # the error of a lane that has a defect, or None
        self._token = token
        self._group = group
        self._channel = channel
        self._run_lane = run_lane
        self._threads = threads
        self._interval = interval
        self._new_restarts = new_restarts
        self._incarnation = incarnation or str(uuid4())
        self._clock = threads.clock
        self._key_names = key_names
        self._measurements_due = 0.0
        self._past = {number: LaneWork() for number in numbers}  # of epochs that have ended
        self._takeovers = {number: TakeoverLog(number) for number in numbers}
        self._unacknowledged = {number: Unacknowledged() for number in numbers}
        self._running: dict[int, Telemetry] = {}
        self._events: list[LaneEvent] = []  # of epochs that have ended
        self._lost = ""
        self._refusal: DriverError | None = None
        self._counting = Lock()
        self._lock, (self._ended,) = threads.lock(1)
        self._alive = 0  # lanes that have a thread

    # --- the group ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Starts the lanes, and reports for them until they have ended: by order, or long after the lease."""
        sent_at = self._clock()
        self.control.follow(self._channel.exchange(self._report()), sent_at)
        try:
            for number in self.numbers:
                self._start(number)
            while self._await_lanes():
                self._exchange()
        finally:
            self.control.stopped = True
            while self._await_lanes():
                pass
            self._measurements_due = 0.0
            self._exchange()
        if self.crash is not None:
            raise self.crash

    def _start(self, number: int) -> None:
        with self._lock:
            self._alive += 1
        try:
            self._threads.spawn(partial(self._run_thread, number), f"lane-{number}")
        except BaseException:
            self._thread_ended()
            raise

    def _run_thread(self, number: int) -> None:
        try:
            with log_about(lane=number, token=self._token):
                self.supervise(number)
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            self.crash = as_exception(error)
            self.control.stopped = True
        finally:
            self._thread_ended()

    def _thread_ended(self) -> None:
        with self._lock:
            self._alive -= 1
            self._ended.notify()

    def _await_lanes(self) -> bool:
        """Waits for any lane to end, up to the time of the next report; returns whether any still runs."""
        with self._lock:
            if self._alive:
                self._ended.wait(REPORT_SECONDS)
            return self._alive > 0

    def _exchange(self) -> None:
        """Reports, and follows the orders; without any, the group ends ``ORPHAN_SECONDS`` after its lease."""
        control, sent_at = self.control, self._clock()
        try:
            orders = self._channel.exchange(self._report())
        except (OSError, EOFError) as error:
            if not control.stopped:
                log.debug("group %d cannot reach its leader: %s", self._group, error)
            if control.lease_until + ORPHAN_SECONDS < self._clock():
                control.stopped = True
        else:
            control.follow(orders, sent_at)

    def _report(self) -> Report:
        metrics_by_lane, events = self._readings(), self._take_events()
        return Report(
            self._token,
            self._group,
            self._incarnation,
            metrics_by_lane,
            events,
            self._lost,
            Refusal.of(self._refusal) if self._refusal else None,
            measurements_by_lane=self._measurements(),
            unacknowledged_seconds=max(
                (each.seconds(self._clock()) for each in self._unacknowledged.values()), default=0.0
            ),
        )

    def _readings(self) -> dict[int, LaneMetrics]:
        with self._counting:
            return {number: past.metrics + self._work(number).metrics for number, past in self._past.items()}

    def _measurements(self) -> dict[int, Measurements]:
        now = self._clock()
        if now < self._measurements_due:
            return {}
        self._measurements_due = now + MEASURE_SECONDS
        with self._counting:
            return {
                number: past.measurements + self._work(number).measurements
                for number, past in self._past.items()
            }

    def _work(self, number: int) -> LaneWork:
        telemetry = self._running.get(number)
        return telemetry.work if telemetry else LaneWork()

    def _take_events(self) -> tuple[LaneEvent, ...]:
        with self._counting:
            events, self._events = self._events, []
            for telemetry in self._running.values():
                events += telemetry.take_events()
        return tuple(events)

    # --- one lane -----------------------------------------------------------------------------------

    def supervise(self, number: int) -> None:
        """Runs one lane, epoch after epoch; one that is refused for too long ends the harvest."""
        restarts = self._new_restarts()
        while not self.control.over:
            started = self._clock()
            telemetry = self._begin(number, started)
            try:
                self._run_lane(number, self.control, telemetry)
                if not self.control.over:
                    self._retire(number)
            except LeadershipLost as error:
                self._lost = self._lost or str(error)
                self.control.stopped = True
            except DriverError as error:
                now, purged = self._clock(), self._retire(number)
                if error.retryable:
                    self._unacknowledged[number].due(now if telemetry.opened else started)
                else:  # for how long a lane may be refused is limited in another way
                    self._unacknowledged[number].answered()
                pause = restarts.failed(now, lasted=now - started, purged=purged, retryable=error.retryable)
                if pause is None:
                    self._refusal = error
                    return
                log.warning("lane %d restarts in %.1f s: %s", number, pause, error)
                while self._clock() < now + pause and not self.control.over:
                    self._threads.sleep(REPORT_SECONDS)
            except Exception as error:
                log.exception("lane %d has a defect", number)
                self.crash = error
                self.control.stopped = True

    def _begin(self, number: int, now: float) -> Telemetry:
        telemetry = Telemetry(
            number,
            self._interval,
            now,
            self._takeovers[number],
            key_names=self._key_names,
            unacknowledged=self._unacknowledged[number],
        )
        with self._counting:
            self._running[number] = telemetry
        return telemetry

    def _retire(self, number: int) -> int:
        """Adds what a lane's epoch has done to what it did before; returns how many records it purged."""
        with self._counting:  # or a concurrent report would count the lane twice or not at all
            telemetry = self._running.pop(number)
            self._past[number] += telemetry.work.ended()
            self._events += telemetry.take_events()
        return telemetry.metrics.purged
