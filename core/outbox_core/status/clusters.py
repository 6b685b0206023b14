"""What an outbox holds of each cluster, and what is taken over, according to the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_api import LaneStatus, Origin, Takeover
from outbox_api.portable.view import PortableView

RECENT_SECONDS = 300.0
"""Records that were taken over within this time make a takeover a present one."""


class Role(StrEnum):
    """What a cluster of origin is to the cluster that looks; programs may rely on these names."""

    OWN = "own"
    OTHER = "other"
    ORPHAN = "orphan"
    """Nobody serves it: its number is none of the configured ones, so its records stay in the outbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The records of one cluster of origin, in the outbox of this cluster."""

    cluster: int
    role: Role  # what it is to this cluster
    records: int = 0
    exact: bool = True  # whether there are no more than records
    oldest: float | None = None  # age in seconds of the first of them; None if there are none
    taken_over: int = 0  # how many of its records the lanes of the present leader have taken
    seconds_ago: float | None = None  # seconds since the last of them was taken; None if none was
    takeover: Takeover | None = None  # the deliberate takeover that is on, if there is one

    @property
    def orphaned(self) -> bool:
        """Whether it has records, and nobody serves it."""
        return self.role is Role.ORPHAN and self.records > 0

    @property
    def recent(self) -> bool:
        """Whether records of it were taken over a short while ago."""
        return self.seconds_ago is not None and self.seconds_ago <= RECENT_SECONDS


def cluster_states(view: PortableView, origin: Origin, lanes: Iterable[LaneStatus]) -> list[ClusterState]:
    """Looks at the outbox, by cluster of origin.

    Returns:
        The clusters that are known, that have records here, or are taken over; ascending.
    """
    backlogs = {each.cluster: each for each in view.origins()}
    takeovers = {each.cluster: each for each in view.takeovers()}
    taken = _taken_over(lanes)
    found = []
    for cluster in sorted({*origin.known, *backlogs, *takeovers, *taken}):
        backlog = backlogs.get(cluster)
        records, seconds_ago = taken.get(cluster, (0, None))
        found.append(
            ClusterState(
                cluster=cluster,
                role=_role(cluster, origin),
                records=backlog.records if backlog else 0,
                exact=backlog.exact if backlog else True,
                oldest=backlog.oldest if backlog else None,
                taken_over=records,
                seconds_ago=seconds_ago,
                takeover=takeovers.get(cluster),
            )
        )
    return found


def _role(cluster: int, origin: Origin) -> Role:
    if cluster == origin.own:
        return Role.OWN
    return Role.OTHER if cluster in origin.known else Role.ORPHAN


def _taken_over(lanes: Iterable[LaneStatus]) -> dict[int, tuple[int, float]]:
    """Returns what the lanes' heartbeats say: cluster → records, and seconds since the last."""
    found: dict[int, tuple[int, float]] = {}
    for lane in lanes:
        for name, taken in lane.metrics.get("taken_over_from", {}).items():
            seconds_ago = taken["seconds_ago"] + max(0.0, lane.age or 0.0)
            records, before = found.get(int(name), (0, seconds_ago))
            found[int(name)] = records + taken["records"], min(before, seconds_ago)
    return found


def taken_over_from(clusters: Sequence[ClusterState]) -> list[int]:
    """Returns the clusters of which records were taken over a short while ago, or deliberately are."""
    return [each.cluster for each in clusters if each.recent or each.takeover]


def clusters_as_data(clusters: Sequence[ClusterState]) -> list[dict[str, Any]]:
    """Returns clusters as JSON data: times in seconds, instants in ISO 8601."""
    return [
        {
            "cluster": each.cluster,
            "role": str(each.role),
            "records": each.records,
            "exact": each.exact,
            "oldest_seconds": each.oldest,
            "taken_over": each.taken_over,
            "taken_over_seconds_ago": each.seconds_ago,
            "takeover": each.takeover
            and {"reason": each.takeover.reason, "since": each.takeover.since.isoformat()},
        }
        for each in clusters
    ]
