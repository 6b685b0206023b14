"""The history of an outbox by minutes, as its database keeps it for all processes, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

from outbox_core.status.history_events import HistoryEvent, HistoryEventCode
from outbox_core.status.points import Point, merged
from outbox_core.status.recent import Recent

MINUTE = timedelta(minutes=1)
NEAR = timedelta(seconds=30)
"""The same event within so much time is one, which two processes have seen in two polls."""
OVERLAP = timedelta(seconds=20)
"""Events are noted of two minutes that were seen so shortly before the end of the first: the next minute may
be noted by a process that saw them earlier, or later, than this one."""
MOST_EVENTS = 20
"""Events that are noted of a minute."""


class Span(StrEnum):
    """How much of a history is shown; programs may rely on these names."""

    QUARTER = "quarter"
    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return _LENGTHS[self]


_LENGTHS = {
    Span.QUARTER: timedelta(minutes=15),
    Span.HOUR: timedelta(hours=1),
    Span.DAY: timedelta(days=1),
}


def number_of(at: datetime) -> int:
    """Returns the number of a minute since 1970."""
    return int(at.timestamp() // 60)


@dataclass(frozen=True, slots=True)
class Minute:
    """What was seen of an outbox in a minute."""

    point: Point  # at its beginning: the greatest figures, and the mean rate
    topics: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Topic → records that were published, and that failed."""
    events: Sequence[HistoryEvent] = ()

    @property
    def number(self) -> int:
        """Its number since 1970."""
        return number_of(self.point.at)

    @property
    def end(self) -> datetime:
        """When it is over."""
        return self.point.at + MINUTE


_FIGURES = ("records", "oldest", "rate", "p50", "p99", "failed")


def as_text(minute: Minute) -> str:
    """Returns the text that a database keeps of a minute."""
    figures = {
        name: round(value, 4) for name in _FIGURES if (value := getattr(minute.point, name)) is not None
    }
    events = [[each.at.timestamp(), each.code, each.text] for each in minute.events]
    more = {"topics": minute.topics} if minute.topics else {}
    return json.dumps({**figures, **more, **({"events": events} if events else {})})


def of_text(number: int, text: str) -> Minute | None:
    """Returns the minute that a text is of; ``None`` if another version has written it."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
        told = json.loads(text)
        at = datetime.fromtimestamp(number * 60, UTC)
        figures: dict[str, Any] = {name: told.get(name) for name in _FIGURES}
        events = [
            HistoryEvent(datetime.fromtimestamp(seconds, UTC), HistoryEventCode(code), str(said))
            for seconds, code, said in told.get("events", ())
        ]
        topics = {str(topic): (int(one), int(two)) for topic, (one, two) in told.get("topics", {}).items()}
        return Minute(Point(at, **figures), topics, events)
    return None


class MinuteMaker:
    """Makes minutes of polls: one of each minute in which a poll did not fail, once it is over.

    What is noted first of a minute stays. So a minute of which a part was not seen waits for the end of the
    next one: by then, a process that has seen all of it has noted it.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._points: list[Point] = []
        self._events: list[HistoryEvent] = []
        self._recent = Recent()
        self._known: datetime | None = None  # the last poll that did not fail
        self._is_whole = False  # the present minute, so far
        self._waiting: Minute | None = None

    def add(self, point: Point, recent: Recent, events: Sequence[HistoryEvent]) -> list[Minute]:
        """Adds a poll, or one that has failed; returns the minutes that may be noted now, in their order."""
        over, number = list[Minute](), number_of(point.at)
        follows = self._known is not None and timedelta(0) <= point.at - self._known <= OVERLAP
        self._is_whole = self._is_whole and follows
        if number != self._number:
            over, self._number = self._over(), number
            self._is_whole = follows
        self._events = [*self._events, *events][-MOST_EVENTS:]
        if point.known:
            self._points.append(point)
            self._recent, self._known = recent, point.at
        return over

    def _over(self) -> list[Minute]:
        over = [self._waiting] if self._waiting else []
        self._waiting = None
        points, self._points = self._points, []
        if not points or self._number is None:
            return over  # events wait for a minute of which something is known
        at = datetime.fromtimestamp(self._number * 60, UTC)
        point = replace(merged(points), at=at, rate=sum(each.rate or 0.0 for each in points) / len(points))
        topics = {each.topic: (each.published, each.failed) for each in self._recent.topics}
        minute = Minute(point, topics, self._events)
        self._events = [each for each in self._events if each.at >= at + MINUTE - OVERLAP]
        if self._is_whole:
            return [*over, minute]
        self._waiting = minute
        return over


class TopicRecords(NamedTuple):
    """How many records of a topic were published, and failed."""

    topic: str
    published: int
    failed: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What is shown of a history."""

    points: Sequence[Point]  # in the order of time; gaps are points that are not known
    events: Sequence[HistoryEvent]  # likewise

    @property
    def takeovers(self) -> int:
        """How often another process began to lead, or the same anew."""
        return sum(each.code is HistoryEventCode.LEADER_CHANGED for each in self.events)


def seen(
    minutes: Iterable[Minute], points: Sequence[Point], events: Sequence[HistoryEvent], since: datetime
) -> Seen:
    """Joins what a database keeps with what this process has seen after that, from an instant on."""
    kept = [each for each in minutes if each.end > since]
    until = kept[-1].end if kept else since
    later = [each for each in points if each.at >= until]
    told = sorted(
        [
            *(event for each in kept for event in each.events),
            *(each for each in events if each.at >= until - OVERLAP),
        ],
        key=lambda each: each.at,
    )
    return Seen(
        list(_with_gaps([each.point for each in kept], later)),
        [each for each in _distinct(told) if each.at >= since],
    )


def topics_of(minutes: Iterable[Minute], since: datetime) -> list[TopicRecords]:
    """Adds up the records of each topic from an instant on; returns those with most first."""
    found = dict[str, TopicRecords]()
    for each in minutes:
        for topic, (published, failed) in each.topics.items() if each.end > since else ():
            known = found.get(topic, TopicRecords(topic, 0, 0))
            found[topic] = TopicRecords(topic, known.published + published, known.failed + failed)
    return sorted(found.values(), key=lambda each: -(each.published + each.failed))


def _with_gaps(minutes: Sequence[Point], later: Sequence[Point]) -> Iterator[Point]:
    """Yields points, with one that is not known behind each minute that others do not follow."""
    for point, following in zip(minutes, [*minutes[1:], *later[:1], None], strict=False):
        yield point
        if following is not None and following.at - point.at > MINUTE + NEAR:
            yield Point(point.at + MINUTE)
    yield from later


def _distinct(events: Iterable[HistoryEvent]) -> Iterator[HistoryEvent]:
    last: dict[tuple[str, str], datetime] = {}
    for each in events:
        before, last[each.code, each.text] = last.get((each.code, each.text)), each.at
        if before is None or each.at - before > NEAR:
            yield each


def coarser(points: Sequence[Point], step: timedelta) -> list[Point]:
    """Returns one point for each step, with the greatest figures; gaps remain between them."""
    seconds = step.total_seconds()
    found = list[Point]()
    for _, some in groupby(points, lambda each: each.at.timestamp() // seconds):
        together = list(some)
        if known := [each for each in together if each.known]:
            found.append(merged(known))
        if not together[-1].known:
            found.append(together[-1])
    return found
