"""When a lane that has failed is started again."""

from __future__ import annotations

from collections.abc import Callable

from outbox_core.delivery.retries import jittered

RESTART_SECONDS = (0.5, 5.0)
"""The first and the longest pause before a lane restarts; it doubles between them."""
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
        self._stop_after = stop_after
        self._chance = chance
        self._first, self._last = pauses or RESTART_SECONDS
        self._pause = self._first
        self._refused_since: float | None = None

    def failed(self, now: float, *, lasted: float, purged: int, retryable: bool) -> float | None:
        """Handles a failure of the lane after ``lasted`` seconds, in which it had ``purged`` records.

        Returns the seconds until the restart; ``None`` if the lane has been refused for too long.
        """
        if purged or lasted > PROVEN_SECONDS:
            self._pause, self._refused_since = self._first, None
        if retryable:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        if self._refused_since is not None and now - self._refused_since >= self._stop_after:
            return None
        pause, self._pause = self._pause, min(self._pause * 2, self._last)
        return jittered(pause, self._chance)
