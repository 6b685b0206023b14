"""The elector: the SDK's elector over a lease of ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk import Finding, Lease
from outbox_sdk.election import LeaseElector

from outbox_zookeeper.options import ZooKeeperOptions, refuse_contradictions


def zookeeper_elector(options: ZooKeeperOptions) -> LeaseElector:
    """Makes the elector; does not connect.

    Raises:
        ConfigError: The options contradict each other.
    """
    refuse_contradictions(options)

    def connect() -> Lease:
        from outbox_zookeeper.lease import ZooKeeperLease  # noqa: PLC0415 - the client is imported late

        return ZooKeeperLease(options)

    def check() -> Sequence[Finding]:
        from outbox_zookeeper.check import findings  # noqa: PLC0415 - likewise

        return findings(options)

    return LeaseElector(connect, options, options.leader_group_id or "", check=check)
