"""A set of integers whose size in memory depends on its gaps, not on its members."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate


class Runs:
    """A set of integers, kept as sorted runs of consecutive ones.

    A million consecutive numbers take the room of one; each gap adds one more run.
    """

    __slots__ = ("_before", "_firsts", "_length", "_stops")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        self._length = 0
        self._before: list[int] | None = None  # members before each run; None while out of date

    def __len__(self) -> int:
        return self._length

    def __contains__(self, number: int) -> bool:
        run = bisect_right(self._firsts, number) - 1
        return run >= 0 and number < self._stops[run]

    def add(self, number: int) -> bool:
        """Adds a number; returns whether it is new."""
        firsts, stops = self._firsts, self._stops
        run = bisect_right(firsts, number)  # the run behind the number
        if run and number < stops[run - 1]:
            return False
        joins_left = run > 0 and stops[run - 1] == number
        joins_right = run < len(firsts) and firsts[run] == number + 1
        if joins_left and joins_right:
            stops[run - 1] = stops.pop(run)
            firsts.pop(run)
        elif joins_left:
            stops[run - 1] += 1
        elif joins_right:
            firsts[run] = number
        else:
            firsts.insert(run, number)
            stops.insert(run, number + 1)
        self._length += 1
        self._before = None
        return True

    def rank(self, number: int) -> int | None:
        """Returns how many members are less than ``number``; ``None`` if it is no member itself."""
        run = bisect_right(self._firsts, number) - 1
        if run < 0 or number >= self._stops[run]:
            return None
        return self._members_before()[run] + number - self._firsts[run]

    def member(self, rank: int) -> int:
        """Returns the member that has ``rank`` members before it.

        Raises:
            IndexError: The set has no more than ``rank`` members.
        """
        if not 0 <= rank < self._length:
            raise IndexError(rank)
        before = self._members_before()
        run = bisect_right(before, rank) - 1
        return self._firsts[run] + rank - before[run]

    def absent(self, stop: int) -> Iterator[int]:
        """Yields the numbers from 0 up to ``stop`` that are not members, in order."""
        number = 0
        for first, behind in zip(self._firsts, self._stops, strict=True):
            yield from range(number, min(first, stop))
            number = max(number, behind)
        yield from range(number, stop)

    def _members_before(self) -> list[int]:
        if self._before is None:
            lengths = (stop - first for first, stop in zip(self._firsts, self._stops, strict=True))
            self._before = list(accumulate(lengths, initial=0))[:-1]
        return self._before
