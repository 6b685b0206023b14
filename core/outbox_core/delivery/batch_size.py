"""How many records the next mark asks for, and when: more from a backlog, less often from an empty outbox."""

from __future__ import annotations

FIRST_LIMIT = 100
"""Records of the first marks; each full one lets the next be twice as large."""
TRICKLE_SECONDS = 0.002
"""The pause after a mark that found some records but not all it asked for: lets a few more gather."""
IDLE_SECONDS = 0.05
"""The longest pause between two marks of an empty outbox."""


class BatchSize:
    """The pace of one lane's marks.

    Args:
        backoff: Seconds to wait after a mark that found nothing; the first of growing waits.
        most: Records that one mark may ask for.

    Attributes:
        limit: Records that the next mark asks for.
        due: When it is due, in the caller's time.
    """

    def __init__(self, backoff: float, most: int) -> None:
        self.limit = self._least = min(FIRST_LIMIT, most)
        self.due = 0.0
        self._backoff = self._pause = backoff
        self._most = most

    def marked(self, now: float, *, full: bool, empty: bool) -> None:
        """Takes whether a mark found all that it asked for, or nothing."""
        if empty:
            self.due = now + self._pause
            self._pause = min(self._pause * 2, IDLE_SECONDS)
            return
        self._pause = self._backoff
        self.due = now if full else now + min(TRICKLE_SECONDS, self._pause)
        if full:  # a backlog: the next mark may be larger
            self.limit = min(self.limit * 2, self._most)

    def begin_anew(self, records: int = 0) -> None:
        """Has the next mark ask for so many records, with 0 for as many as the first did."""
        self.limit = records or self._least

    def shrink(self) -> None:
        """Makes the next marks smaller."""
        self.limit = max(self._least, self.limit // 2)
