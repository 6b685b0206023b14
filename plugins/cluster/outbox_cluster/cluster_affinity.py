"""The order in which clusters take over: its options, and the conditions that follow from them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outbox_api import ColumnIs, ConfigError, Origin
from outbox_api.portable.sources import OUTBOX_COLUMNS
from outbox_api.seams.affinity import MAX_CLUSTER
from outbox_api.seams.hooks import Duration

_WRITTEN = {
    "OUTBOX_CLUSTER_ID": "clusterID",
    "OUTBOX_CLUSTERS_COUNT": "clustersCount",
    "OUTBOX_MAXIMUM_DELAY": "maximumDelay",
}
"""Environment variable → the option whose default it is."""

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DELAY = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise ConfigError(f"set {_WRITTEN[name]}, or {name} in the environment")
    return value


def _number(name: str) -> int:
    value = _variable(name)
    if not (value.isascii() and value.isdecimal()):
        raise ConfigError(f"{name} in the environment is '{value}', which is no whole number")
    return int(value)


def _delay(name: str) -> float:
    value = _variable(name)
    if not (match := _DELAY.fullmatch(value)):
        raise ConfigError(f"{name} in the environment is '{value}'; write seconds, or a duration such as 10m")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Which cluster this is, and when it takes over rows of others.

    Attributes:
        cluster_id: The number of this cluster, from 1; by default OUTBOX_CLUSTER_ID in the environment.
        clusters_count: How many clusters there are; by default OUTBOX_CLUSTERS_COUNT in the environment.
        maximum_delay: Seconds after which a row has certainly been replicated, delivered and purged, and its
            purge replicated, while nothing is wrong; by default OUTBOX_MAXIMUM_DELAY in the environment.
        column: The column with the number of the cluster that wrote the row.
        arrival_column: The column with the time when the row came to this replica; empty if there is none.
        takeover: ``ranked``: one cluster after the other. ``all``: all others at once, as the article has it.
        existing_rows: The cluster that rows belong to which the table had before it had the column.
        replicas: Cluster → data source of its replica, where this cluster can reach it. The own is ignored,
            so that all clusters can share one configuration.
    """

    cluster_id: int = field(default_factory=lambda: _number("OUTBOX_CLUSTER_ID"))
    clusters_count: int = field(default_factory=lambda: _number("OUTBOX_CLUSTERS_COUNT"))
    maximum_delay: Duration = field(default_factory=lambda: _delay("OUTBOX_MAXIMUM_DELAY"))
    column: str = "cluster_id"
    arrival_column: str = ""
    takeover: Literal["ranked", "all"] = "ranked"
    existing_rows: int = 1
    replicas: Mapping[int, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.clusters_count <= MAX_CLUSTER:
            raise ConfigError(f"clustersCount is {self.clusters_count}; it can be 1 to {MAX_CLUSTER}")
        self._require_cluster("clusterID", self.cluster_id)
        self._require_cluster("existingRows", self.existing_rows)
        for cluster in self.replicas:
            self._require_cluster("a cluster of replicas", cluster)
        if self.maximum_delay <= 0:
            raise ConfigError(f"maximumDelay is {self.maximum_delay:g} s; it must be more than 0 s")
        if self.takeover not in ("ranked", "all"):
            raise ConfigError(f"takeover is '{self.takeover}'; it can be ranked or all")
        if not self.column:
            raise ConfigError("column is empty; name the column with the cluster's number")
        if self.column == self.arrival_column:
            raise ConfigError(f"column and arrivalColumn are both '{self.column}'")
        for option, column in (("column", self.column), ("arrivalColumn", self.arrival_column)):
            if column.lower() in OUTBOX_COLUMNS:
                raise ConfigError(f"{option} is '{column}', which every outbox has; name a column of its own")

    def _require_cluster(self, option: str, cluster: int) -> None:
        if not 1 <= cluster <= self.clusters_count:
            raise ConfigError(
                f"{option} is {cluster}; clusters have the numbers 1 to {self.clusters_count} (clustersCount)"
            )


class ClusterAffinity:
    """Takes the rows of the own cluster, and those of others that have grown too old."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options

    def eligible(self, taken_over: Collection[int] = ()) -> Sequence[ColumnIs]:
        """Returns a condition for each cluster: the own first, then by rank, and last those of no rank.

        A cluster in ``taken_over`` has no age, whether it is one of the ``clusters_count`` or not: the rows
        of orphans can be taken over, too.
        """
        own, others = self._options.cluster_id, self._ranked()
        beyond = sorted(set(taken_over) - {own, *others})
        return [
            self._taken(own, taken_over),
            *(self._taken(cluster, taken_over) for cluster in (*others, *beyond)),
        ]

    def origin(self) -> Origin:
        """Returns in which column rows tell where they were written, and which clusters there are."""
        options = self._options
        return Origin(
            column=options.column,
            own=options.cluster_id,
            known=tuple(range(1, options.clusters_count + 1)),
            existing=options.existing_rows,
            arrival=options.arrival_column,
            replicas={
                cluster: source
                for cluster, source in options.replicas.items()
                if cluster != options.cluster_id
            },
        )

    def rank(self, cluster: int) -> int:
        """Returns the place of the own cluster among those that take over the rows of ``cluster``.

        The clusters form a ring. The next one after ``cluster`` has rank 1, the one after it rank 2, and so
        on; no two have the same. By the article's rule (``takeover: all``) all have rank 1.
        """
        if self._options.takeover == "all":
            return 1
        return (self._options.cluster_id - cluster) % self._options.clusters_count

    def _ranked(self) -> list[int]:
        """Returns the other clusters, ordered by the own rank in their takeover."""
        others = (n for n in range(1, self._options.clusters_count + 1) if n != self._options.cluster_id)
        return sorted(others, key=self.rank)

    def _taken(self, cluster: int, taken_over: Collection[int]) -> ColumnIs:
        column = self._options.column
        if cluster == self._options.cluster_id or cluster in taken_over:
            return ColumnIs(column, cluster)
        delay = self.rank(cluster) * self._options.maximum_delay
        return ColumnIs(column, cluster, delay, self._options.arrival_column or "create_time")
