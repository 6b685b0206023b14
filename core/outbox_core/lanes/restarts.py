"""When a lane that has failed is started again."""

from __future__ import annotations

from collections.abc import Callable

from outbox_api.election import RefusalTimeout

from outbox_core.delivery.retries import Backoff

RESTART_SECONDS = (0.5, 5.0)
"""The first and the longest pause before a lane restarts."""
PROVEN_SECONDS = 60.0
"""A lane that ran this long, or purged anything, was not refused before its error."""


class Restarts:
    """The restarts of one lane; ``stop_after``: seconds for which database or broker may refuse for good."""

    def __init__(
        self,
        stop_after: float,
        chance: Callable[[], float],
        pauses: tuple[float, float] | None = None,
    ) -> None:
        first, longest = pauses or RESTART_SECONDS
        self._refusals = RefusalTimeout(stop_after)
        self._backoff = Backoff(first, chance, longest)

    def failed(self, now: float, *, lasted: float, purged: int, retryable: bool) -> float | None:
        """Handles a failure of the lane after ``lasted`` seconds, in which it had ``purged`` records.

        Returns the seconds until the restart; ``None`` if the lane has been refused for too long.
        """
        if proven := purged or lasted > PROVEN_SECONDS:
            self._backoff.answered()
        if proven or retryable:
            self._refusals.permitted()
        if not retryable:
            self._refusals.refused(now)
        return None if self._refusals.has_expired(now) else self._backoff.failed(now)
