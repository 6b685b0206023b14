"""Elects a leader among competing processes with NELI, on Kafka's consumer groups (driver ``neli-kafka``).

All processes of an outbox join one consumer group that subscribes to one topic. Kafka gives each of the
topic's partitions to one member. The owner of partition 0 is elected, and leads from its first confirmation
on: :mod:`outbox_api.election` shows the states. A revoked or lost partition is a revoked or lost election.

A confirmation is an offset commit that the group's coordinator has accepted. The coordinator accepts commits
from members of the current generation only, and treats them like heartbeats. Each confirmation extends the
lease, from the time when the commit was *sent*. A process measures its lease by its own clock. So a leader
that was frozen or cut off from Kafka stops by itself before a successor can be elected.
"""

from __future__ import annotations

from outbox_api import Driver, Elector, hookimpl

from outbox_neli_kafka.elector import NeliElector
from outbox_neli_kafka.settings import NeliOptions

__all__ = ["NeliElector", "NeliOptions", "outbox_elector"]


@hookimpl
def outbox_elector() -> Driver[Elector]:
    """Offers NELI."""
    return Driver(options=NeliOptions, create=NeliElector)
