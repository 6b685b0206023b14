"""Decides whether this process leads, for how long, and how long it tolerates refusals.

Pure: receives events and the time, and returns events for the candidate. No coordinator, clock or thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

_NEVER = float("-inf")


class LeadershipEvent(Enum):
    """An event for the candidate, see :class:`outbox_sdk.Candidate`."""

    ACQUIRED = auto()
    REVOKED = auto()
    FENCED = auto()


class Leadership:
    """The state machine that the diagram in :mod:`outbox_sdk.election` shows.

    Times are seconds on any clock that never goes back. Every method first checks the lease: if it expired
    unnoticed, because the process was frozen, its event comes first.

    Attributes:
        owns: Whether the coordinator has assigned leadership to this process.
        leads: Whether the candidate's last event was ``ACQUIRED``.
        assignment: The number of assignments; a confirmation counts for its own one only.
    """

    def __init__(self, lease_duration: float) -> None:
        """Starts as a standby.

        Args:
            lease_duration: Seconds that a confirmation is valid, from when its request was sent.
        """
        self._lease_duration = lease_duration
        self._expires = _NEVER
        self._resigning = False
        self.owns = False
        self.leads = False
        self.assignment = 0

    def lease(self, now: float) -> float:
        """Returns the seconds until the lease expires; 0 or less if there is none.

        May be called from any thread. The lease continues while the candidate drains before a handover.
        """
        return self._expires - now

    def tick(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles the passing of time."""
        if self.leads and now >= self._expires:
            self.leads = False
            return [LeadershipEvent.FENCED]
        return []

    def assigned(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles an assignment. The candidate leads only after the first confirmation."""
        events = self.tick(now)
        if not self.owns:
            self.owns = True
            self.assignment += 1
            self._expires = _NEVER
        return events

    def confirmed(self, assignment: int, sent_at: float, now: float) -> Sequence[LeadershipEvent]:
        """Handles a confirmation: the coordinator accepted a request that only the assigned process may make.

        Args:
            assignment: The value of :attr:`assignment` when the request was sent.
            sent_at: When the request was sent.
            now: The time.
        """
        events = self.tick(now)
        expires = sent_at + self._lease_duration
        if not self.owns or assignment != self.assignment or expires <= now:
            return events
        self._expires = max(self._expires, expires)
        if self.leads or self._resigning:
            return events
        self.leads = True
        return [*events, LeadershipEvent.ACQUIRED]

    def resigned(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles that this process stops: nothing is acquired from now on.

        Confirmations extend the lease while the candidate drains; :meth:`ended` ends it.
        """
        events = self.tick(now)
        self._resigning = True
        if not self.leads:
            return events
        self.leads = False
        return [*events, LeadershipEvent.REVOKED]

    def revoked(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles a handover: the coordinator takes the assignment back, or this process stops.

        The lease continues while the candidate drains, without being extended; :meth:`ended` ends it.
        """
        events = self.tick(now)
        self.owns = False
        if not self.leads:
            return events
        self.leads = False
        return [*events, LeadershipEvent.REVOKED]

    def ended(self) -> None:
        """Ends the lease, once the candidate has drained."""
        self.owns = False
        self._expires = _NEVER

    def lost(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles the loss of the assignment: another process may have it already."""
        events = self.tick(now)
        self.owns = False
        self._expires = _NEVER
        if not self.leads:
            return events
        self.leads = False
        return [*events, LeadershipEvent.FENCED]


class RefusalTimeout:
    """Limits the time for which the coordinator may refuse this process.

    Somebody may restore a permission that was withdrawn by mistake, so a refusal is tolerated for a while. It
    ends when the coordinator accepts a confirmation, or declines one for another reason, as a confirmation
    needs the same permissions as the election. Times are seconds on any clock that never goes back.
    """

    def __init__(self, seconds: float) -> None:
        """Starts without a refusal.

        Args:
            seconds: How long a refusal may last.
        """
        self._seconds = seconds
        self._since: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether the coordinator refuses this process at present."""
        return self._since is not None

    def refused(self, now: float) -> None:
        """Handles a refusal."""
        if self._since is None:
            self._since = now

    def permitted(self) -> None:
        """Handles an answer that shows that the coordinator permits what the election needs."""
        self._since = None

    def has_expired(self, now: float) -> bool:
        """Returns whether a refusal has lasted for too long."""
        return self._since is not None and now - self._since >= self._seconds
