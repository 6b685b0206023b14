"""What a lane group decides, without I/O: keeps each of its lanes alive, and reports for all of them.

:meth:`LaneGroup.run`, :meth:`LaneGroup.supervise` and :meth:`LaneGroup.finish` are generators of requests.
:mod:`outbox_core.lanes.threads` drives them, a thread for each lane and one for the group; the simulation
drives them in virtual time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic
from typing import Any
from uuid import uuid4

from outbox_sdk import DriverError, LeadershipLost

from outbox_core.events import Event
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.leadership.protocol import REPORT_SECONDS, LaneControl, Orders, Report
from outbox_core.metrics import LaneMetrics

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 10.0
"""How long a group that cannot reach its leader waits, after its lease, before it ends."""


@dataclass(frozen=True, slots=True)
class RunLane:
    """Runs one attempt at a lane, until it is told to end or has grown old. No reply.

    Fails with ``LeadershipLost``, a ``DriverError``, or with what breaks a rule of the lane itself.
    """

    number: int
    telemetry: Telemetry


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits. No reply."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exchange:
    """Delivers a report to the leader. Reply: its ``Orders``.

    Fails with an ``OSError`` or an ``EOFError`` where the leader cannot be reached.
    """

    report: Report


@dataclass(frozen=True, slots=True)
class StartLanes:
    """Starts to drive :meth:`LaneGroup.supervise` for each lane, without waiting for them. No reply."""


@dataclass(frozen=True, slots=True)
class AwaitLanes:
    """Waits up to ``seconds`` for any lane to end. Reply: whether any is left."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JoinLanes:
    """Waits until all lanes have ended. No reply."""


@dataclass(frozen=True, slots=True)
class Receipts:
    """Passes on how many records each busy lane has purged since the last receipts. No reply."""

    purged: Mapping[int, int]


LaneSteps = Generator[RunLane | Sleep, Any, None]
"""What the thread of a lane does."""
GroupRequest = Exchange | StartLanes | AwaitLanes | JoinLanes | Receipts
GroupSteps = Generator[GroupRequest, Any, None]
"""What the thread of a group does."""


class LaneGroup:
    """The lanes that one engine task runs. Safe to use from any thread.

    Args:
        token: The fence token of the term.
        group: The group's number.
        numbers: The numbers of its lanes.
        interval: Seconds between two heartbeats of a lane.
        new_restarts: Returns when one lane is started anew.
        run: Names this run of the group.
        clock: Returns seconds, and never goes back.

    Attributes:
        control: The orders of the leader, for the lanes.
        crash: What broke a rule of a lane itself, or ``None``.
    """

    def __init__(
        self,
        token: int,
        group: int,
        numbers: Sequence[int],
        *,
        interval: float,
        new_restarts: Callable[[], Restarts],
        run: str = "",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.numbers = numbers
        self.control = LaneControl()
        self.crash: Exception | None = None
        self._token = token
        self._group = group
        self._interval = interval
        self._new_restarts = new_restarts
        self._run = run or str(uuid4())
        self._clock = clock
        self._past = {number: LaneMetrics() for number in numbers}  # of attempts that have ended
        self._running: dict[int, Telemetry] = {}
        self._events: list[Event] = []  # of attempts that have ended
        self._lost = ""
        self._refusal: DriverError | None = None
        self._started = False
        self._counting = Lock()

    # --- the group ----------------------------------------------------------------------------------

    def run(self) -> GroupSteps:
        """Starts the lanes, and reports for them until they have ended; :meth:`finish` is due then.

        Raises:
            OSError: The leader cannot be reached from here at all.
            EOFError: It hung up on the first report.
        """
        purged = dict.fromkeys(self.numbers, 0)
        sent_at = self._clock()
        self.control.follow((yield Exchange(self._report(self._readings()))), sent_at)
        self._started = True
        yield StartLanes()
        while (yield AwaitLanes(REPORT_SECONDS)):
            metrics_by_lane = yield from self._exchange()
            new = {lane: metrics_by_lane[lane].purged - purged[lane] for lane in metrics_by_lane}
            purged = {lane: metrics_by_lane[lane].purged for lane in metrics_by_lane}
            if any(new.values()):
                yield Receipts({lane: records for lane, records in new.items() if records})

    def finish(self) -> GroupSteps:
        """Ends the lanes that have not ended, and reports for the last time."""
        if not self._started:
            return
        self.control.stopped = True
        yield JoinLanes()
        yield from self._exchange()

    def _exchange(self) -> Generator[GroupRequest, Any, dict[int, LaneMetrics]]:
        """Reports, and follows the orders; without any, the group ends some time after its lease."""
        control, metrics_by_lane = self.control, self._readings()
        report, sent_at = self._report(metrics_by_lane), self._clock()
        try:
            orders: Orders = yield Exchange(report)
        except (OSError, EOFError) as error:
            if not control.stopped:
                log.debug("group %d cannot reach its leader: %s", self._group, error)
            if control.lease_until + ORPHAN_SECONDS < self._clock():
                control.stopped = True
        else:
            control.follow(orders, sent_at)
        return metrics_by_lane

    def _report(self, metrics_by_lane: dict[int, LaneMetrics]) -> Report:
        events = self._take_events()
        return Report(self._token, self._group, self._run, metrics_by_lane, events, self._lost, self._refusal)

    def _readings(self) -> dict[int, LaneMetrics]:
        with self._counting:
            return {number: past + self._metrics(number) for number, past in self._past.items()}

    def _metrics(self, number: int) -> LaneMetrics:
        telemetry = self._running.get(number)
        return replace(telemetry.metrics) if telemetry else LaneMetrics()

    def _take_events(self) -> tuple[Event, ...]:
        with self._counting:
            events, self._events = self._events, []
            for telemetry in self._running.values():
                events += telemetry.take_events()
        return tuple(events)

    # --- one lane -----------------------------------------------------------------------------------

    def supervise(self, number: int) -> LaneSteps:
        """Runs one lane, attempt after attempt; one that is refused for too long ends the harvest."""
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
                now, purged = self._clock(), self._retire(number).purged
                pause = restarts.failed(now, lasted=now - started, purged=purged, retryable=error.retryable)
                if pause is None:
                    self._refusal = error
                    return
                log.warning("lane %d starts anew in %.1f s: %s", number, pause, error)
                while self._clock() < now + pause and not self.control.over:
                    yield Sleep(REPORT_SECONDS)
            except Exception as error:
                log.exception("lane %d broke a rule of its own", number)
                self.crash = error
                self.control.stopped = True

    def _begin(self, number: int, now: float) -> Telemetry:
        telemetry = Telemetry(number, self._interval, now)
        with self._counting:
            self._running[number] = telemetry
        return telemetry

    def _retire(self, number: int) -> LaneMetrics:
        with self._counting:  # or a report in between would count the lane not at all, or twice
            telemetry = self._running.pop(number)
            metrics = telemetry.metrics.ended()
            self._past[number] += metrics
            self._events += telemetry.take_events()
        return metrics
