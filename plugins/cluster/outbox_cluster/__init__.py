"""Says which rows a cluster takes when several harvest replicas of one outbox (driver ``cluster``).

A column tells which cluster wrote a row. A cluster takes its own rows at once. Rows of another cluster it
takes when they are so old that this other one, and every cluster before itself in the order of takeover, must
have been lost.
"""

from __future__ import annotations

from outbox_api import Affinity, Driver, hookimpl

from outbox_cluster.cluster_affinity import ClusterAffinity, ClusterOptions

__all__ = ["ClusterAffinity", "ClusterOptions", "outbox_affinity"]


@hookimpl
def outbox_affinity() -> Driver[Affinity]:
    """Offers the affinity ``cluster``."""
    return Driver(options=ClusterOptions, create=ClusterAffinity)
