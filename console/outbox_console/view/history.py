"""What the page shows of the history of an outbox: plain values, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from outbox_core.status.history_events import HistoryEvent
from outbox_core.status.minutes import Seen, Span, coarser
from outbox_core.status.points import Point
from outbox_core.text.wording import coarse_duration, short_duration

from outbox_console.view.graphs import Graph, Sample, graph

MOST_HAPPENINGS = 20
HEADINGS = {
    Span.QUARTER: "The last 15 minutes",
    Span.HOUR: "The last hour",
    Span.DAY: "The last day",
}
CHOICES = {Span.QUARTER: "15 minutes", Span.HOUR: "an hour", Span.DAY: "a day"}
_SLACK = timedelta(minutes=2)
_STEP = 10.0
"""Seconds by which graphs move on: as often as there is a point."""
_MOST_POINTS = 288
"""Points of a graph about: more would be nearer to each other than a line is wide."""


@dataclass(frozen=True, slots=True)
class HistoryView:
    """What is shown of a history."""

    span: Span
    heading: str
    graphs: Sequence[Graph]
    known_since: datetime | None  # the first point, if the span begins earlier; None if it is full
    events: Sequence[HistoryEvent]  # the last, the newest first
    takeovers: int
    unkept: str  # why the database keeps none; empty if it does

    @classmethod
    def of(cls, seen: Seen, span: Span, now: datetime, unkept: str) -> HistoryView:
        """Returns it."""
        points = seen.points
        is_full = not points or now - points[0].at >= span.length - _SLACK
        return cls(
            span,
            HEADINGS[span],
            graphs(points, now, span),
            None if is_full else points[0].at,
            seen.events[: -MOST_HAPPENINGS - 1 : -1],
            seen.takeovers,
            unkept,
        )


def graphs(points: Sequence[Point], now: datetime, span: Span = Span.HOUR) -> Sequence[Graph]:
    """Returns graphs of backlog, age, rate, failures and latency.

    Where no record waits, the oldest has the age 0.
    """
    length = span.length
    step = max(_STEP, length.total_seconds() / _MOST_POINTS)
    now = datetime.fromtimestamp(ceil(now.timestamp() / _STEP) * _STEP, UTC)
    if step > _STEP:
        points = coarser(points, timedelta(seconds=step))

    def samples(name: str) -> list[Sample]:
        return [(each.at, getattr(each, name)) for each in points]

    ages = [(each.at, (each.oldest or 0.0) if each.known else None) for each in points]
    return (
        graph("backlog", "Backlog, records", samples("records"), now, _number, longest=length),
        graph("oldest", "Age of the oldest record", ages, now, coarse_duration, longest=length),
        graph("rate", "Harvested, records/s", samples("rate"), now, _number, longest=length),
        graph("p50", "Latency, p50", samples("p50"), now, short_duration, longest=length),
        graph("p99", "Latency, p99", samples("p99"), now, short_duration, longest=length),
        graph("failed", "Failed, records a minute", samples("failed"), now, _number, longest=length),
    )


def _number(figure: float) -> str:
    return f"{figure:,.0f}"
