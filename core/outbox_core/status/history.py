"""What a process has seen of one outbox in the last hour: figures as points in time, and what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime

from outbox_core.status.health import problems
from outbox_core.status.history_events import (
    Change,
    HistoryEvent,
    HistoryEventCode,
    Problems,
    StatusAt,
    changes,
    harvester,
    in_one_line,
)
from outbox_core.status.minutes import Minute, MinuteMaker
from outbox_core.status.points import Point, Points
from outbox_core.status.recent import Recent
from outbox_core.status.snapshot import Snapshot
from outbox_core.text.duration import format_duration

MOST_HAPPENINGS = 50
MOST_UNWRITTEN = 60
"""Minutes that wait to be written; of a database that is away for longer, the last ones."""


class History:
    """What happened to an outbox, as far as polls tell.

    One thread adds polls, in their order; any thread may read. Instants may go back, as clocks are set: the
    points before are moved back as well. Memory is bounded.

    Attributes:
        unwritten: The minutes that may be noted, for whoever writes them into the database; oldest first.
        error: Why they could not be; empty if they could. For the caller to set.
    """

    def __init__(self, interval: float = 10.0) -> None:
        self._points = Points(interval)
        self.unwritten = deque[Minute](maxlen=MOST_UNWRITTEN)
        self.error = ""
        self._maker = MinuteMaker()
        self._problems = Problems()
        self._happenings: tuple[HistoryEvent, ...] = ()  # replaced as a whole, so that any thread may read it
        self._before: StatusAt | None = None
        self._leader: str | None = None
        self._away: datetime | None = None

    def points(self) -> Sequence[Point]:
        """Returns the points of the last hour, in the order of time; gaps are points that are not known."""
        return self._points.all

    def events(self) -> Sequence[HistoryEvent]:
        """Returns the last events, in the order in which they were seen; 50 at most."""
        return self._happenings

    def add(self, at: datetime, snapshot: Snapshot) -> Sequence[HistoryEvent]:
        """Adds a poll, and returns what happened since the one before; nothing is known before the first."""
        backlog, rate = snapshot.backlog, snapshot.total("purged_per_second")
        oldest = None if backlog.oldest is None else max(0.0, backlog.oldest)
        recent = snapshot.recent
        p50, p99 = (recent.quantile(share) for share in (0.5, 0.99))
        failed = sum(each.failed for each in recent.topics)
        point = Point(at, backlog.records, oldest, max(0.0, rate), p50, p99, failed)
        seen = StatusAt.of(at, snapshot)
        told = [*self._back(at), *self._changes(at, seen)]
        self._before, self._away = seen, None
        self._leader = harvester(snapshot) or self._leader
        return self._tell(point, told, recent)

    def failed(self, at: datetime, error: str) -> Sequence[HistoryEvent]:
        """Adds a poll that has failed; returns that the database cannot be queried, if that is news."""
        told = list[Change]()
        if self._away is None:
            self._away = at
            said = f"the database cannot be queried: {in_one_line(error)}"
            told = [(HistoryEventCode.DATABASE_AWAY, said)]
        return self._tell(Point(at), told, Recent())

    def _back(self, at: datetime) -> Iterable[Change]:
        if self._away is None:
            return ()
        away = format_duration(max(0.0, round((at - self._away).total_seconds())))
        return [(HistoryEventCode.DATABASE_BACK, f"the database can be queried again, after {away}")]

    def _changes(self, at: datetime, seen: StatusAt) -> Iterable[Change]:
        present = list(self._problems.compare(at, problems(seen.snapshot)))
        if self._before is None:
            return ()  # since when there are problems is not known
        return [*changes(self._before, seen, self._leader), *present]

    def _tell(self, point: Point, told: Iterable[Change], recent: Recent) -> Sequence[HistoryEvent]:
        happened = tuple(HistoryEvent(point.at, code, text) for code, text in told)
        self._happenings = (*self._happenings, *happened)[-MOST_HAPPENINGS:]
        self._points.add(point)
        self.unwritten.extend(self._maker.add(point, recent, happened))
        return happened
