"""The leader's side of a leadership: what lanes report, what adds up, and the orders that they receive."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from threading import Lock
from time import monotonic

from outbox_api import DriverError

from outbox_core.control.protocol import LogLine, Orders, Report
from outbox_core.events import Event
from outbox_core.events.measurements import Durations, LaneWork, Measurements, add_lanes, ended_lanes
from outbox_core.events.metrics import LaneMetrics
from outbox_core.text.log_context import FIELDS

log = logging.getLogger("outbox.leadership")

SILENT_SECONDS = 10.0
"""Seconds without a report of a group, or of all groups, before the leader resigns."""
START_SECONDS = 30.0
"""Seconds for the first report of a group; its worker may have to load all modules."""
UNACKNOWLEDGED_SECONDS = 30.0
"""Seconds in which nothing is acknowledged, though something is due, before the leader resigns."""
CHECK_SECONDS = 1.0
"""After a longer interval between two checks, the leader itself was suspended and received no reports."""


@dataclass(slots=True)
class _Incarnation:
    """The latest incarnation of one group."""

    name: str
    metrics_by_lane: dict[int, LaneMetrics] = field(default_factory=dict)
    measurements_by_lane: dict[int, Measurements] = field(default_factory=dict)
    unacknowledged_seconds: float = 0.0

    def work(self) -> dict[int, LaneWork]:
        return {
            lane: LaneWork(metrics, self.measurements_by_lane.get(lane, Measurements()))
            for lane, metrics in self.metrics_by_lane.items()
        }


class Leadership:
    """Answers the reports of lane groups; the leader's end of all control channels.

    Safe to use from any thread. ``lease`` returns for how many more seconds leadership is confirmed.
    """

    def __init__(
        self,
        token: int,
        lease: Callable[[], float],
        clock: Callable[[], float] = monotonic,
        silent_seconds: float = SILENT_SECONDS,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.token = token
        self._lease = lease
        self._clock = clock
        self._silent_seconds = silent_seconds
        self._start_seconds = start_seconds
        self._checked_at = clock()
        self._lock = Lock()
        self._draining = False
        self.stopped = False  # whether the lanes were ordered to end at once
        self.lost = ""  # why leadership was lost
        self.reporters: list[Callable[[], Mapping[str, object]]] = []
        """Each returns what the first lane's heartbeats say of a part of the leader's own work."""
        self.refusal: DriverError | None = None
        """The error with which a database or broker has refused a lane for too long."""
        self._latest: dict[int, _Incarnation] = {}
        self._superseded: set[str] = set()
        self._past: dict[int, LaneWork] = {}  # of incarnations that have ended
        self._purged_at = clock()
        self._events: list[Event] = []
        self._due: dict[int, float] = {}  # when the next report of a group is due
        self._any_due = inf  # when the next report of any group is due

    def about(self) -> Mapping[str, object]:
        """Returns what the first lane's heartbeats say of the leader's own work; for any thread."""
        return {name: value for report in self.reporters for name, value in report().items()}

    def exchange(self, report: Report) -> Orders:
        """Handles a group's report and returns its orders.

        A group may have two incarnations at once if the engine has replaced a frozen one. All but the latest
        are ordered to end, and so are groups of an earlier leadership. The fence rejects their statements.
        """
        for line in report.messages:
            _log(report.group, line)
        with self._lock:
            latest = self._latest.get(report.group)
            if report.token != self.token or report.incarnation in self._superseded:
                return Orders(0.0, stopped=True)
            if latest is None or latest.name != report.incarnation:
                if latest is not None:
                    self._superseded.add(latest.name)
                    self._past = add_lanes(self._past, ended_lanes(latest.work()))
                latest = self._latest[report.group] = _Incarnation(report.incarnation)
            if report.group in self._due:
                self._due[report.group] = self._any_due = self._clock() + self._silent_seconds
            if _purged(report.metrics_by_lane) > _purged(latest.metrics_by_lane):
                self._purged_at = self._clock()
            latest.unacknowledged_seconds = report.unacknowledged_seconds
            latest.metrics_by_lane.update(report.metrics_by_lane)
            latest.measurements_by_lane.update(report.measurements_by_lane)
            self._events.extend(report.events)
            if report.refusal is not None:
                self.refusal = report.refusal.error
                self.stopped = True
            if report.lost:
                self.fence(report.lost)
            return Orders(self._lease(), self._draining, self.stopped, self.about())

    def expect(self, groups: Iterable[int]) -> None:
        """Expects a first report of these groups, which are being started or started again."""
        with self._lock:
            self._due |= dict.fromkeys(groups, self._clock() + self._start_seconds)

    def silent(self) -> list[int]:
        """Returns the expected groups whose report is overdue; called several times a second.

        A group that is started again has ``start_seconds`` while others report. If no group reports, all are
        overdue: a single group may find another worker, but a leader without any group leads nothing. Time in
        which the leader itself was suspended does not count, as it received no reports.
        """
        with self._lock:
            now = self._clock()
            suspended = now - self._checked_at
            self._checked_at = now
            if suspended > CHECK_SECONDS:
                latest = now + self._start_seconds
                self._due = {group: min(due + suspended, latest) for group, due in self._due.items()}
                self._any_due += suspended
            return sorted(group for group, due in self._due.items() if min(due, self._any_due) <= now)

    def unacknowledged(self) -> float:
        """Returns for how many seconds nothing was acknowledged though something is due; 0 if nothing is."""
        with self._lock:
            due = max((each.unacknowledged_seconds for each in self._latest.values()), default=0.0)
            return min(due, self._clock() - self._purged_at)

    def drain(self) -> None:
        """Orders all lanes to drain and end."""
        self._draining = True

    def stop(self) -> None:
        """Orders all lanes to end at once."""
        self.stopped = True

    def fence(self, reason: str) -> None:
        """Records that leadership is lost, and orders all lanes to end at once."""
        self.lost = self.lost or reason
        self.stopped = True

    @property
    def over(self) -> bool:
        """Whether the lanes were ordered to end."""
        return self._draining or self.stopped

    def metrics(self) -> LaneMetrics:
        """Returns the sum of what all lanes of this leadership have done."""
        with self._lock:
            past = (work.metrics for work in self._past.values())
            present = (metrics for each in self._latest.values() for metrics in each.metrics_by_lane.values())
            return sum(chain(past, present), LaneMetrics())

    def work(self) -> dict[int, LaneWork]:
        """Returns what each lane of this leadership has done."""
        with self._lock:
            work = self._past
            for each in self._latest.values():
                work = add_lanes(work, each.work())
            return work

    def take_events(self) -> list[Event]:
        """Returns the events of all lanes since the last call."""
        with self._lock:
            events, self._events = self._events, []
            return events


def _purged(metrics_by_lane: Mapping[int, LaneMetrics]) -> int:
    return sum(metrics.purged + metrics.recovered for metrics in metrics_by_lane.values())


def _log(group: int, line: LogLine) -> None:
    """Logs what a lane logged in another process, under the same logger's name."""
    logger = logging.getLogger(line.logger)
    if not logger.isEnabledFor(line.level):
        return
    record = logger.makeRecord(
        logger.name,
        line.level,
        "",
        0,
        "group %d: %s",
        (group, line.text),
        None,
        extra={"template": line.template},
    )
    record.exc_text = line.traceback or None
    for name in FIELDS:
        if name in line.about:
            setattr(record, name, line.about[name])
    logger.handle(record)


