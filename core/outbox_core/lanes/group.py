"""What a lane group decides, without I/O: it restarts its lanes, and reports for all of them.

:meth:`LaneGroup.run`, :meth:`LaneGroup.supervise` and :meth:`LaneGroup.finish` are generators of requests.
:mod:`outbox_core.lanes.threads` drives them, a thread for each lane and one for the group; the simulation
drives them in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any
from uuid import uuid4

from outbox_api import DriverError, LeadershipLost

from outbox_core.config.logs import KeyNames
from outbox_core.events import LaneEvent
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.takeovers import TakeoverLog
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.lanes.unacknowledged import Unacknowledged
from outbox_core.leadership.protocol import REPORT_SECONDS, LaneControl, Orders, Refusal, Report
from outbox_core.measurements import LaneWork, Measurements
from outbox_core.metrics import LaneMetrics
from outbox_core.steps import Sleep

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 10.0
"""How long after its lease a group that cannot reach its leader ends."""
MEASURE_SECONDS = 1.0
"""The interval between two reports with measurements."""


@dataclass(frozen=True, slots=True)
class RunLane:
    """Runs a lane for one epoch, until it is ordered to end or reaches its age limit. No reply.

    Fails with ``LeadershipLost``, a ``DriverError``, or another error if the lane has a defect.
    """

    number: int
    telemetry: Telemetry


@dataclass(frozen=True, slots=True)
class Exchange:
    """Sends a report to the leader. Reply: its ``Orders``.

    Fails with an ``OSError`` or an ``EOFError`` if the leader cannot be reached.
    """

    report: Report


@dataclass(frozen=True, slots=True)
class StartLanes:
    """Starts :meth:`LaneGroup.supervise` for each lane, without waiting for them. No reply."""


@dataclass(frozen=True, slots=True)
class AwaitLanes:
    """Waits up to ``seconds`` for any lane to end. Reply: whether any still runs."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JoinLanes:
    """Waits until all lanes have ended. No reply."""


LaneSteps = Generator[RunLane | Sleep, Any, None]
"""The steps of a lane's thread."""
GroupRequest = Exchange | StartLanes | AwaitLanes | JoinLanes
GroupSteps = Generator[GroupRequest, Any, None]
"""The steps of a group's thread."""


class LaneGroup:
    """The lanes that one engine task runs. Safe to use from any thread.

    Args:
        interval: Seconds between two heartbeats of a lane.
        clock: Returns seconds on a monotonic clock.

    Attributes:
        control: The orders of the leader, for the lanes.
        crash: The error of a lane that has a defect, or ``None``.
    """

    def __init__(
        self,
        token: int,
        group: int,
        numbers: Sequence[int],
        *,
        interval: float,
        new_restarts: Callable[[], Restarts],
        incarnation: str = "",
        clock: Callable[[], float] = monotonic,
        key_names: KeyNames | None = None,
    ) -> None:
        self.numbers = numbers
        self.control = LaneControl()
        self.crash: Exception | None = None
        self._token = token
        self._group = group
        self._interval = interval
        self._new_restarts = new_restarts
        self._incarnation = incarnation or str(uuid4())
        self._clock = clock
        self._key_names = key_names
        self._measurements_due = 0.0
        self._past = {number: LaneWork() for number in numbers}  # of epochs that have ended
        self._takeovers = {number: TakeoverLog(number) for number in numbers}
        self._unacknowledged = {number: Unacknowledged() for number in numbers}
        self._running: dict[int, Telemetry] = {}
        self._events: list[LaneEvent] = []  # of epochs that have ended
        self._lost = ""
        self._refusal: DriverError | None = None
        self._started = False
        self._counting = Lock()

    # --- the group ----------------------------------------------------------------------------------

    def run(self) -> GroupSteps:
        """Starts the lanes, and reports for them until they have ended; :meth:`finish` follows.

        Raises:
            OSError: The leader cannot be reached for the first report.
            EOFError: The leader closed the connection at the first report.
        """
        sent_at = self._clock()
        self.control.follow((yield Exchange(self._report())), sent_at)
        self._started = True
        yield StartLanes()
        while (yield AwaitLanes(REPORT_SECONDS)):
            yield from self._exchange()

    def finish(self) -> GroupSteps:
        """Ends the lanes that still run, and reports for the last time."""
        if not self._started:
            return
        self.control.stopped = True
        yield JoinLanes()
        self._measurements_due = 0.0
        yield from self._exchange()

    def _exchange(self) -> GroupSteps:
        """Reports, and follows the orders; without any, the group ends ``ORPHAN_SECONDS`` after its lease."""
        control, sent_at = self.control, self._clock()
        try:
            orders: Orders = yield Exchange(self._report())
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
        """Returns the measurements of all lanes when they are due; nothing otherwise."""
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

    def supervise(self, number: int) -> LaneSteps:
        """Runs one lane, epoch after epoch; one that is refused for too long ends the harvest."""
        restarts = self._new_restarts()
        while not self.control.over:
            started = self._clock()
            telemetry = self._begin(number, started)
            try:
                yield RunLane(number, telemetry)
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
                    yield Sleep(REPORT_SECONDS)
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
