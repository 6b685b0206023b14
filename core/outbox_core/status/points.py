"""The figures of one outbox in the last hour, as points in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

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
    """The backlog; ``None`` if it is not known, and then the others are ``None`` as well."""
    oldest: float | None = None  # age of the oldest record in seconds; None if there is none
    rate: float | None = None  # records that are harvested in each second
    p50: float | None = None
    """Seconds from creation to acknowledgement within which half of the records of the last minute were; this
    and the next are ``None`` if there was none."""
    p99: float | None = None  # the same of 99 of 100
    failed: int | None = None  # records that failed in the last minute

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
            points = (*points[:-1], merged((points[-1], point)))
        else:
            points = (*points, point)
        self._points = tuple(each for each in points if point.at - each.at <= KEPT)
        self._last = point.at


def _moved(points: tuple[Point, ...], now: datetime) -> tuple[Point, ...]:
    """Moves points to before ``now``, to which the clock was set back, so that their order remains."""
    by = points[-1].at - now
    return tuple(replace(each, at=each.at - by) for each in points) if by > timedelta(0) else points


def merged(points: Sequence[Point]) -> Point:
    """Returns the first point with the greatest figures of all; not known unless all are."""
    first = points[0]
    if not all(each.known for each in points):
        return replace(next((each for each in points if not each.known), first), at=first.at)
    greatest = {
        name: max((value for each in points if (value := getattr(each, name)) is not None), default=None)
        for name in ("records", "oldest", "rate", "p50", "p99", "failed")
    }
    return Point(first.at, **greatest)
