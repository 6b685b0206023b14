"""Elects a leader among competing processes with a lease of etcd (driver ``etcd``).

The processes compete for one key. The leader creates it in a transaction that requires that it does not
exist, bound to a lease that the leader renews. The key's create revision is the number of the leadership: it
grows with each new leader. A leader that dies renews no more, and etcd deletes the key when the lease has run
out. Standbys watch the key.
"""

from __future__ import annotations

from outbox_api import Driver, Elector, hookimpl
from outbox_api.election import LeaseElector

from outbox_etcd.options import EtcdOptions

__all__ = ["EtcdOptions", "create", "outbox_elector"]


def create(options: EtcdOptions) -> LeaseElector:
    """Makes the elector ``etcd``; does not connect."""
    from outbox_etcd.client import findings  # noqa: PLC0415 - loads gRPC
    from outbox_etcd.lease import Connector  # noqa: PLC0415 - likewise

    return LeaseElector(Connector(options), options, options.key, check=lambda: findings(options))


@hookimpl
def outbox_elector() -> Driver[Elector]:
    """Offers the election on etcd."""
    return Driver(options=EtcdOptions, create=create)
