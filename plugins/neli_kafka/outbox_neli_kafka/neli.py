"""Whether this process leads: what the group says of it, and how long its last confirmation is worth.

And how long it goes on while the broker refuses it.

No Kafka, clock or thread in here: events and the time go in, notices for the candidate come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

_NEVER = float("-inf")


class Notice(Enum):
    """What the candidate is to be told."""

    ACQUIRED = auto()
    REVOKED = auto()
    FENCED = auto()


class Leadership:
    """Keeps the state that the diagram in :mod:`outbox_neli_kafka` shows.

    Times are seconds on any clock that never goes back. Every event first looks at the lease: one that ended
    unseen, because the process was frozen, is told of before anything else.

    Attributes:
        owns: Whether the group says that partition 0 is ours.
        leads: Whether the candidate has been told that it leads, and not yet otherwise.
        tenure: Raised whenever partition 0 is assigned; a confirmation counts within its own tenure only.
    """

    def __init__(self, term: float) -> None:
        """Starts as a standby.

        Args:
            term: Seconds that a confirmation is worth, from when it was sent.
        """
        self._term = term
        self._expires = _NEVER
        self.owns = False
        self.leads = False
        self.tenure = 0

    def lease(self, now: float) -> float:
        """Returns for how many more seconds leadership is vouched for; 0 or less when it is not.

        May be called from any thread. While a handover drains, what is left of the lease still counts.
        """
        return self._expires - now

    def tick(self, now: float) -> Sequence[Notice]:
        """Takes that time has passed."""
        if self.leads and now >= self._expires:
            self.leads = False
            return [Notice.FENCED]
        return []

    def assigned(self, now: float) -> Sequence[Notice]:
        """Takes that the group gave us partition 0. Nothing is told before the first confirmation."""
        notices = self.tick(now)
        if not self.owns:
            self.owns = True
            self.tenure += 1
            self._expires = _NEVER
        return notices

    def confirmed(self, tenure: int, sent_at: float, now: float) -> Sequence[Notice]:
        """Takes that the group's coordinator confirmed our membership.

        Args:
            tenure: The tenure in which the confirmation was asked for.
            sent_at: When it was asked for.
            now: The time.
        """
        notices = self.tick(now)
        expires = sent_at + self._term
        if not self.owns or tenure != self.tenure or expires <= now:
            return notices
        self._expires = max(self._expires, expires)
        if self.leads:
            return notices
        self.leads = True
        return [*notices, Notice.ACQUIRED]

    def revoked(self, now: float) -> Sequence[Notice]:
        """Takes that leadership is to be handed over: by the group, or because this process is to stop.

        The lease goes on, for what the candidate still has to finish; :meth:`ended` ends it.
        """
        notices = self.tick(now)
        self.owns = False
        if not self.leads:
            return notices
        self.leads = False
        return [*notices, Notice.REVOKED]

    def ended(self) -> None:
        """Takes that the candidate has finished what it had to before the handover."""
        self._expires = _NEVER

    def lost(self, now: float) -> Sequence[Notice]:
        """Takes that the group has given us up, and somebody else may own partition 0 already."""
        notices = self.tick(now)
        self.owns = False
        self._expires = _NEVER
        if not self.leads:
            return notices
        self.leads = False
        return [*notices, Notice.FENCED]


class Patience:
    """For how long the broker may refuse this process before that counts as meant.

    A permission that was withdrawn by mistake comes back, so a refusal is borne for a while. It lasts until
    the coordinator takes a commit, or declines one for another reason: a commit needs what the election does.
    Times are seconds on any clock that never goes back.
    """

    def __init__(self, seconds: float) -> None:
        """Starts without a refusal.

        Args:
            seconds: How long one may last.
        """
        self._seconds = seconds
        self._since: float | None = None

    @property
    def tried(self) -> bool:
        """Whether a refusal lasts."""
        return self._since is not None

    def refused(self, now: float) -> None:
        """Takes that the broker has refused something."""
        if self._since is None:
            self._since = now

    def permitted(self) -> None:
        """Takes that the broker permits what the election needs."""
        self._since = None

    def exhausted(self, now: float) -> bool:
        """Returns whether a refusal has lasted for too long."""
        return self._since is not None and now - self._since >= self._seconds
