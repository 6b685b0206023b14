"""The times of an election over a lease, which are options of its elector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outbox_sdk.finding import Finding, Level
from outbox_sdk.hooks import Duration

_LEASE_SHARE = 0.8
"""The share of a session for which a leader trusts a confirmation; the rest is for requests under way."""

_SUBJECT = "election times"


@dataclass(frozen=True, kw_only=True)
class LeaseTimes:
    """The times of an election, in seconds; the options of an elector over a lease inherit them.

    Attributes:
        session_timeout: Seconds without a renewal before another process may lead. The same for all
            processes.
        heartbeat_timeout: Seconds without a confirmation before the leader steps down.
        min_poll_interval: The shortest time between two confirmations, in seconds.
        stop_after: Seconds for which the coordinator may refuse this process before its candidacy ends.
    """

    session_timeout: Duration = 10.0
    heartbeat_timeout: Duration = 5.0
    min_poll_interval: Duration = 0.1
    stop_after: Duration = 60.0

    @property
    def lease_duration(self) -> float:
        """For how long a confirmation is valid, from when its request was sent."""
        return min(_LEASE_SHARE * self.session_timeout, self.heartbeat_timeout)

    @property
    def confirm_interval(self) -> float:
        """Between two confirmations: the lease survives several failed ones in a row."""
        return max(self.min_poll_interval, self.lease_duration / 4)

    def findings(self) -> Sequence[Finding]:
        """Checks the times against each other, for ``outbox check``; one finding or more."""
        ends = f"ends {self.lease_duration:g} s after the last confirmation"
        found = []
        written = self.heartbeat_timeout != LeaseTimes.heartbeat_timeout  # nobody expects much of the default
        if written and self.lease_duration < self.heartbeat_timeout:
            message = (
                f"leadership {ends}: the heartbeat timeout of {self.heartbeat_timeout:g} s has no effect at "
                f"a session timeout of {self.session_timeout:g} s"
            )
            cure = "set heartbeatTimeout to about half of sessionTimeout"
            found.append(Finding(Level.WARNING, _SUBJECT, message, cure))
        confirmed = f"confirmed every {self.confirm_interval:g} s, {ends}"
        if self.min_poll_interval * 2 > self.lease_duration:
            message = f"{confirmed}: one late confirmation ends leadership"
            cure = "set minPollInterval to less than half of heartbeatTimeout and of sessionTimeout"
            found.append(Finding(Level.WARNING, _SUBJECT, message, cure))
        message = f"{confirmed}, taken over after {self.session_timeout:g} s"
        return found or [Finding(Level.OK, _SUBJECT, message)]
