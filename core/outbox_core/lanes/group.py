"""Several lanes in one process: keeps each alive, and reports for all of them to the leader."""

from __future__ import annotations

import gc
import logging
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic, sleep
from uuid import uuid4

from outbox_sdk import DriverError, LeadershipLost

from outbox_core.events import Event
from outbox_core.lanes.loop import LaneLoop
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.restarts import Restarts
from outbox_core.leadership.protocol import REPORT_SECONDS, ControlChannel, LaneControl, Report
from outbox_core.metrics import LaneMetrics

log = logging.getLogger(__name__)

ORPHAN_SECONDS = 10.0
"""How long a group without word from its leader lives on before it ends; it does not work meanwhile."""


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


class LaneGroup:
    """The lanes that one engine task runs, a thread each.

    Args:
        plan: The term's plan.
        group: The group's number.
        lanes: The numbers of its lanes.
        channel: The way to the leader.
    """

    def __init__(self, plan: Plan, group: int, lanes: Sequence[int], channel: ControlChannel) -> None:
        self._plan = plan
        self._group = group
        self._channel = channel
        self._control = LaneControl()
        self._run_id = str(uuid4())
        self._past = {number: LaneMetrics() for number in lanes}
        self._lanes: dict[int, LaneLoop] = {}
        self._events: list[Event] = []  # of attempts that have ended
        self._lost = ""
        self._refusal: DriverError | None = None
        self._crash: Exception | None = None
        self._wake = Flag()
        self._counting = Lock()
        self._threads = [Thread(target=self._keep, args=(number,), name=f"lane-{number}") for number in lanes]

    def run(self) -> Iterator[dict[int, int]]:
        """Runs the lanes until the leader says to end, the lease has long run out, or the caller closes.

        Yields:
            On every beat with deliveries: lane number → records purged since the last beat.

        Raises:
            OSError: The leader cannot be reached from here at all.
            Exception: A lane broke one of its own rules; the group is of no more use.
        """
        purged = dict.fromkeys(self._past, 0)
        self._channel.exchange(self._report(dict.fromkeys(self._past, LaneMetrics())))  # raises if it cannot
        self._exchange()
        for thread in self._threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in self._threads):
                self._wake.wait(REPORT_SECONDS)
                self._wake.clear()
                metrics_by_lane = self._exchange()
                new = {lane: metrics_by_lane[lane].purged - purged[lane] for lane in metrics_by_lane}
                purged = {lane: metrics_by_lane[lane].purged for lane in metrics_by_lane}
                if any(new.values()):
                    yield {lane: records for lane, records in new.items() if records}
        finally:
            self._control.stopped = True
            for thread in self._threads:
                thread.join()
            self._exchange()
        if self._crash is not None:
            raise self._crash

    def _exchange(self) -> dict[int, LaneMetrics]:
        with self._counting:
            metrics_by_lane = {number: past + self._metrics(number) for number, past in self._past.items()}
        report = self._report(metrics_by_lane)
        sent_at = monotonic()
        try:
            self._control.follow(self._channel.exchange(report), sent_at)
        except (OSError, EOFError) as error:
            if not self._control.stopped:
                log.debug("group %d cannot reach its leader: %s", self._group, error)
            if self._control.lease_until + ORPHAN_SECONDS < monotonic():
                self._control.stopped = True
        return metrics_by_lane

    def _report(self, metrics_by_lane: dict[int, LaneMetrics]) -> Report:
        token, events = self._plan.token, self._take_events()
        return Report(token, self._group, self._run_id, metrics_by_lane, events, self._lost, self._refusal)

    def _metrics(self, number: int) -> LaneMetrics:
        lane = self._lanes.get(number)
        return replace(lane.metrics) if lane else LaneMetrics()

    def _take_events(self) -> tuple[Event, ...]:
        with self._counting:
            events, self._events = self._events, []
            for lane in list(self._lanes.values()):
                events += lane.take_events()
        return tuple(events)

    def _keep(self, number: int) -> None:
        """Runs one lane, attempt after attempt; one that is refused for too long ends the harvest."""
        restarts = Restarts(self._plan.failures.stop_after, random.random)
        while not self._control.over:
            started = monotonic()
            try:
                lane = LaneLoop(self._plan, number, self._control)
                self._lanes[number] = lane
                lane.run()
                if not self._control.over:
                    self._retire(number)
            except LeadershipLost as error:
                self._lost = str(error)
                self._control.stopped = True
            except DriverError as error:
                now, purged = monotonic(), self._retire(number).purged
                pause = restarts.failed(now, lasted=now - started, purged=purged, retryable=error.retryable)
                if pause is None:
                    self._refusal = error
                    break
                log.warning("lane %d starts anew in %.1f s: %s", number, pause, error)
                self._pause(pause)
            except Exception as error:
                log.exception("lane %d broke a rule of its own", number)
                self._crash = error
                self._control.stopped = True
        self._wake.set()

    def _retire(self, number: int) -> LaneMetrics:
        with self._counting:  # or a report in between would count the lane not at all, or twice
            lane = self._lanes.pop(number)
            metrics = lane.metrics.ended()
            self._past[number] += metrics
            self._events += lane.take_events()
        return metrics

    def _pause(self, seconds: float) -> None:
        until = monotonic() + seconds
        while monotonic() < until and not self._control.over:
            sleep(REPORT_SECONDS)
