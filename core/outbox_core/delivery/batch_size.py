"""The size and the time of the next mark or selection: larger in a backlog, rarer while nothing waits.

Also the bytes of the next transaction: as many as a broker, which may have a quota, accepts within a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, takewhile

FIRST_LIMIT = 100
"""The limit of the first marks, in records; it doubles after each mark that was full."""
IDLE_SECONDS = 0.05
"""The longest pause between two marks of an empty outbox, for the first seconds."""
_GROWTH = 1.01
"""The growth of the pause after that."""

PASSING_SHARE = 2
"""After a mark that skipped rows of excluded keys, the next waits this many times its duration.

The rows of other keys wait as long, and such a mark reads all that it skips.
"""
PASSING_SECONDS = 1.0
"""The longest such wait."""


class BatchSize:
    """The size and the time of one lane's next mark.

    Args:
        backoff: Seconds to wait after a mark that was not full; doubles with each that then finds nothing.
        longest_backoff: The longest of these waits, once the outbox has been empty for some seconds.
        most: The largest limit of a mark, in records.

    Attributes:
        due: When the next mark is due, in the caller's time.
        passing_due: When the next mark is due that excludes keys.
    """

    def __init__(self, backoff: float, longest_backoff: float, most: int) -> None:
        self.limit = self._least = min(FIRST_LIMIT, most)
        self.due = self.passing_due = 0.0
        self._backoff = self._pause = min(backoff, longest_backoff)
        self._longest = longest_backoff
        self._most = most

    def marked(self, now: float, *, full: bool, empty: bool, grow: bool = True) -> None:
        """Adapts to the result of a mark or a selection."""
        if empty:
            self.due = now + self._pause
            growth = (
                min(self._pause * 2, IDLE_SECONDS) if self._pause < IDLE_SECONDS else self._pause * _GROWTH
            )
            self._pause = min(growth, self._longest)
            return
        self._pause = self._backoff
        self.due = now if full else now + self._backoff
        if full and grow:  # a backlog
            self.limit = min(self.limit * 2, self._most)

    def passed(self, now: float, seconds: float) -> None:
        """Handles a mark of so many seconds that may have read excluded rows up to the end of the table."""
        self.passing_due = now + min(PASSING_SHARE * seconds, PASSING_SECONDS)

    def begin_anew(self, records: int = 0) -> None:
        """Sets the limit of the next mark; 0 means the limit of the first mark."""
        self.limit = records or self._least

    def shrink(self) -> None:
        """Makes the next marks smaller, but none smaller than the first ones for that."""
        self.limit = min(self.limit, max(self._least, self.limit // 2))


SLOW_SECONDS = 3.0
"""A transaction that takes longer has too many bytes: clients give up a delivery after some seconds more."""
AIM_SECONDS = 1.0
"""After such a transaction the next has as many bytes as are likely to take this long."""
FIRST_BYTES = 256 * 1024
"""The limit of the first transaction."""
LEAST_BYTES = 64 * 1024
"""After a commit the limit is not less, however long that took: at a slow broker it would not help."""


class ByteLimit:
    """How many bytes the next transaction of a lane may have.

    A broker with a quota lets so many bytes a second pass, whatever number of records that is.
    """

    def __init__(self, most: int) -> None:
        self.limit = min(FIRST_BYTES, most)
        """The present limit. A single larger record is a transaction of its own."""
        self._most = most

    def fitting(self, sizes: Iterable[int]) -> int:
        """Returns how many of the first records fit into one transaction, at least one."""
        return max(1, sum(1 for _ in takewhile(lambda size: size <= self.limit, accumulate(sizes))))

    def committed(self, size: int, seconds: float) -> None:
        """Adapts to a transaction of so many bytes that was committed after so many seconds."""
        if seconds > SLOW_SECONDS:
            passed = round(size * AIM_SECONDS / seconds)
            self.limit = max(min(self.limit, passed), min(LEAST_BYTES, self._most))
        elif seconds <= AIM_SECONDS and 2 * size >= self.limit:
            self.limit = min(2 * self.limit, self._most)

    def aborted(self, size: int, seconds: float) -> None:
        """Adapts to a transaction that was aborted: one that has taken long may have had too many bytes."""
        if seconds > SLOW_SECONDS:
            self.limit = max(min(self.limit, size) // 2, 1)
