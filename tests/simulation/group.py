"""A lane group of production in virtual time: attempts at lanes, and the way to the leader."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from outbox_api import DriverError, LeadershipLost
from outbox_core.control.protocol import REPORT_SECONDS, LaneControl, Orders, Report
from outbox_core.control.tcp import ANSWER_SECONDS
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.leadership.leader import Leadership
from outbox_core.settings import Delivery

from .batch_lane import BatchLane
from .greenlets import Fiber, Then, Threads, step
from .lane_run import LaneRun
from .record_lane import RecordLane
from .scheduler import Host

if TYPE_CHECKING:
    from .process import Process

RESTART_SECONDS = (0.1, 1.0)
"""The pause before a lane is started anew: at first, doubling up to at last. Shorter than the real one."""
NETWORK_SECONDS = 0.003
"""How long a report or an answer travels at most."""


class Group:
    """One incarnation of a lane group.

    Args:
        process: Its leader.
        leadership: The leader's term.
        host: Where it runs: the leader's own host, or a worker.
        number: The group's number.
        numbers: The numbers of its lanes.

    Attributes:
        settings: How its leader is configured.
        recovery: How its lanes begin.
        over: Whether all its lanes have ended for good.
        replaced: Whether its engine has given it up.
    """

    def __init__(
        self, process: Process, leadership: Leadership, host: Host, number: int, numbers: list[int]
    ) -> None:
        self.world = process.world
        self.host = host
        self.number = number
        self.lanes = process.lanes
        self.token = leadership.token
        self.settings = process.settings
        self.recovery = process.recovery(leadership.token)
        self.leadership = leadership
        self.over = self.replaced = False
        self.running: dict[int, LaneRun] = {}
        self.telemetry: dict[int, Telemetry] = {}
        self._kind = BatchLane if process.delivery is Delivery.EXACTLY_ONCE else RecordLane
        self._leader = process.host
        self._ends: dict[int, Then] = {}
        self.world.runs += 1
        self._group = self.world.parts.group(
            leadership.token,
            number,
            numbers,
            channel=self,
            run_lane=self._run_lane,
            threads=Threads(host, released=lambda: None, pause=lambda: 0.0),
            interval=REPORT_SECONDS,
            new_restarts=self._restarts,
            incarnation=str(self.world.runs),
        )
        Fiber(host, self._group.run, self._end)

    @property
    def control(self) -> LaneControl:
        """The orders that its lanes follow."""
        return self._group.control

    def _restarts(self) -> Restarts:
        return self.world.parts.restarts(float("inf"), self.world.chance.random, RESTART_SECONDS)

    def _end(self, _: object) -> None:
        self.over = True

    # --- its leader ---------------------------------------------------------------------------------

    def exchange(self, report: Report) -> Orders:
        """Delivers a report; a ``ControlChannel``."""
        if self._leader is self.host:
            return self.leadership.exchange(report)
        orders: Orders = step(partial(self._send, report))
        return orders

    def _send(self, report: Report, then: Then) -> None:
        answer = _Once(then)
        self.world.scheduler.after(self._delay(), self._leader.do, self._answer, report, answer)
        self.host.after(ANSWER_SECONDS, answer, TimeoutError("no answer in time"))

    def _answer(self, report: Report, answer: Then) -> None:
        self.host.after(self._delay(), answer, self.leadership.exchange(report))

    def _delay(self) -> float:
        return self.world.chance.random() * NETWORK_SECONDS

    # --- its lanes ----------------------------------------------------------------------------------

    def _run_lane(self, number: int, _: LaneControl, telemetry: Telemetry) -> None:
        step(partial(self._begin_lane, number, telemetry))

    def _begin_lane(self, number: int, telemetry: Telemetry, then: Then) -> None:
        self._ends[number] = then
        self.telemetry[number] = telemetry
        run = self.running[number] = self._kind(self, number)
        run.start()

    def ended(self, number: int, error: DriverError | LeadershipLost | None) -> None:
        """Takes that an attempt at a lane has ended, by an error or because it had grown old."""
        del self.running[number]
        self._ends.pop(number)(error)


class _Once:
    """Takes the first reply only."""

    def __init__(self, reply: Then) -> None:
        self._reply: Then | None = reply

    def __call__(self, reply: object) -> None:
        taker, self._reply = self._reply, None
        if taker is not None:
            taker(reply)
