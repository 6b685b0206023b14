"""The limits of time of a candidate for leadership."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_core.leadership.leader import SILENT_SECONDS, START_SECONDS, UNACKNOWLEDGED_SECONDS


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The time-outs of a candidate, in seconds."""

    drain: float  # for lanes to drain when leadership is handed over
    retry: float  # between two attempts after an error
    refused: float  # for a database or a broker that refuses with an error that is not retryable
    metrics: float  # between two statistics
    check: float = 1.0  # between two checks of a standby's engine
    stop: float = 2.0  # for lanes that were ordered to stop at once, before the engine cancels them
    cancel: float = 8.0
    """For cancelled lanes, before the engine is replaced; the fence stops what is left of them."""
    yielded: float = 60.0
    """For another process to lead, after this one has lost the fence again and again although its elector
    names it; from ``retry`` on it doubles with each, and begins anew after ten times as long."""
    join: float = 5.0  # between two attempts to replace the engine and to join the election
    aside: float = 5.0  # for another process to lead, after this one has given up
    silent: float = SILENT_SECONDS  # for the next report of a lane group
    start: float = START_SECONDS  # for the first report of a lane group
    unacknowledged: float = UNACKNOWLEDGED_SECONDS
    """For the broker to acknowledge anything, while something is due."""
    unacknowledged_again: float = 16 * UNACKNOWLEDGED_SECONDS
    """The same after many leaderships that ended thereby; it doubles with each."""
    forgiven: float = 3600.0  # after so long without such an end, the next one counts as the first


class Patience:
    """A time that doubles whenever it has run out, so that leadership is passed on more and more rarely.

    If a broker is away for all processes, passing leadership on does not help. After ``forgiven`` seconds
    without an end, the next one counts as the first.
    """

    def __init__(self, first: float, longest: float, forgiven: float) -> None:
        self._first = self._seconds = first
        self._longest = longest
        self._forgiven = forgiven
        self._forgiven_at = float("-inf")

    def seconds(self, now: float) -> float:
        """Returns the present time in seconds."""
        if now >= self._forgiven_at:
            self._seconds = self._first
        return self._seconds

    def ended(self, now: float) -> None:
        """Handles that it has run out."""
        self._seconds = min(2 * self._seconds, self._longest)
        self._forgiven_at = now + self._forgiven
