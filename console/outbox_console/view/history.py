"""What the page shows of the last hour of an outbox: plain values, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import ceil

from outbox_core.status.history import Point
from outbox_core.status.history_events import HistoryEvent
from outbox_core.text.wording import coarse_duration

from outbox_console.view.graphs import LONGEST, Graph, graph

MOST_HAPPENINGS = 20
_SLACK = timedelta(seconds=30)
_STEP = 10.0
"""Seconds by which graphs move on: as often as there is a point."""


def graphs(points: Sequence[Point], now: datetime) -> Sequence[Graph]:
    """Returns graphs of backlog, age and rate.

    Where no record waits, the oldest has the age 0.
    """
    now = datetime.fromtimestamp(ceil(now.timestamp() / _STEP) * _STEP, UTC)
    return (
        graph("backlog", "Backlog, records", [(each.at, each.records) for each in points], now, _number),
        graph(
            "oldest",
            "Age of the oldest record",
            [(each.at, (each.oldest or 0.0) if each.known else None) for each in points],
            now,
            coarse_duration,
        ),
        graph("rate", "Harvested, records/s", [(each.at, each.rate) for each in points], now, _number),
    )


def known_since(points: Sequence[Point], now: datetime) -> datetime | None:
    """Returns when the first look was, if that is less than an hour ago; ``None`` if the hour is full."""
    if not points or now - points[0].at >= LONGEST - _SLACK:
        return None
    return points[0].at


def recent(events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
    """Returns the last events, the newest first."""
    return events[: -MOST_HAPPENINGS - 1 : -1]


def _number(figure: float) -> str:
    return f"{figure:,.0f}"
