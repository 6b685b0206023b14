"""The last hour of one outbox: its figures as points in time, and what happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

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
from outbox_core.status.snapshot import Snapshot
from outbox_core.text.duration import format_duration

KEPT = timedelta(hours=1)
"""How far back points go, from the last."""
SPACING = timedelta(seconds=10)
"""About how far points are apart."""
NEAR = timedelta(seconds=9)
"""Polls nearer than this to the beginning of a point become part of it; less than ``SPACING``, as polls that
are to be ten seconds apart are a little less at times."""
_MISSED = 3
"""So many polls must be missing before they leave a gap."""


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of an outbox at one moment, or a gap."""

    at: datetime
    records: int | None = None
    """The backlog; ``None`` if it is not known, and then the two others are ``None`` as well."""
    oldest: float | None = None  # age of the oldest record in seconds; None if there is none
    rate: float | None = None  # records that are harvested in each second

    @property
    def known(self) -> bool:
        """Whether this is no gap."""
        return self.records is not None


class Points:
    """The points of the last hour: 401 at most.

    A point has the greatest figures of the polls that became part of it, so that a short peak is seen.

    Args:
        interval: Seconds between two polls, as they are meant to be. Where some are missing, there is a gap.
    """

    def __init__(self, interval: float) -> None:
        self._longest = _MISSED * max(SPACING, timedelta(seconds=interval))
        self._points: tuple[Point, ...] = ()  # replaced as a whole, so that any thread may read it
        self._last: datetime | None = None

    @property
    def all(self) -> Sequence[Point]:
        """The points, in the order of time. May be read on any thread."""
        return self._points

    def add(self, point: Point) -> None:
        """Adds a poll, or that a poll has failed."""
        points = _moved(self._points, point.at) if self._last and point.at < self._last else self._points
        if points and points[-1].known and self._last and point.at - self._last > self._longest:
            points = (*points, Point(self._last + SPACING))
        if points and point.at - points[-1].at < NEAR:
            points = (*points[:-1], _merged(points[-1], point))
        else:
            points = (*points, point)
        self._points = tuple(each for each in points if point.at - each.at <= KEPT)
        self._last = point.at


def _moved(points: tuple[Point, ...], now: datetime) -> tuple[Point, ...]:
    """Moves points to before ``now``, to which the clock was set back, so that their order remains."""
    by = points[-1].at - now
    return tuple(replace(each, at=each.at - by) for each in points) if by > timedelta(0) else points


def _merged(one: Point, other: Point) -> Point:
    if not (one.known and other.known):
        return replace(one if one.known else other, at=one.at)
    return Point(
        one.at,
        max(one.records or 0, other.records or 0),
        max((each.oldest for each in (one, other) if each.oldest is not None), default=None),
        max(one.rate or 0.0, other.rate or 0.0),
    )


MOST_HAPPENINGS = 50


class History:
    """What happened to an outbox, as far as polls tell.

    One thread adds polls, in their order; any thread may read. Instants may go back, as clocks are set: the
    points before are moved back as well. Memory is bounded.
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
        """Adds a poll, and returns what happened since the one before; nothing is known before the first."""
        backlog, rate = snapshot.backlog, snapshot.total("purged_per_second")
        oldest = None if backlog.oldest is None else max(0.0, backlog.oldest)
        self._points.add(Point(at, backlog.records, oldest, max(0.0, rate)))
        seen = StatusAt.of(at, snapshot)
        told = [*self._back(at), *self._changes(at, seen)]
        self._before, self._away = seen, None
        self._leader = harvester(snapshot) or self._leader
        return self._tell(at, told)

    def failed(self, at: datetime, error: str) -> Sequence[HistoryEvent]:
        """Adds a poll that has failed; returns that the database cannot be queried, if that is news."""
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
