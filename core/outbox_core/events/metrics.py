"""Metrics: the counters and gauges of one lane, and the rates of all lanes.

To add a counter, add a field to :class:`LaneMetrics` and increase it in ``lanes``. It is then in ``outbox
status --json``, and docs/output.md must name it. What is counted by topic is in :mod:`.measurements`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

COPIED = "dead_letters_copied_until"
"""What the first lane's heartbeats have besides metrics: the dead letters of before have been copied."""


@dataclass(slots=True)
class LaneMetrics:
    """A lane's counters since it started, and its gauges at this moment; records unless said otherwise."""

    marked: int = 0  # returned by marks and selections
    taken_over: int = 0  # those of these that another cluster wrote
    sent: int = 0  # handed to the publisher
    purged: int = 0  # delivered, and deleted from the outbox
    superseded: int = 0  # deleted and not sent, as later ones of their keys waited
    failed: int = 0  # deliveries that failed
    remarks: int = 0  # times the lane took a new leader id
    recovered: int = 0  # found to be in the log when the lane started, and purged (exactly-once)
    aborted: int = 0  # batches whose transaction was aborted (exactly-once)
    transactions: int = 0  # those that were committed (exactly-once)
    repartitioned: int = 0  # times that a topic was found to have other partitions than at its last record
    paused_seconds: float = 0.0  # the sum of the pauses between them
    in_flight: int = 0  # published and not yet purged, now
    waiting: int = 0  # marked or selected, and not yet published, now
    held: int = 0  # keys that failed and were not delivered since, now
    held_topics: int = 0  # topics that are left out as a whole because their records fail, now
    blocked_seconds: float = 0.0  # for how long the key that failed first has been failing, now
    parked: int = 0  # parked keys of the whole outbox, by the last heartbeat
    parked_seconds: float = 0.0  # for how long the first of them has been

    def __add__(self, other: LaneMetrics) -> LaneMetrics:
        """Combines two lanes, or two epochs of one: adds counters, and takes the larger of shared gauges."""
        joined = {
            name: max(mine, theirs) if name in _SHARED else mine + theirs
            for name in _NAMES
            for mine, theirs in ((getattr(self, name), getattr(other, name)),)
        }
        return LaneMetrics(**joined)

    def ended(self) -> LaneMetrics:
        """Returns the metrics of a lane that has ended: its counters, with gauges at 0."""
        gauges = ("in_flight", "waiting", "held", *_SHARED)
        return replace(self, **dict.fromkeys(gauges, 0))


_NAMES = tuple(field.name for field in fields(LaneMetrics))
_SHARED = ("held_topics", "blocked_seconds", "parked", "parked_seconds")


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of all lanes of a harvest over an interval."""

    seconds: float  # the length of the interval
    purged_per_second: float  # records delivered and purged per second
    total: LaneMetrics  # the sum of all lanes' metrics since this process first led


class Meter:
    """Turns metrics into rates, at most once per interval and only when something was delivered."""

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._since = now
        self._purged = 0

    def read(self, now: float, metrics_by_lane: Iterable[LaneMetrics]) -> Stats | None:
        """Returns statistics when they are due; ``None`` otherwise."""
        seconds = now - self._since
        if seconds < self._interval:
            return None
        total = sum(metrics_by_lane, LaneMetrics())
        purged, self._purged = total.purged - self._purged, total.purged
        self._since = now
        return Stats(seconds, purged / seconds, total) if purged > 0 else None


def as_numbers(metrics: LaneMetrics, purged_per_second: float) -> dict[str, float]:
    """Returns metrics as the plain numbers that a lane writes beside its fence for ``outbox status``."""
    numbers: dict[str, float] = asdict(metrics)
    numbers["purged_total"] = numbers.pop("purged")
    numbers["paused_seconds"] = round(metrics.paused_seconds, 3)
    numbers["purged_per_second"] = round(purged_per_second, 1)
    return numbers
