"""A set of integers whose size in memory depends on the number of gaps, not of members."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate


class RangeSet:
    """A set of integers, stored as sorted ranges of consecutive ones.

    A million consecutive numbers take as much memory as one; each gap adds a range.
    """

    __slots__ = ("_before", "_firsts", "_length", "_stops")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._stops: list[int] = []
        self._length = 0
        self._before: list[int] | None = None  # members before each range; None while out of date

    def __len__(self) -> int:
        return self._length

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number < self._stops[index]

    def add(self, number: int) -> bool:
        """Adds a number; returns whether it is new."""
        firsts, stops = self._firsts, self._stops
        index = bisect_right(firsts, number)  # the range behind the number
        if index and number < stops[index - 1]:
            return False
        joins_left = index > 0 and stops[index - 1] == number
        joins_right = index < len(firsts) and firsts[index] == number + 1
        if joins_left and joins_right:
            stops[index - 1] = stops.pop(index)
            firsts.pop(index)
        elif joins_left:
            stops[index - 1] += 1
        elif joins_right:
            firsts[index] = number
        else:
            firsts.insert(index, number)
            stops.insert(index, number + 1)
        self._length += 1
        self._before = None
        return True

    def rank(self, number: int) -> int | None:
        """Returns how many members are less than ``number``; ``None`` if it is not a member."""
        index = bisect_right(self._firsts, number) - 1
        if index < 0 or number >= self._stops[index]:
            return None
        return self._members_before()[index] + number - self._firsts[index]

    def member(self, rank: int) -> int:
        """Returns the member that has ``rank`` members before it.

        Raises:
            IndexError: The set has ``rank`` members or fewer.
        """
        if not 0 <= rank < self._length:
            raise IndexError(rank)
        before = self._members_before()
        index = bisect_right(before, rank) - 1
        return self._firsts[index] + rank - before[index]

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
