"""The audit itself: a pure comparison without I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from itertools import accumulate, islice

from outbox_audit.result import Defect, RecordName, Result


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
        """Returns the member that has ``rank`` members before it."""
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


EXAMPLES = 5
"""How many records of each defect the result lists."""


class _KeyState:
    """The state of one key.

    Attributes:
        duplicates: Ranks of those that arrived more than once.
    """

    __slots__ = ("arrived", "committed", "duplicates", "furthest", "reappeared")

    def __init__(self) -> None:
        self.committed = RangeSet()  # sequences of the committed records
        self.arrived = RangeSet()  # ranks (positions among the committed records) of those that arrived
        self.furthest = -1  # the highest of these ranks; -1 before the first
        self.reappeared = 0  # messages that repeated a record of the key behind a later one
        self.duplicates: RangeSet | None = None  # usually there are none, and there may be many keys

    def duplicate(self, rank: int) -> bool:
        """Counts a repeated arrival; returns whether it is the record's first repetition."""
        if self.duplicates is None:
            self.duplicates = RangeSet()
        return self.duplicates.add(rank)


class Audit:
    """Finds records that are lost, foreign, out of order or repeated.

    Call :meth:`committed` for every committed record first, then :meth:`arrived` for every message. A record
    is identified by its key and a sequence that rises with each record of the key. Sequences may have gaps,
    for instance the numbers of rolled-back transactions. Needs memory for a few numbers per key, per gap and
    per duplicate.

    The order is that of docs/algorithm.md ("Why it works"): a record may be repeated, but neither it nor its
    repetition may arrive behind a later record of its key. Duplicates are counted too; the caller decides
    whether they are allowed.
    """

    def __init__(self) -> None:
        self._keys: dict[str, _KeyState] = {}
        self._sent = 0
        self._delivered = 0
        self._repeated = 0
        self._defects: Counter[Defect] = Counter()
        self._examples: dict[Defect, list[RecordName]] = {defect: [] for defect in Defect}
        self._has_messages = False

    def committed(self, key: str, sequence: int) -> None:
        """Adds a record that an application stashed and committed; in any order.

        Raises:
            ValueError: The record was added before, or a message was: a message whose record is not known
                yet cannot be distinguished from a foreign one.
        """
        if self._has_messages:
            raise ValueError("add all committed records before the first message")
        key_state = self._keys.setdefault(key, _KeyState())
        if not key_state.committed.add(sequence):
            raise ValueError(f"key {key!r}: sequence {sequence} was committed twice")
        self._sent += 1

    def arrived(self, key: str, sequence: int | None) -> None:
        """Adds a message of the topic, in the order of its partition.

        Args:
            key: The message's key.
            sequence: Its sequence; ``None`` for a message without one, which counts as foreign.
        """
        self._has_messages = True
        key_state = self._keys.get(key)
        rank = None if key_state is None or sequence is None else key_state.committed.rank(sequence)
        if key_state is None or rank is None:
            self._add_defect(Defect.FOREIGN, key, sequence)
            return
        first = key_state.arrived.add(rank)
        if first:
            self._delivered += 1
        else:
            self._repeated += 1
            if key_state.duplicate(rank):
                self._add_defect(Defect.DUPLICATES, key, sequence)
        if rank < key_state.furthest:
            self._add_defect(Defect.OVERTAKEN if first else Defect.REAPPEARED, key, sequence)
            key_state.reappeared += not first
        key_state.furthest = max(key_state.furthest, rank)

    def result(self) -> Result:
        """Returns what was found so far; changes nothing."""
        examples = {defect: tuple(named) for defect, named in self._examples.items()}
        return Result(
            sent=self._sent,
            delivered=self._delivered,
            foreign=self._defects[Defect.FOREIGN],
            overtaken=self._defects[Defect.OVERTAKEN],
            reappeared=self._defects[Defect.REAPPEARED],
            repeated=self._repeated,
            duplicates=self._defects[Defect.DUPLICATES],
            most_reappeared=self._most_reappeared(),
            examples=examples | {Defect.LOST: self._lost()},
        )

    def _add_defect(self, defect: Defect, key: str, sequence: int | None) -> None:
        self._defects[defect] += 1
        if len(self._examples[defect]) < EXAMPLES:
            self._examples[defect].append((key, sequence))

    def _most_reappeared(self) -> tuple[tuple[str, int], ...]:
        """Returns the keys with the most reappeared messages, and the number of these messages."""
        keys = ((key, key_state.reappeared) for key, key_state in self._keys.items() if key_state.reappeared)
        return tuple(nsmallest(EXAMPLES, keys, key=lambda each: (-each[1], each[0])))

    def _lost(self) -> tuple[RecordName, ...]:
        lost = (
            (key, key_state.committed.member(rank))
            for key, key_state in self._keys.items()
            for rank in key_state.arrived.absent(len(key_state.committed))
        )
        return tuple(islice(lost, EXAMPLES))
