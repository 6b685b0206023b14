"""What electors share: the decisions of a candidate's leadership, and an elector over any lease.

::

                         assigned                     first confirmation
     +---------+                        +---------+                        +---------+
     | standby | ---------------------> | elected | ---------------------> | leading |
     +---------+                        +---------+      (acquired)        +---------+
          ^                              |       ^                          |   |   |
          |     revoked, lost            |       |   no confirmation in     |   |   |
          |<-----------------------------+       |   time (fenced)          |   |   |
          |                                      +--------------------------+   |   |
          |     lost (fenced)                                                   |   |
          |<--------------------------------------------------------------------+   |
          |     revoked, or told to stop (revoked: may block)                       |
          +<------------------------------------------------------------------------+

A confirmation is the coordinator's answer to a request that only the process that it has assigned may make.
It counts from the moment when the request was *sent*, on a clock of this process that never goes back. So a
leader that was frozen, or cut off from the coordinator, stops by itself before a successor can be elected.
"""

from __future__ import annotations

from outbox_sdk.election.clock import elapsed
from outbox_sdk.election.errors import ErrorLog
from outbox_sdk.election.group import NO_GROUP, required_group
from outbox_sdk.election.leadership import Leadership, LeadershipEvent, RefusalTimeout
from outbox_sdk.election.lease_elector import LeaseElector, SessionLease, WatchedLease
from outbox_sdk.election.lease_watch import LeaseWatch
from outbox_sdk.election.times import LeaseTimes

__all__ = [
    "NO_GROUP",
    "ErrorLog",
    "Leadership",
    "LeadershipEvent",
    "LeaseElector",
    "LeaseTimes",
    "LeaseWatch",
    "RefusalTimeout",
    "SessionLease",
    "WatchedLease",
    "elapsed",
    "required_group",
]
