"""Decides whether this process leads, for how long, and how long it tolerates refusals.

The decision is pure: it receives events and the time, and returns events for the candidate. It knows no
coordinator and no thread.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

from outbox_api.base.errors import ConfigError, DriverError
from outbox_api.base.finding import Finding, Level
from outbox_api.seams.elector import Candidate
from outbox_api.seams.hooks import Duration
from outbox_api.support.file_text import FileText, present_text

_NEVER = float("-inf")


class LeadershipEvent(Enum):
    """An event for the candidate, see :class:`outbox_api.Candidate`."""

    ACQUIRED = auto()
    REVOKED = auto()
    FENCED = auto()


def notify(
    candidate: Candidate, events: Iterable[LeadershipEvent], log: logging.Logger, election: str
) -> None:
    """Tells a candidate of events."""
    for event in events:
        log.debug("election '%s': %s", election, event.name.lower())
        match event:
            case LeadershipEvent.ACQUIRED:
                candidate.acquired()
            case LeadershipEvent.REVOKED:
                candidate.revoked()
            case LeadershipEvent.FENCED:
                candidate.fenced()


class Leadership:
    """The state machine that the diagram in :mod:`outbox_api.election` shows.

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
        self._resigning = True
        return self._stepped_down(now, LeadershipEvent.REVOKED)

    def revoked(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles a handover: the coordinator takes the assignment back, or this process stops.

        The lease continues while the candidate drains, without being extended; :meth:`ended` ends it.
        """
        self.owns = False
        return self._stepped_down(now, LeadershipEvent.REVOKED)

    def ended(self) -> None:
        """Ends the lease, once the candidate has drained."""
        self.owns = False
        self._expires = _NEVER

    def lost(self, now: float) -> Sequence[LeadershipEvent]:
        """Handles the loss of the assignment: another process may have it already."""
        self.owns = False
        events = self._stepped_down(now, LeadershipEvent.FENCED)
        self._expires = _NEVER
        return events

    def _stepped_down(self, now: float, event: LeadershipEvent) -> Sequence[LeadershipEvent]:
        events = self.tick(now)  # ends the leadership itself if the lease has run out
        if not self.leads:
            return events
        self.leads = False
        return [event]


class RefusalTimeout:
    """Limits the time for which a service may refuse this process: a coordinator, a database, a broker.

    Somebody may restore a permission that was withdrawn by mistake, so a refusal is tolerated for a while. It
    ends with an answer that needs the same permissions. For a coordinator, that is one that accepts a
    confirmation, or declines it for another reason. Times are seconds on any clock that never goes back.
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
        """Whether the service refuses this process at present."""
        return self._since is not None

    def refused(self, now: float) -> None:
        """Handles a refusal."""
        if self._since is None:
            self._since = now

    def permitted(self) -> None:
        """Handles an answer that shows that the service permits what this process needs."""
        self._since = None

    def has_expired(self, now: float) -> bool:
        """Returns whether a refusal has lasted for too long."""
        return self._since is not None and now - self._since >= self._seconds


_REQUESTS = 4
"""So many requests may run out of time, one after another, before a leader's confirmation does."""

_MOST_REQUEST_SECONDS = 2.0

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
        lease_share: The share of a session for which a leader trusts a confirmation; the rest is for requests
            under way.
        confirmations: How many confirmations are requested while one is valid.
        joins_at_once: Whether a process that joins the election may lead within a fraction of a second, where
            nobody else does.
    """

    lease_share: ClassVar[float] = 0.8
    confirmations: ClassVar[int] = 4
    joins_at_once: ClassVar[bool] = True

    session_timeout: Duration = 10.0
    heartbeat_timeout: Duration = 5.0
    min_poll_interval: Duration = 0.1
    stop_after: Duration = 60.0

    def __post_init__(self) -> None:
        if self.lease_duration <= 0:
            raise ConfigError("heartbeatTimeout and sessionTimeout must be longer than 0")

    @property
    def session(self) -> float:
        """The session timeout that is in force."""
        return self.session_timeout

    @property
    def whole_seconds(self) -> int:
        """The session timeout of a coordinator that counts whole seconds."""
        return math.ceil(self.session)

    @property
    def lease_duration(self) -> float:
        """For how long a confirmation is valid, from when its request was sent."""
        return min(self.lease_share * self.session, self.heartbeat_timeout)

    @property
    def confirm_interval(self) -> float:
        """Between two confirmations: the lease survives several failed ones in a row."""
        return max(self.min_poll_interval, self.lease_duration / self.confirmations)

    @property
    def request_timeout(self) -> float:
        """How long a request may take: a leader can try again before its lease ends."""
        return min(_MOST_REQUEST_SECONDS, self.lease_duration / _REQUESTS)

    def findings(self) -> Sequence[Finding]:
        """Checks the times against each other, for ``outbox check``; one finding or more."""
        ends = f"ends {self.lease_duration:g} s after the last confirmation"
        found = []
        written = self.heartbeat_timeout != LeaseTimes.heartbeat_timeout  # nobody expects much of the default
        if written and self.lease_duration < self.heartbeat_timeout:
            message = (
                f"leadership {ends}: the heartbeat timeout of {self.heartbeat_timeout:g} s has no effect at "
                f"a session timeout of {self.session:g} s"
            )
            cure = "set heartbeatTimeout to about half of sessionTimeout"
            found.append(Finding(Level.WARNING, _SUBJECT, message, cure))
        confirmed = f"confirmed every {self.confirm_interval:g} s, {ends}"
        if self.min_poll_interval * 2 > self.lease_duration:
            message = f"{confirmed}: one late confirmation ends leadership"
            cure = "set minPollInterval to less than half of heartbeatTimeout and of sessionTimeout"
            found.append(Finding(Level.WARNING, _SUBJECT, message, cure))
        message = f"{confirmed}, taken over after {self.session:g} s"
        return found or [Finding(Level.OK, _SUBJECT, message)]


def elapsed() -> float:
    """Returns seconds on a clock that never goes back.

    The clock includes the time that the machine was suspended, where the system has such a clock: during that
    time another process may have been elected.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


NO_GROUP = Finding(
    Level.WARNING,
    "leader group",
    "not checked: its name follows from the outbox, and the database could not tell it",
    "correct what the check says about the database, or set leaderGroupID",
)
"""What a check finds if the options name no group."""


def required_group(leader_group_id: str | None) -> str:
    """Returns the name for which processes compete.

    Raises:
        ConfigError: The options name none.
    """
    if not leader_group_id:
        raise ConfigError("the election needs a name that the competing processes share: leaderGroupID")
    return leader_group_id


def present_secret(secret: str | FileText) -> str:
    """Returns a password or token as it is now.

    Raises:
        DriverError: Its file cannot be read (retryable), perhaps because it is just replaced.
    """
    try:
        return present_text(secret)
    except ConfigError as error:
        raise DriverError(str(error), retryable=True) from None


class ErrorLog:
    """Warns once of each error until an answer arrives, and then says so; repetitions are debug lines.

    For one thread.
    """

    def __init__(self, log: logging.Logger, election: str) -> None:
        """Starts as if there had been an answer.

        Args:
            log: Receives the lines.
            election: What the processes compete for; every line names it.
        """
        self._log = log
        self._election = election
        self._warned: set[str] = set()

    def failed(self, error: Exception) -> None:
        """Handles an error."""
        text = str(error)
        level = logging.DEBUG if text in self._warned else logging.WARNING
        self._warned.add(text)
        self._log.log(level, "election '%s': %s", self._election, text)

    def answered(self) -> None:
        """Handles an answer."""
        if self._warned:
            self._warned.clear()
            self._log.info("election '%s': answered again", self._election)
