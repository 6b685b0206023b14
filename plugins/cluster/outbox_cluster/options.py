"""The options of the affinity, as users write them, and the environment that gives their defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outbox_sdk import ConfigError
from outbox_sdk.affinity import MAX_CLUSTER
from outbox_sdk.hooks import Duration
from outbox_sdk.portable.columns import OUTBOX_COLUMNS

_WRITTEN = {
    "CLUSTER_ID": "clusterID",
    "CLUSTERS_COUNT": "clustersCount",
    "MAXIMUM_DELAY": "maximumDelay",
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
        cluster_id: The number of this cluster, from 1; by default CLUSTER_ID in the environment.
        clusters_count: How many clusters there are; by default CLUSTERS_COUNT in the environment.
        maximum_delay: Seconds after which a row has certainly been replicated, delivered and purged, and its
            purge replicated, while nothing is wrong; by default MAXIMUM_DELAY in the environment.
        column: The column with the number of the cluster that wrote the row.
        arrival_column: The column with the time when the row came to this replica; empty if there is none.
        takeover: ``ranked``: one cluster after the other. ``all``: all others at once, as the article has it.
        existing_rows: The cluster that rows belong to which the table had before it had the column.
        replicas: Cluster → data source of its replica, where this cluster can reach it. The own is ignored,
            so that all clusters can share one configuration.
    """

    cluster_id: int = field(default_factory=lambda: _number("CLUSTER_ID"))
    clusters_count: int = field(default_factory=lambda: _number("CLUSTERS_COUNT"))
    maximum_delay: Duration = field(default_factory=lambda: _delay("MAXIMUM_DELAY"))
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
