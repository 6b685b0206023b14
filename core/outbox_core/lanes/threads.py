"""The threads of a lane group: one for each lane, and the caller's, which reports to the leader."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Sequence
from threading import Event as Flag
from time import sleep
from typing import Any, assert_never

from outbox_api.context_thread import ContextThread, as_exception

from outbox_core.lanes.group import (
    AwaitLanes,
    Exchange,
    JoinLanes,
    LaneGroup,
    RunLane,
    StartLanes,
)
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.running import LaneRun
from outbox_core.leadership.protocol import ControlChannel
from outbox_core.log_context import log_about
from outbox_core.steps import Sleep, run_steps


def dedicate_process(outboxes: int = 1) -> None:
    """Tunes this Python process for the lanes of so many outboxes and nothing else.

    The garbage collector runs more rarely: records are short-lived and have no reference cycles, so reference
    counting frees them. Lane threads run briefly and wait for each other, so Python switches between them
    every 0.5 ms instead of 5. Each thread that waits for its turn asks for it that often: where many do, as
    lanes of many outboxes, this would take more time than their work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(min(0.0005 * outboxes, 0.005))


class LaneThreads:
    """Runs a lane group: executes the requests of :class:`LaneGroup`."""

    def __init__(self, plan: Plan, group: int, lanes: Sequence[int], channel: ControlChannel) -> None:
        self._plan = plan
        self._channel = channel
        stop_after = plan.failures.stop_after
        self._group = LaneGroup(
            plan.token,
            group,
            lanes,
            interval=plan.limits.min_metrics_interval,
            new_restarts=lambda: Restarts(stop_after, random.random),
            key_names=plan.key_names,
        )
        self._ended = Flag()  # set when any lane has
        self._threads = [
            ContextThread(target=self._supervise, args=(number,), name=f"lane-{number}") for number in lanes
        ]

    def run(self) -> None:
        """Runs the lanes until the leader ends them, or the lease is long over.

        Raises:
            OSError: The leader cannot be reached for the first report.
            Exception: A lane has a defect.
        """
        try:
            run_steps(self._group.run(), self._execute)
        finally:
            run_steps(self._group.finish(), self._execute)
        if self._group.crash is not None:
            raise self._group.crash

    def _execute(self, request: Exchange | StartLanes | AwaitLanes | JoinLanes) -> Any:
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
        """Runs in the thread of one lane."""
        try:
            with log_about(lane=number, token=self._plan.token):
                run_steps(self._group.supervise(number), self._execute_for_lane)
        except BaseException as error:  # noqa: BLE001 - raised again by run()
            self._group.crash = as_exception(error)
            self._group.control.stopped = True
        finally:
            self._ended.set()

    def _execute_for_lane(self, request: RunLane | Sleep) -> None:
        match request:
            case RunLane(number, telemetry):
                LaneRun(self._plan, number, self._group.control, telemetry).run()
            case Sleep(seconds):
                sleep(seconds)
            case _:
                assert_never(request)
