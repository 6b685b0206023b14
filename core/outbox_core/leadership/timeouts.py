"""The limits of time of a candidate for leadership."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_core.leadership.leader import SILENT_SECONDS, START_SECONDS, UNACKNOWLEDGED_SECONDS


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The time-outs of a candidate, in seconds.

    Attributes:
        drain: For lanes to drain when leadership is handed over.
        retry: Between two attempts after an error.
        refused: For a database or a broker that refuses with an error that is not retryable.
        metrics: Between two statistics.
        check: Between two checks of a standby's engine.
        stop: For lanes that were ordered to stop at once, before the engine cancels them.
        cancel: For cancelled lanes, before the engine is replaced; the fence stops what is left of them.
        yielded: For another process to lead, after this one has lost the fence again and again although its
            elector names it; from ``retry`` on it doubles with each, and begins anew after ten times as long.
        join: Between two attempts to replace the engine and to join the election.
        aside: For another process to lead, after this one has given up.
        silent: For the next report of a lane group.
        start: For the first report of a lane group.
        unacknowledged: For the broker to acknowledge anything, while something is due.
        unacknowledged_again: The same after many leaderships that ended thereby; it doubles with each.
        forgiven: After so long without such an end, the next one counts as the first.
    """

    drain: float
    retry: float
    refused: float
    metrics: float
    check: float = 1.0
    stop: float = 2.0
    cancel: float = 8.0
    yielded: float = 60.0
    join: float = 5.0
    aside: float = 5.0
    silent: float = SILENT_SECONDS
    start: float = START_SECONDS
    unacknowledged: float = UNACKNOWLEDGED_SECONDS
    unacknowledged_again: float = 16 * UNACKNOWLEDGED_SECONDS
    forgiven: float = 3600.0


class Patience:
    """A time that doubles whenever it has run out, so that leadership is passed on more and more rarely.

    If a broker is away for all processes, passing leadership on does not help.

    Args:
        first: Seconds for the first time.
        longest: Seconds at most.
        forgiven: After so many seconds without an end, the next one counts as the first.
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
