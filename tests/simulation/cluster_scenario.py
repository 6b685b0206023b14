"""What is drawn for one history: clusters, times, clocks, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from outbox_api import ColumnIs
from outbox_cluster import ClusterAffinity, ClusterOptions
from outbox_core.delivery.at_least_once import MarkPurgeReset
from outbox_core.delivery.exactly_once import SelectPublishPurge

from .cluster_replica import Change, Choose, prefix

KINDS = ("loss", "second loss", "return", "cut", "skew", "steps", "restarts", "growth", "takeover")
"""What may go wrong, or be changed."""


def eligible(affinity: ClusterAffinity, taken_over: tuple[int, ...]) -> Sequence[ColumnIs]:
    """Returns the sources of a harvester."""
    return affinity.eligible(taken_over)


def everything(change: Change, cluster: int) -> bool:
    """Returns that a cluster publishes all changes."""
    del change, cluster
    return True


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a mutant can replace."""

    eligible: Callable[[ClusterAffinity, tuple[int, ...]], Sequence[ColumnIs]] = eligible
    affinity: type[ClusterAffinity] = ClusterAffinity
    records: type[MarkPurgeReset] = MarkPurgeReset
    batches: type[SelectPublishPurge] = SelectPublishPurge
    choose: Choose = prefix
    replicates: Callable[[Change, int], bool] = everything


@dataclass(frozen=True)
class Scenario:
    """What does not change during a history.

    Attributes:
        count: The clusters in the end; one less at first, where they grow.
        delay: The maximum delay in seconds.
        travel: The longest time that replication takes while nothing is wrong, in seconds.
        arrival: Whether ages count from arrival.
        forwards: Whether deletions travel on from whoever applies them.
        exactly_once: Which state machine.
        run_records: How many records of a key it may have in flight without transactions.
        rate: Transactions a second, in each cluster.
        seconds: How long applications write.
        kinds: What happens.
        skew: How far clocks are from the true time at most, in seconds.
    """

    count: int
    delay: float
    travel: float
    arrival: bool
    forwards: bool
    exactly_once: bool
    run_records: int
    rate: float
    seconds: float
    kinds: tuple[str, ...]
    skew: float
    parts: Parts

    @classmethod
    def draw(cls, chance: Random, parts: Parts, kinds: Sequence[str], fixed: Mapping[str, Any]) -> Scenario:
        """Draws one."""
        delay = chance.uniform(5.0, 9.0)
        happens = [kind for kind in kinds if chance.random() < 0.4]
        values: dict[str, Any] = {
            "count": chance.randint(2, 5),
            "delay": delay,
            "travel": chance.choice([0.01, 0.1, 0.15 * delay]),
            "arrival": chance.random() < 0.5,
            "forwards": chance.random() < 0.5,
            "exactly_once": chance.random() < 0.5,
            "rate": chance.uniform(2.0, 10.0),
            "seconds": chance.uniform(2.0, 4.0) * delay,
            "kinds": tuple(happens),
            "run_records": chance.choice((1, 3, 1000)),
            # Half the delay is far above what replication, delivery and purge take here.
            "skew": 0.15 * delay,
        }
        return cls(**{**values, **fixed}, parts=parts)

    def affinity(self, cluster: int, count: int) -> ClusterAffinity:
        """Returns the affinity of a cluster that knows of so many."""
        return self.parts.affinity(
            ClusterOptions(
                cluster_id=cluster,
                clusters_count=count,
                maximum_delay=self.delay,
                arrival_column="arrival_time" if self.arrival else "",
            )
        )

    def rank(self, cluster: int, origin: int) -> int:
        """Returns the place of a cluster among those that take over rows of another; stated anew here."""
        order = [*range(origin, self.count + 1), *range(1, origin)]
        return order.index(cluster)
