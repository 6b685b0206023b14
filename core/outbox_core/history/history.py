"""The last hour of one outbox."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from outbox_core.config.duration import format_duration
from outbox_core.health import problems
from outbox_core.history.events import (
    Change,
    HistoryEvent,
    HistoryEventCode,
    StatusAt,
    changes,
    harvester,
    in_one_line,
)
from outbox_core.history.points import Point, Points
from outbox_core.history.problems import Problems
from outbox_core.snapshot import Snapshot

MOST_HAPPENINGS = 50


class History:
    """What happened to an outbox, as far as polls tell.

    One thread adds polls, in their order; any thread may read. Instants may go back, as clocks are set: the
    points before are moved back as well. Memory is bounded.

    Args:
        interval: Seconds between two polls, as they are meant to be.
    """

    def __init__(self, interval: float = 10.0) -> None:
        self._points = Points(interval)
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
        """Adds a poll.

        Args:
            at: When it was made, with a time zone.
            snapshot: What was seen.

        Returns:
            What happened since the poll before; nothing at the first poll, as nothing is known before it.
        """
        backlog, rate = snapshot.backlog, snapshot.total("purged_per_second")
        oldest = None if backlog.oldest is None else max(0.0, backlog.oldest)
        self._points.add(Point(at, backlog.records, oldest, max(0.0, rate)))
        seen = StatusAt.of(at, snapshot)
        told = [*self._back(at), *self._changes(at, seen)]
        self._before, self._away = seen, None
        self._leader = harvester(snapshot) or self._leader
        return self._tell(at, told)

    def failed(self, at: datetime, error: str) -> Sequence[HistoryEvent]:
        """Adds a poll that has failed.

        Args:
            at: When it failed.
            error: Why, free of secrets.

        Returns:
            That the database cannot be queried, if the poll before did not fail.
        """
        self._points.add(Point(at))
        if self._away is not None:
            return ()
        self._away = at
        told = f"the database cannot be queried: {in_one_line(error)}"
        return self._tell(at, [(HistoryEventCode.DATABASE_AWAY, told)])

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

    def _tell(self, at: datetime, told: Iterable[Change]) -> Sequence[HistoryEvent]:
        happened = tuple(HistoryEvent(at, code, text) for code, text in told)
        self._happenings = (*self._happenings, *happened)[-MOST_HAPPENINGS:]
        return happened
