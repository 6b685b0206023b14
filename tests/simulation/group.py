"""Carries out what ``outbox_core.lanes.group`` asks for: runs attempts at lanes, and talks to the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_api import DriverError, LeadershipLost
from outbox_core.config.settings import Delivery
from outbox_core.lanes.group import (
    AwaitLanes,
    Exchange,
    GroupRequest,
    JoinLanes,
    RunLane,
    StartLanes,
)
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.leadership.leader import Leadership
from outbox_core.leadership.protocol import REPORT_SECONDS, LaneControl, Report
from outbox_core.leadership.tcp import ANSWER_SECONDS
from outbox_core.steps import Sleep

from .batch_lane import BatchLane
from .lane_run import LaneRun
from .record_lane import RecordLane
from .scheduler import Host
from .threads import Reply, Thread

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
        self._numbers = numbers
        self._kind = BatchLane if process.delivery is Delivery.EXACTLY_ONCE else RecordLane
        self._leader = process.host
        self._lanes_left = 0
        self._ends: dict[int, Reply] = {}
        self.world.runs += 1
        self._group = self.world.parts.group(
            leadership.token,
            number,
            numbers,
            interval=REPORT_SECONDS,
            new_restarts=self._restarts,
            incarnation=str(self.world.runs),
            clock=host.clock,
        )
        Thread(host, self._group.run(), self._execute, self._finish)

    @property
    def control(self) -> LaneControl:
        """The orders that its lanes follow."""
        return self._group.control

    def _restarts(self) -> Restarts:
        return self.world.parts.restarts(float("inf"), self.world.chance.random, RESTART_SECONDS)

    def _finish(self, result: object) -> None:
        if isinstance(result, Exception):  # the leader could not be reached
            self.over = True
        else:
            Thread(self.host, self._group.finish(), self._execute, self._end)

    def _end(self, _: object) -> None:
        self.over = True

    def _execute(self, request: GroupRequest, reply: Reply) -> None:
        match request:
            case Exchange(report):
                self._exchange(report, reply)
            case StartLanes():
                self._lanes_left = len(self._numbers)
                for number in self._numbers:
                    Thread(self.host, self._group.supervise(number), self._execute_of_lane, self._lane_ended)
                reply(None)
            case AwaitLanes(seconds):
                self.host.after(seconds, lambda: reply(self._lanes_left > 0))
            case JoinLanes():
                self._join(reply)

    def _join(self, reply: Reply) -> None:
        if self._lanes_left:
            self.host.after(REPORT_SECONDS, self._join, reply)
        else:
            reply(None)

    # --- its leader ---------------------------------------------------------------------------------

    def _exchange(self, report: Report, reply: Reply) -> None:
        if self._leader is self.host:
            reply(self.leadership.exchange(report))
            return
        answer = _Once(reply)
        self.world.scheduler.after(self._delay(), self._leader.do, self._answer, report, answer)
        self.host.after(ANSWER_SECONDS, answer, TimeoutError("no answer in time"))

    def _answer(self, report: Report, answer: Reply) -> None:
        self.host.after(self._delay(), answer, self.leadership.exchange(report))

    def _delay(self) -> float:
        return self.world.chance.random() * NETWORK_SECONDS

    # --- its lanes ----------------------------------------------------------------------------------

    def _execute_of_lane(self, request: RunLane | Sleep, reply: Reply) -> None:
        match request:
            case RunLane(number, telemetry):
                self._ends[number] = reply
                self.telemetry[number] = telemetry
                run = self.running[number] = self._kind(self, number)
                run.start()
            case Sleep(seconds):
                self.host.after(seconds, reply, None)

    def ended(self, number: int, error: DriverError | LeadershipLost | None) -> None:
        """Takes that an attempt at a lane has ended, by an error or because it had grown old."""
        del self.running[number]
        self._ends.pop(number)(error)

    def _lane_ended(self, _: object) -> None:
        self._lanes_left -= 1


class _Once:
    """Takes the first reply only."""

    def __init__(self, reply: Reply) -> None:
        self._reply: Reply | None = reply

    def __call__(self, reply: object) -> None:
        taker, self._reply = self._reply, None
        if taker is not None:
            taker(reply)
