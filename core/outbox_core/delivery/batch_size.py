"""The size and the time of the next mark or selection: larger in a backlog, rarer while nothing waits."""

from __future__ import annotations

FIRST_LIMIT = 100
"""The limit of the first marks, in records; it doubles after each mark that was full."""
TRICKLE_SECONDS = 0.002
"""The pause after a mark that was not full, so that a few more records gather."""
IDLE_SECONDS = 0.05
"""The longest pause between two marks of an empty outbox, for the first seconds."""
_GROWTH = 1.01
"""The growth of the pause after that."""

PASSING_SHARE = 10
"""After a mark that skipped rows of excluded keys, the next waits this many times its duration."""
PASSING_SECONDS = 1.0
"""The longest such wait."""


class BatchSize:
    """The size and the time of one lane's next mark.

    Args:
        backoff: Seconds to wait after a mark that found nothing; the wait doubles each time.
        longest_backoff: The longest of these waits, once the outbox has been empty for some seconds.
        most: The largest limit of a mark, in records.

    Attributes:
        limit: The limit of the next mark, in records.
        due: When the next mark is due, in the caller's time.
        passing_due: When the next mark is due that excludes keys.
    """

    def __init__(self, backoff: float, longest_backoff: float, most: int) -> None:
        self.limit = self._least = min(FIRST_LIMIT, most)
        self.due = self.passing_due = 0.0
        self._backoff = self._pause = backoff
        self._longest = max(backoff, longest_backoff)
        self._most = most

    def marked(self, now: float, *, full: bool, empty: bool, grow: bool = True) -> None:
        """Adapts to the result of a mark or a selection.

        Args:
            now: The caller's time.
            full: Whether it reached its limit.
            empty: Whether it found nothing.
            grow: Whether the next one may be larger.
        """
        if empty:
            self.due = now + self._pause
            growth = (
                min(self._pause * 2, IDLE_SECONDS) if self._pause < IDLE_SECONDS else self._pause * _GROWTH
            )
            self._pause = min(growth, self._longest)
            return
        self._pause = self._backoff
        self.due = now if full else now + min(TRICKLE_SECONDS, self._pause)
        if full and grow:  # a backlog
            self.limit = min(self.limit * 2, self._most)

    def passed(self, now: float, seconds: float) -> None:
        """Handles a mark of so many seconds that may have read excluded rows up to the end of the table."""
        self.passing_due = now + min(PASSING_SHARE * seconds, PASSING_SECONDS)

    def begin_anew(self, records: int = 0) -> None:
        """Sets the limit of the next mark; 0 means the limit of the first mark."""
        self.limit = records or self._least

    def shrink(self) -> None:
        """Makes the next marks smaller."""
        self.limit = max(self._least, self.limit // 2)
