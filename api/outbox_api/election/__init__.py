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

from outbox_api.election.leadership import (
    NO_GROUP,
    ErrorLog,
    Leadership,
    LeadershipEvent,
    LeaseTimes,
    RefusalTimeout,
    elapsed,
    present_secret,
    required_group,
)
from outbox_api.election.lease_elector import LeaseElector, LeaseWatch, SessionLease, WatchedLease

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
    "present_secret",
    "required_group",
]
