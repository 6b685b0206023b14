r"""The elector seam: says which of the competing processes leads.

    standby --acquired--> leading --revoked (may block)--> standby
                             \--- fenced (must not block) --> standby

An elector is a hint. With any of them two processes can believe for a while that they lead; the fence in
the database is what keeps the second from doing harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outbox_sdk.finding import Finding


class Candidate(Protocol):
    """The side that wants to lead. An elector calls it from its own thread, one call at a time."""

    def acquired(self) -> None:
        """Tells that this process leads now. Returns quickly: the work starts elsewhere."""
        ...

    def revoked(self) -> None:
        """Tells that leadership is to be handed over. May block while work in flight is finished.

        Nobody else is elected before it returns, as long as it returns within the elector's session.
        """
        ...

    def fenced(self) -> None:
        """Tells that leadership is gone and somebody else may lead already. Must not block."""
        ...

    def failed(self, error: Exception) -> None:
        """Tells that the elector can go on no longer (say, credentials were refused for good)."""
        ...


class Elector(Protocol):
    """Takes part in an election on behalf of one candidate."""

    def start(self, candidate: Candidate) -> None:
        """Joins the election and returns; events arrive from now on. Called once.

        Raises:
            DriverError: The coordinator cannot be reached or refuses, within a bounded wait.
        """
        ...

    def lease(self) -> float:
        """Returns for how many more seconds leadership is vouched for; 0 or less when it is not.

        Measured on the monotonic clock from the moment the last successful confirmation was *sent*.
        Cheap, and may be called from any thread.
        """
        ...

    def stop(self) -> None:
        """Leaves the election; a leader's candidate gets ``revoked`` first. Idempotent."""
        ...

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong between here and the coordinator; never raises."""
        ...
