"""The audit itself: a pure comparison without I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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

    def covers(self, first: int, last: int) -> bool:
        """Returns whether all numbers from ``first`` to ``last`` are members; also if these are none."""
        index = bisect_right(self._firsts, first) - 1
        return first > last or (index >= 0 and last < self._stops[index])

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
        repeats: Runs of repeated messages in order: the first rank, the last one, and up to which rank later
            records must follow again, as they had arrived before.
    """

    __slots__ = ("arrived", "committed", "duplicates", "furthest", "repeats")

    def __init__(self) -> None:
        self.committed = RangeSet()  # sequences of the committed records
        self.arrived = RangeSet()  # ranks (positions among the committed records) of those that arrived
        self.furthest = -1  # the highest of these ranks; -1 before the first
        self.repeats: list[tuple[int, int, int]] = []
        self.duplicates: RangeSet | None = None  # usually there are none, and there may be many keys

    def repeat(self, rank: int) -> bool:
        """Handles a repeated arrival; returns whether it is the record's first repetition."""
        behind = self.furthest if rank < self.furthest else -1  # none must follow
        first, last, furthest = self.repeats[-1] if self.repeats else (0, 0, 0)
        if self.repeats and rank == last + 1 and behind in (furthest, -1):
            self.repeats[-1] = first, rank, furthest
        else:
            self.repeats.append((rank, rank, behind))
        if self.duplicates is None:
            self.duplicates = RangeSet()
        return self.duplicates.add(rank)

    def stale(self) -> list[int]:
        """Returns the sequences of stale records, in order of their last messages.

        A record is not stale if all that had arrived behind it did so again after its last message.
        """
        after, stale = RangeSet(), list[int]()
        for first, last, furthest in reversed(self.repeats):
            follows = after.covers(last + 1, furthest)
            for rank in range(last, first - 1, -1):
                if after.add(rank) and not follows:
                    stale.append(rank)
        return [self.committed.member(rank) for rank in reversed(stale)]


class Audit:
    """Finds records that are lost, foreign, out of order or repeated.

    Call :meth:`committed` for every committed record first, then :meth:`arrived` for every message. A record
    is identified by its key and a sequence that rises with each record of the key. Sequences may have gaps,
    for instance the numbers of rolled-back transactions. Needs memory for a few numbers per key, per gap and
    per run of repeated messages in order.

    The order is that of docs/algorithm.md ("Why it works"): no record may arrive for the first time behind a
    later one of its key, and if it is repeated behind later ones, all these must follow again. Duplicates are
    counted too; the caller decides whether they are allowed.
    """

    def __init__(self) -> None:
        self._keys: dict[str, _KeyState] = {}
        self._sent = 0
        self._delivered = 0
        self._repeated = self._reappeared = 0
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
        if key_state.arrived.add(rank):
            self._delivered += 1
            if rank < key_state.furthest:
                self._add_defect(Defect.OVERTAKEN, key, sequence)
        else:
            self._repeated += 1
            self._reappeared += rank < key_state.furthest
            if key_state.repeat(rank):
                self._add_defect(Defect.DUPLICATES, key, sequence)
        key_state.furthest = max(key_state.furthest, rank)

    def result(self) -> Result:
        """Returns what was found so far; changes nothing."""
        examples = {defect: tuple(named) for defect, named in self._examples.items()}
        stale = self.stale()
        return Result(
            sent=self._sent,
            delivered=self._delivered,
            foreign=self._defects[Defect.FOREIGN],
            overtaken=self._defects[Defect.OVERTAKEN],
            reappeared=self._reappeared,
            stale=sum(map(len, stale.values())),
            repeated=self._repeated,
            duplicates=self._defects[Defect.DUPLICATES],
            most_stale=tuple(
                nsmallest(EXAMPLES, ((key, len(found)) for key, found in stale.items()), key=_most_first)
            ),
            examples=examples | {Defect.LOST: self._lost(), Defect.STALE: _first(stale)},
        )

    def stale(self) -> Mapping[str, list[int]]:
        """Returns the stale records found so far: key → sequences, in order of their last messages."""
        found = ((key, state.stale()) for key, state in self._keys.items() if state.repeats)
        return {key: sequences for key, sequences in found if sequences}

    def _add_defect(self, defect: Defect, key: str, sequence: int | None) -> None:
        self._defects[defect] += 1
        if len(self._examples[defect]) < EXAMPLES:
            self._examples[defect].append((key, sequence))

    def _lost(self) -> tuple[RecordName, ...]:
        return _first(
            {
                key: map(state.committed.member, state.arrived.absent(len(state.committed)))
                for key, state in self._keys.items()
            }
        )


def _first(records: Mapping[str, Iterable[int]]) -> tuple[RecordName, ...]:
    return tuple(islice(((key, each) for key, named in records.items() for each in named), EXAMPLES))


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]
