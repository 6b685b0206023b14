"""Elects a leader among competing processes on ZooKeeper (driver ``zookeeper``).

The leader owns the ephemeral node ``<root>/<election>/leader``, and confirms its leadership with writes to
it, which ZooKeeper commits on a quorum of its servers. ZooKeeper deletes the node when its owner's session
ends. Standbys watch the parent node, as the writes would wake a watch of the node itself. The number of a
leadership is the transaction that created the node. :mod:`outbox_api.election` has the states of a candidate.
"""

from __future__ import annotations

from outbox_api import Driver, Elector, hookimpl
from outbox_api.election import LeaseElector

from outbox_zookeeper.options import ZooKeeperOptions

__all__ = ["ZooKeeperOptions", "create", "outbox_elector"]


def create(options: ZooKeeperOptions) -> LeaseElector:
    """Makes the elector ``zookeeper``; does not connect."""
    from outbox_zookeeper.check import findings  # noqa: PLC0415 - loads kazoo
    from outbox_zookeeper.lease import ZooKeeperLease  # noqa: PLC0415 - likewise

    return LeaseElector(
        lambda: ZooKeeperLease(options),
        options,
        options.leader_group_id or "",
        check=lambda: findings(options),
    )


@hookimpl
def outbox_elector() -> Driver[Elector]:
    """Offers the election on ZooKeeper."""
    return Driver(options=ZooKeeperOptions, create=create)
