"""Since when a lane has something due, and nothing of it is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_sdk import Failure


class Unacknowledged:
    """Whether the broker answers one lane, through all its epochs.

    Times are seconds on a monotonic clock. One thread writes; any may call :meth:`seconds`.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def due(self, now: float) -> None:
        """Handles that something was sent, or that the lane has failed with an error that may pass."""
        if self._since is None:
            self._since = now

    def answered(self) -> None:
        """Handles an acknowledgement, a refusal, or that nothing is due."""
        self._since = None

    def failed(self, now: float, failures: Sequence[Failure]) -> None:
        """Handles records that were not delivered: what sending again cannot cure is an answer, too."""
        if all(failure.retryable for failure in failures):
            self.due(now)
        else:
            self.answered()

    def seconds(self, now: float) -> float:
        """Returns for how long something has been due without an answer; 0 if nothing is."""
        since = self._since  # another thread may clear it
        return 0.0 if since is None else now - since
