"""For how long the servers have not answered one lane."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from outbox_api import Failure


class Unacknowledged:
    """Whether broker and database answer one lane, through all its epochs.

    Times are seconds on a monotonic clock. One thread writes at a time; any may call :meth:`seconds`.
    """

    def __init__(self) -> None:
        self.longest_call = inf
        """A call of the database that takes longer counts as due: most likely it hangs."""
        self._since: float | None = None
        self._failing = False
        self._reason = ""  # of the broker; empty if the database is what does not answer
        self._asked: dict[object, float] = {}  # loop → when its call of the database began

    def asks(self, loop: object, now: float) -> None:
        """Handles that a loop calls the database."""
        self._asked[loop] = now

    def replied(self, loop: object) -> None:
        """Handles that the call has returned."""
        self._asked.pop(loop, None)

    def left(self) -> None:
        """Handles that the epoch has ended; calls that hang are left behind."""
        self._asked.clear()

    def due(self, now: float) -> None:
        """Handles that something was sent, or that the lane has failed with an error that may pass."""
        if self._since is None:
            self._since = now

    def answered(self) -> None:
        """Handles an acknowledgement or a refusal."""
        self._since, self._failing, self._reason = None, False, ""

    def idle(self) -> None:
        """Handles that nothing is due any more.

        If all that was due has failed, this is no sign that the broker answers: the keys may be parked.
        """
        self._reason = ""
        if not self._failing:
            self._since = None

    def failed(self, now: float, failures: Sequence[Failure]) -> None:
        """Handles records that were not delivered: what sending again cannot cure is an answer, too."""
        if all(failure.retryable for failure in failures):
            self.due(now)
            self._failing = True
            self._reason = failures[-1].reason if failures else ""
        else:
            self.answered()

    def told(self, now: float) -> dict[str, object]:
        """Returns for heartbeats for how long deliveries have failed, and why; nothing if none have since."""
        since, reason = self._since, self._reason  # another thread may clear them
        if since is None or not reason:
            return {}
        return {"unanswered": {"seconds": now - since, "reason": reason}}

    def seconds(self, now: float) -> float:
        """Returns for how long something has been due without an answer; 0 if nothing is."""
        since = self._since  # another thread may clear it
        hung = [asked + self.longest_call for asked in [*self._asked.values()]]
        return max(now - min(hung if since is None else [*hung, since], default=now), 0.0)
