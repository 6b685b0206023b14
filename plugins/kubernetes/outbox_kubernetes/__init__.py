"""Elects a leader among competing processes with a Lease of Kubernetes (driver ``kubernetes``).

The processes compete for one object of coordination.k8s.io/v1. Each write names the resource version that it
replaces, so of two the API server refuses one. The holder renews the Lease; another takes it once it has seen
the same resource version for the Lease's length by its own clock. The times in the Lease are for readers.
The number of a leadership is ``leaseTransitions``.
"""

from __future__ import annotations

from outbox_api import Driver, Elector, hookimpl
from outbox_api.election import LeaseElector, LeaseWatch

from outbox_kubernetes.options import KubernetesOptions

__all__ = ["KubernetesOptions", "create", "outbox_elector"]


def create(options: KubernetesOptions) -> LeaseElector:
    """Makes the elector ``kubernetes``; does not connect."""
    from outbox_kubernetes.check import findings  # noqa: PLC0415 - loads urllib3
    from outbox_kubernetes.lease import KubernetesLease  # noqa: PLC0415 - likewise

    watch = LeaseWatch()  # what was seen over a connection that has failed still counts
    return LeaseElector(
        lambda: KubernetesLease(options, watch),
        options,
        options.leader_group_id or "",
        check=lambda: findings(options),
    )


@hookimpl
def outbox_elector() -> Driver[Elector]:
    """Offers the election on Kubernetes."""
    return Driver(options=KubernetesOptions, create=create)
