"""What a lane has done in the last minute, as its heartbeats say it.

They are written often, so it is short: few topics, and of latencies only the buckets in which there are some.
:mod:`outbox_core.status.recent` reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from outbox_core.events.measurements import OTHER_TOPICS, Durations, Measurements

RECENT_SECONDS = 60.0
MAX_RECENT_TOPICS = 20
"""How many topics a heartbeat tells apart; further ones are told as ``OTHER_TOPICS``."""
_MOST_LETTERS = 1000
"""Letters of their names, likewise."""
_STEP_SECONDS = 5.0
"""Between two readings that are remembered."""


class _Reading(NamedTuple):
    at: float
    deliveries: list[int]
    published: dict[str, int]
    failed: dict[str, int]

    @classmethod
    def of(cls, now: float, measured: Measurements) -> _Reading:
        return cls(now, list(measured.deliveries.counts), dict(measured.published), dict(measured.failed))


class RecentWork:
    """Remembers for one lane what it had measured a minute ago."""

    def __init__(self, now: float) -> None:
        self._readings = deque([_Reading.of(now, Measurements())])

    def as_data(self, now: float, measured: Measurements) -> dict[str, Any]:
        """Returns what a heartbeat says of the last minute, or since the lane's start if that is less."""
        readings, present = self._readings, _Reading.of(now, measured)
        while len(readings) > 1 and now - readings[1].at >= RECENT_SECONDS:
            readings.popleft()
        first = readings[0]
        if now - readings[-1].at >= _STEP_SECONDS:
            readings.append(present)
        counts = [after - before for before, after in zip(first.deliveries, present.deliveries, strict=True)]
        bounds = (0.0, *Durations.bounds, Durations.bounds[-1])
        topics = {
            topic: [
                present.published.get(topic, 0) - first.published.get(topic, 0),
                present.failed.get(topic, 0) - first.failed.get(topic, 0),
            ]
            for topic in present.published.keys() | present.failed.keys()
        }
        return {
            "recent": {
                "seconds": round(now - first.at, 1),
                "latency": [
                    [least, most, count]
                    for (least, most), count in zip(pairwise(bounds), counts, strict=True)
                    if count
                ],
                "topics": _few({topic: counted for topic, counted in topics.items() if any(counted)}),
            }
        }


def _few(topics: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Keeps the topics with most records apart, and adds up the others."""
    few, letters = dict[str, list[int]](), 0
    for topic, (published, failed) in sorted(topics.items(), key=lambda each: -sum(each[1])):
        fits = len(few) < MAX_RECENT_TOPICS and letters + len(topic) <= _MOST_LETTERS
        if topic != OTHER_TOPICS and fits:
            few[topic] = [published, failed]
            letters += len(topic)
        else:
            others = few.setdefault(OTHER_TOPICS, [0, 0])
            few[OTHER_TOPICS] = [others[0] + published, others[1] + failed]
    return few
