"""What a lane measures: durations and sizes in fixed buckets, so that those of several lanes can be added up.

A lane measures in its own process, which may be a Spark worker. Its reports carry the measurements to the
leader. A heartbeat, which the fence stores, has only what :mod:`outbox_core.events.recent` makes of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeVar

from outbox_core.events.metrics import LaneMetrics

MAX_TOPICS = 100
"""How many topics a lane counts apart; further ones are counted as ``OTHER_TOPICS``."""
OTHER_TOPICS = "_OTHER"


@dataclass(slots=True)
class Distribution:
    """How many values fell into each bucket."""

    bounds: ClassVar[tuple[float, ...]] = ()

    counts: list[int] = field(default_factory=list)
    """The values up to each of ``bounds``, without those of the bucket before; then those beyond."""
    total: float = 0.0  # the sum of all values

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Counts a value; one below 0, as clocks differ, counts as 0."""
        value = max(value, 0.0)
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def __add__(self, other: Self) -> Self:
        counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        return type(self)(counts, self.total + other.total)


@dataclass(slots=True)
class Durations(Distribution):
    """Seconds, from a statement that takes a millisecond to a record that has waited for an hour."""

    bounds: ClassVar[tuple[float, ...]] = (
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
        300.0, 600.0, 1800.0, 3600.0,
    )  # fmt: skip


@dataclass(slots=True)
class Operations(Distribution):
    """Seconds in the buckets that OpenTelemetry advises for operations of messaging."""

    bounds: ClassVar[tuple[float, ...]] = (
        0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    )  # fmt: skip


@dataclass(slots=True)
class Sizes(Distribution):
    """Numbers of records."""

    bounds: ClassVar[tuple[float, ...]] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


Kind = TypeVar("Kind", bound=Distribution)


@dataclass(slots=True)
class Measurements:
    """What one lane has measured since it started. One thread writes, others may copy it by adding."""

    deliveries: Durations = field(default_factory=Durations)
    """Seconds from the creation of a record until the broker's acknowledgement, of those records that tell
    when they were created."""
    operations: Operations = field(default_factory=Operations)
    """Seconds from sending a record until the broker's report; or of a transaction."""
    steps: dict[str, Durations] = field(default_factory=dict)  # step → seconds of each
    sizes: dict[str, Sizes] = field(default_factory=dict)  # step → records of each that had some
    published: dict[str, int] = field(default_factory=dict)
    """Topic → records that the broker has acknowledged."""
    failed: dict[str, int] = field(default_factory=dict)
    """Topic → records sent that it has not, or whose transaction was aborted."""

    def step(self, name: str, seconds: float, records: int = 0) -> None:
        """Counts a step that took so long, and was about so many records."""
        if name not in self.steps:  # a distribution that is made in vain costs more than the count
            self.steps[name] = Durations()
        self.steps[name].add(seconds)
        if records:
            self.size(name, records)

    def size(self, name: str, records: int) -> None:
        """Counts a step that is about so many records."""
        if name not in self.sizes:
            self.sizes[name] = Sizes()
        self.sizes[name].add(records)

    def __add__(self, other: Measurements) -> Measurements:
        return Measurements(
            self.deliveries + other.deliveries,
            self.operations + other.operations,
            _joined(self.steps, other.steps),
            _joined(self.sizes, other.sizes),
            _summed(self.published, other.published),
            _summed(self.failed, other.failed),
        )


@dataclass(frozen=True, slots=True)
class LaneWork:
    """What one lane has done."""

    metrics: LaneMetrics = field(default_factory=LaneMetrics)
    measurements: Measurements = field(default_factory=Measurements)

    def __add__(self, other: LaneWork) -> LaneWork:
        return LaneWork(self.metrics + other.metrics, self.measurements + other.measurements)

    def ended(self) -> LaneWork:
        """Returns the work of a lane that has ended; see :meth:`LaneMetrics.ended`."""
        return LaneWork(self.metrics.ended(), self.measurements)


def add_lanes(one: Mapping[int, LaneWork], other: Mapping[int, LaneWork]) -> dict[int, LaneWork]:
    """Combines what lanes have done, lane by lane."""
    added = dict(one)
    for lane, work in other.items():
        added[lane] = added.get(lane, LaneWork()) + work
    return added


def ended_lanes(lanes: Mapping[int, LaneWork]) -> dict[int, LaneWork]:
    """Returns what lanes have done that have ended."""
    return {lane: work.ended() for lane, work in lanes.items()}


class SendTimes:
    """Measures for how long sent records wait for the broker's report, without a note for each record.

    A report is taken for one about the records sent first. The sum of the durations is exact whatever the
    order of the reports, and each duration nearly so, as brokers report in about the order of sending.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, int]] = deque()
        """When records were sent, and how many of them have no report yet."""

    def sent(self, now: float, records: int) -> None:
        """Notes that records were sent."""
        if records:
            self._waiting.append((now, records))

    def reported(self, now: float, records: int, measurements: Measurements) -> None:
        """Measures records of which the broker has reported."""
        while records and self._waiting:
            since, waiting = self._waiting.popleft()
            told = min(records, waiting)
            measurements.operations.add(now - since, told)
            records -= told
            if told < waiting:
                self._waiting.appendleft((since, waiting - told))
            else:
                measurements.step("publish", now - since)


def count_topics(counts: dict[str, int], topics: Mapping[str, int]) -> None:
    """Adds records by topic to ``counts``, which keeps ``MAX_TOPICS`` topics apart."""
    for topic, records in topics.items():
        name = topic if topic in counts or len(counts) < MAX_TOPICS else OTHER_TOPICS
        counts[name] = counts.get(name, 0) + records


def _joined(mine: Mapping[str, Kind], theirs: Mapping[str, Kind]) -> dict[str, Kind]:
    joined: dict[str, Kind] = {}
    for part in (dict(mine), dict(theirs)):  # copied at once, as a lane may add to it meanwhile
        for name, values in part.items():
            joined[name] = joined.get(name, type(values)()) + values
    return joined


def _summed(mine: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, int]:
    summed = dict(mine)
    for name, value in dict(theirs).items():
        summed[name] = summed.get(name, 0) + value
    return summed
