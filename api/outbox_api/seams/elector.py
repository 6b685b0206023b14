"""The elector seam: says which of the competing processes leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outbox_api.base.finding import Finding


class Candidate(Protocol):
    """The side that wants to lead; see :class:`Elector` for when each method is called."""

    def acquired(self) -> None:
        """Tells that this process leads now. Returns at once: the work starts elsewhere."""
        ...

    def revoked(self) -> None:
        """Tells that leadership is to be handed over. May block while work in flight is finished.

        Nobody else is elected before it returns, as long as it returns within the elector's session.
        """
        ...

    def fenced(self) -> None:
        """Tells that leadership is gone, and somebody else may lead already. Must not block."""
        ...

    def failed(self, error: Exception) -> None:
        """Tells that the elector can go on no longer (say, credentials were refused for good)."""
        ...


class Elector(Protocol):
    """Takes part in an election on behalf of one candidate.

    The elector calls its candidate from a thread of its own, one call at a time, in this order::

                           acquired
         +---------+ ------------------------> +---------+
         | standby |                           | leading |
         +---------+ <------------------------ +---------+
                       revoked (may block)
                       fenced  (must not block)

    ``failed`` comes to a standby only, and ends the candidacy; a leader is fenced before. No event comes
    twice in a row, and none after ``failed`` or after :meth:`stop` has returned.

    A leader's lease is confirmed again and again. If no confirmation arrives in time, or the coordinator says
    that the lease is lost, the candidate is fenced at once, also while a request to the coordinator hangs. An
    outage of the coordinator ends a leadership, and never a candidacy: the elector connects again for as long
    as it takes.

    An elector is a hint. With any of them two processes can believe for a while that they lead; the fence in
    the database keeps the former one from doing harm. docs/writing-an-elector.md says more.
    """

    def start(self, candidate: Candidate) -> None:
        """Joins the election and returns; events arrive from now on. Called once.

        Raises:
            DriverError: The coordinator cannot be reached or refuses, within a bounded wait.
        """
        ...

    def lease(self) -> float:
        """Returns for how many more seconds leadership is vouched for; 0 or less when it is not.

        Measured from the moment when the last successful confirmation was *sent*, on a clock that never goes
        back (:func:`outbox_api.election.elapsed`). More than 0 while ``revoked`` drains within the session.
        Cheap, and may be called from any thread.
        """
        ...

    def stop(self) -> None:
        """Leaves the election; a leader's candidate gets ``revoked`` first. Idempotent.

        On return leadership is released, so that a standby need not wait for the session, and no thread or
        connection is left. If the coordinator does not answer, that is given up after a bounded wait.
        """
        ...

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong between here and the coordinator; never raises."""
        ...
