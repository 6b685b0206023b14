"""The lanes of one group, as ``outbox_core.lanes.group`` keeps them: beats, restarts, and the end.

The leash, the reports, the orders and the leader's end of them are the real ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_core.config.settings import Delivery
from outbox_core.lanes.group import ORPHAN_SECONDS
from outbox_core.leadership.leader import Leadership
from outbox_core.leadership.protocol import REPORT_SECONDS, LaneControl, Orders, Report
from outbox_sdk import DriverError

from .batch_lane import BatchLane
from .lane_run import LaneRun
from .record_lane import RecordLane
from .scheduler import Host

if TYPE_CHECKING:
    from .process import Process

RESTART_SECONDS = (0.1, 1.0)
"""The pause before a lane is started anew: at first, doubling up to at last. Shorter than the real one."""


class Group:
    """One run of a lane group.

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
    """

    def __init__(
        self, process: Process, leadership: Leadership, host: Host, number: int, numbers: list[int]
    ) -> None:
        self.world = process.world
        self.host = host
        self.number = number
        self.numbers = numbers
        self.lanes = process.lanes
        self.token = leadership.token
        self.settings = process.settings
        self.recovery = process.recovery(leadership.token)
        self.leadership = leadership
        self.control = LaneControl()
        self.over = False
        self.running: dict[int, LaneRun] = {}
        self._kind = BatchLane if process.delivery is Delivery.EXACTLY_ONCE else RecordLane
        self.world.runs += 1
        self._run = str(self.world.runs)
        self._leader = process.host
        self._lost = ""
        self._waiting = len(numbers)
        random = self.world.chance.random
        self._restarts = {
            number: self.world.parts.restarts(float("inf"), random, RESTART_SECONDS) for number in numbers
        }
        host.do(self._begin)

    def _begin(self) -> None:
        self._exchange()
        for number in self.numbers:
            self._start(number)
        self._beat()

    def _beat(self) -> None:
        if not self.over:
            self._exchange()
            self.host.after(REPORT_SECONDS, self._beat)

    def _exchange(self) -> None:
        sent_at = self.host.clock()
        report = Report(self.token, self.number, self._run, {}, (), self._lost)
        if self._leader is self.host:
            self.control.follow(self.leadership.exchange(report), sent_at)
            return
        if self.control.lease_until + ORPHAN_SECONDS < sent_at and self.control.lease_until > 0:
            self.control.stopped = True
        delay = self.world.chance.random() * 0.003
        self.world.scheduler.after(delay, self._leader.do, self._answer, report, sent_at)

    def _answer(self, report: Report, sent_at: float) -> None:
        orders = self.leadership.exchange(report)
        self.host.after(self.world.chance.random() * 0.003, self._follow, orders, sent_at)

    def _follow(self, orders: Orders, sent_at: float) -> None:
        self.control.follow(orders, sent_at)

    def _start(self, number: int) -> None:
        self._waiting -= 1
        if self._ending():
            self._check_over()
        else:
            self.running[number] = self._kind(self, number)
            self.running[number].wake(0.0)

    def ended(self, number: int, error: DriverError | None) -> None:
        """Takes that an attempt at a lane has ended, by an error or because it had grown old."""
        attempt = self.running.pop(number, None)
        if self._ending():
            self._check_over()
            return
        pause: float | None = 0.0
        if error is not None:
            now = self.host.clock()
            lasted, purged = (
                (now - attempt.started, attempt.telemetry.metrics.purged) if attempt else (0.0, 0)
            )
            restarts, retryable = self._restarts[number], error.retryable
            pause = restarts.failed(now, lasted=lasted, purged=purged, retryable=retryable)
        if pause is not None:
            self._waiting += 1
            self.host.after(pause, self._start, number)

    def lose(self, reason: str) -> None:
        """Takes that a lane has found another's fence."""
        self._lost = self._lost or reason
        self.control.stopped = True

    def _ending(self) -> bool:
        return self.control.stopped or self.control.draining

    def _check_over(self) -> None:
        if not self.running and not self._waiting and not self.over:
            self.over = True
            self._exchange()
