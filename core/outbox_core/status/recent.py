"""What all lanes have done in the last minute, added up from what their heartbeats say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_TOPICS = 20
"""How many topics are told apart."""
OTHER_TOPICS = "_OTHER"
"""The name under which heartbeats tell of all others."""


@dataclass(frozen=True, slots=True)
class TopicWork:
    """What was done of one topic in the last minute."""

    topic: str  # OTHER_TOPICS for all that are not told apart
    published: int = 0  # records that the broker has acknowledged
    failed: int = 0  # records sent that it has not, or whose transaction was aborted
    published_per_second: float = 0.0
    failed_per_second: float = 0.0

    def __add__(self, other: TopicWork) -> TopicWork:
        return TopicWork(
            self.topic,
            self.published + other.published,
            self.failed + other.failed,
            self.published_per_second + other.published_per_second,
            self.failed_per_second + other.failed_per_second,
        )


class Bucket(NamedTuple):
    """How many records had a latency from one bound to another, in seconds."""

    least: float
    most: float
    records: int


@dataclass(frozen=True, slots=True)
class Recent:
    """What all lanes have done in the last minute."""

    latency: tuple[Bucket, ...] = ()
    """From the creation of a record until the broker's acknowledgement, of those records that tell when they
    were created; the shortest first."""
    topics: tuple[TopicWork, ...] = ()  # those with most records first

    @classmethod
    def of(cls, heartbeats: Iterable[Mapping[str, Any]]) -> Recent:
        """Adds up what the last heartbeats of lanes say; one of another version may say nothing."""
        buckets, topics = dict[tuple[float, float], int](), dict[str, TopicWork]()
        for heartbeat in heartbeats:
            recent = heartbeat.get("recent") or {}
            seconds = max(float(recent.get("seconds", 0.0)), 1.0)
            for least, most, records in recent.get("latency", ()):
                buckets[least, most] = buckets.get((least, most), 0) + records
            for topic, (published, failed) in recent.get("topics", {}).items():
                work = TopicWork(topic, published, failed, published / seconds, failed / seconds)
                topics[topic] = topics.get(topic, TopicWork(topic)) + work
        latency = tuple(Bucket(*bounds, buckets[bounds]) for bounds in sorted(buckets))
        return cls(latency, _few(topics.values()))

    @property
    def measured(self) -> int:
        """Of how many records the latency is known."""
        return sum(each.records for each in self.latency)

    def quantile(self, share: float) -> float | None:
        """Returns the latency that so large a share of all had at most, about; ``None`` if there is none.

        Within a bucket records count as spread evenly.
        """
        wanted, before = share * self.measured, 0
        for least, most, records in self.latency:
            if before + records >= wanted:
                return least + (most - least) * (wanted - before) / records
            before += records
        return None


def _few(topics: Iterable[TopicWork]) -> tuple[TopicWork, ...]:
    few, others = list[TopicWork](), TopicWork(OTHER_TOPICS)
    for each in sorted(topics, key=lambda each: -(each.published + each.failed)):
        if each.topic == OTHER_TOPICS or len(few) == MAX_TOPICS:
            others += each
        else:
            few.append(each)
    return (*few, others) if others.published or others.failed else tuple(few)


def as_data(recent: Recent) -> dict[str, Any]:
    """Returns it as JSON data."""
    latency = {
        "records": recent.measured,
        "p50_seconds": recent.quantile(0.5),
        "p99_seconds": recent.quantile(0.99),
    }
    topics = [
        {
            "topic": each.topic,
            "published": each.published,
            "failed": each.failed,
            "published_per_second": round(each.published_per_second, 2),
            "failed_per_second": round(each.failed_per_second, 2),
        }
        for each in recent.topics
    ]
    return {"latency": latency if recent.measured else None, "topics": topics}
