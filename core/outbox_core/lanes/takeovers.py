"""What one lane has taken over of other clusters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from outbox_api import ColumnIs, Origin

from outbox_core.events import TakeoverBegan

QUIET_SECONDS = 60.0
"""A takeover begins anew once no record of the cluster has been taken for this long."""


def clusters_of(conditions: Sequence[ColumnIs], origin: Origin | None) -> tuple[int | None, ...]:
    """Returns the cluster whose rows each source has; ``None`` for the own one, and if it is unknown."""

    def cluster_of(condition: ColumnIs) -> int | None:
        if origin is None or condition.column != origin.column:
            return None
        return None if condition.value == origin.own else int(condition.value)

    return tuple(cluster_of(condition) for condition in conditions)


@dataclass(slots=True)
class _Taken:
    records: int = 0
    last: float = float("-inf")


class TakeoverLog:
    """What one lane has taken over under one leader, by cluster of origin; outlives the lane's restarts."""

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self._clusters: Sequence[int | None] = ()
        self._deliberate: Collection[int] = ()
        self._taken: dict[int, _Taken] = {}

    def configure(self, clusters: Sequence[int | None], deliberate: Collection[int]) -> None:
        """Sets whose rows each source has, see :func:`clusters_of`, and whose are taken on purpose."""
        self._clusters, self._deliberate = clusters, deliberate

    def cluster_of(self, source: int) -> int | None:
        """Returns the other cluster whose rows a source has; ``None`` for own rows."""
        return self._clusters[source] if source < len(self._clusters) else None

    def add(self, now: float, cluster: int, records: int) -> TakeoverBegan | None:
        """Counts records of another cluster, at least one; returns the event if a takeover begins."""
        taken = self._taken.setdefault(cluster, _Taken())
        begins = now - taken.last > QUIET_SECONDS
        taken.records += records
        taken.last = now
        if not begins:
            return None
        return TakeoverBegan(cluster, self._lane, deliberate=cluster in self._deliberate)

    def as_data(self, now: float) -> Mapping[str, object]:
        """Returns what heartbeats say about it; nothing if nothing was taken over."""
        found = {
            str(cluster): {"records": taken.records, "seconds_ago": round(now - taken.last, 1)}
            for cluster, taken in sorted(self._taken.items())
        }
        return {"taken_over_from": found} if found else {}
