"""Elects a leader among competing processes with NELI, on Kafka's consumer groups (driver ``neli-kafka``).

All processes of an outbox join one consumer group that subscribes to one topic. Kafka gives each of the
topic's partitions to one member, and the owner of partition 0 leads::

                    partition 0 assigned               first confirmation
     +---------+                        +---------+                        +---------+
     | standby | ---------------------> | elected | ---------------------> | leading |
     +---------+                        +---------+      (acquired)        +---------+
          ^                              |       ^                          |   |   |
          |     revoked, lost            |       |   no confirmation in     |   |   |
          |<-----------------------------+       |   time (fenced)          |   |   |
          |                                      +--------------------------+   |   |
          |     lost, expelled (fenced)                                         |   |
          |<--------------------------------------------------------------------+   |
          |     revoked, or told to stop (revoked: may block)                       |
          +<------------------------------------------------------------------------+

A confirmation is a commit of an offset that the group's coordinator has taken: it takes one from a member
of the current generation only, and counts it as a sign of life. Each is worth a lease that starts when it was
*sent*. The process learns of the end of its lease by its own clock, so one that was frozen or cut off from
Kafka stops by itself before a successor can be elected.
"""

from __future__ import annotations

from outbox_sdk import Driver, Elector, hookimpl

from outbox_neli_kafka.elector import NeliElector
from outbox_neli_kafka.options import NeliOptions

__all__ = ["NeliElector", "NeliOptions", "outbox_elector"]


@hookimpl
def outbox_elector() -> Driver[Elector]:
    """Offers NELI."""
    return Driver(options=NeliOptions, create=NeliElector)
