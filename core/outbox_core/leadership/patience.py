"""For how long a leader that reaches nothing keeps its office."""

from __future__ import annotations


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
