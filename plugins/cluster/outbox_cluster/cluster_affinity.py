"""The order in which clusters take over, and the conditions that follow from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outbox_sdk import ColumnIs, Origin

from outbox_cluster.options import ClusterOptions


class ClusterAffinity:
    """Takes the rows of the own cluster, and those of others that have grown too old.

    Args:
        options: What users write.
    """

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
