"""The threads of a lane group: one for each lane, and the caller's, which reports to the leader."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from threading import Event as Flag
from time import sleep
from typing import Any, assert_never

from outbox_core.drive import drive
from outbox_core.lanes.group import (
    AwaitLanes,
    Exchange,
    GroupSteps,
    JoinLanes,
    LaneGroup,
    Receipts,
    RunLane,
    Sleep,
    StartLanes,
)
from outbox_core.lanes.loop import LaneLoop
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.restarts import Restarts
from outbox_core.leadership.protocol import ControlChannel
from outbox_core.log_context import ContextThread


def dedicate_process() -> None:
    """Tunes this Python process for lanes and nothing else.

    Hundreds of thousands of short-lived records a second make the garbage collector run for nothing: without
    cycles among them, counting references frees them all. And lane threads run briefly and wait for each
    other: Python switches between them every 0.5 ms instead of 5.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(0.0005)


class LaneThreads:
    """Runs a lane group: carries out what :class:`LaneGroup` asks for.

    Args:
        plan: The term's plan.
        group: The group's number.
        lanes: The numbers of its lanes.
        link: The way to the leader.
    """

    def __init__(self, plan: Plan, group: int, lanes: Sequence[int], link: ControlChannel) -> None:
        self._plan = plan
        self._channel = link
        stop_after = plan.failures.stop_after
        self._group = LaneGroup(
            plan.token,
            group,
            lanes,
            interval=plan.limits.min_metrics_interval,
            new_restarts=lambda: Restarts(stop_after, random.random),
        )
        self._ended = Flag()  # set when any lane has
        self._threads = [
            ContextThread(target=self._supervise, args=(number,), name=f"lane-{number}") for number in lanes
        ]

    def run(self) -> Iterator[Mapping[int, int]]:
        """Runs the lanes until the leader says to end, the lease has long run out, or the caller closes.

        Yields:
            After each report with deliveries: lane number → records purged since the report before.

        Raises:
            OSError: The leader cannot be reached from here at all.
            Exception: A lane broke one of its own rules; the group is of no more use.
        """
        try:
            yield from self._drive(self._group.run())
        finally:
            for _ in self._drive(self._group.finish()):
                pass
        if self._group.crash is not None:
            raise self._group.crash

    def _drive(self, steps: GroupSteps) -> Iterator[Mapping[int, int]]:
        try:
            request = next(steps)
            while True:
                reply = None
                try:
                    if isinstance(request, Receipts):
                        yield request.purged
                    else:
                        reply = self._carry_out(request)
                except Exception as error:  # noqa: BLE001 - the generator decides, and raises it again
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration:
            return

    def _carry_out(self, request: Exchange | StartLanes | AwaitLanes | JoinLanes) -> Any:
        match request:
            case Exchange(report):
                return self._channel.exchange(report)
            case StartLanes():
                for thread in self._threads:
                    thread.start()
            case AwaitLanes(seconds):
                self._ended.wait(seconds)
                self._ended.clear()
                return any(thread.is_alive() for thread in self._threads)
            case JoinLanes():
                for thread in self._threads:
                    if thread.ident is not None:
                        thread.join()
            case _:
                assert_never(request)
        return None

    def _supervise(self, number: int) -> None:
        """Drives what keeps one lane; the thread of the lane."""
        drive(self._group.supervise(number), self._carry_out_of_lane)
        self._ended.set()

    def _carry_out_of_lane(self, request: RunLane | Sleep) -> None:
        match request:
            case RunLane(number, telemetry):
                LaneLoop(self._plan, number, self._group.control, telemetry).run()
            case Sleep(seconds):
                sleep(seconds)
            case _:
                assert_never(request)