class Totals:
    """Sums whose counters never go back, whatever ends: a lane, a worker, a leadership, a harvest.

    Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.uncopied = 0
        """Dead letters that could not be copied to their topic."""
        self._past: dict[int, LaneWork] = {}  # of earlier leaderships
        self._leadership: Leadership | None = None
        self._takeovers = Durations()
        self._silences = Durations()

    def begin(self, leadership: Leadership, seconds: float) -> None:
        """Counts a new leadership, whose lanes start so many seconds after the election."""
        with self._lock:
            self._leadership = leadership
            self._takeovers.add(seconds)

    def succeed(self, silence: float | None) -> None:
        """Counts for how long the lanes of the leader before had not been heard; ``None`` if nobody led."""
        if silence is not None:
            with self._lock:
                self._silences.add(silence)

    def end(self) -> None:
        """Keeps what the present leadership has done. Idempotent."""
        with self._lock:
            leadership, self._leadership = self._leadership, None
            if leadership is not None:
                self._past = add_lanes(self._past, ended_lanes(leadership.work()))

    @property
    def token(self) -> int | None:
        """The fence token of the present leadership; ``None`` without one."""
        leadership = self._leadership
        return None if leadership is None else leadership.token

    def metrics(self) -> LaneMetrics:
        """Returns the sum over all lanes."""
        with self._lock:
            metrics = sum((work.metrics for work in self._past.values()), LaneMetrics())
            return metrics if self._leadership is None else metrics + self._leadership.metrics()

    def work(self) -> dict[int, LaneWork]:
        """Returns what each lane has done."""
        with self._lock:
            return self._past if self._leadership is None else add_lanes(self._past, self._leadership.work())

    def failovers(self) -> Durations:
        """Returns the seconds from each election of this process until its lanes started."""
        with self._lock:
            return self._takeovers + Durations()

    def silences(self) -> Durations:
        """Returns the seconds from the last heartbeat of each former leader until this process led."""
        with self._lock:
            return self._silences + Durations()
