"""The audit itself: a pure comparison without I/O."""

from collections import Counter
from heapq import nsmallest
from itertools import islice

from outbox_core.audit.result import Defect, Named, Result
from outbox_core.audit.runs import Runs

EXAMPLES = 5
"""How many records of each defect are named."""


class _Account:
    """What is known of one key.

    Attributes:
        committed: Sequences of the committed records.
        arrived: Ranks (places among the committed) of those that arrived.
        furthest: The highest of these ranks; -1 before the first.
        reappeared: Messages that repeated a record of the key behind a later one.
        duplicates: Ranks of those that arrived more than once.
    """

    __slots__ = ("arrived", "committed", "duplicates", "furthest", "reappeared")

    def __init__(self) -> None:
        self.committed = Runs()
        self.arrived = Runs()
        self.furthest = -1
        self.reappeared = 0
        self.duplicates: Runs | None = None  # as a rule there are none, and keys may be many

    def duplicate(self, rank: int) -> bool:
        """Takes that a record arrived again; returns whether that is its first time."""
        if self.duplicates is None:
            self.duplicates = Runs()
        return self.duplicates.add(rank)


class Audit:
    """Finds what is lost, foreign, out of order or repeated; fed record by record, in two steps.

    First every committed record with :meth:`committed`, then every message with :meth:`arrived`. A record is
    known by its key and a sequence that rises with each record of the key; sequences may have gaps, as the
    numbers of rolled-back transactions do. Memory: a few numbers for each key, each gap and each
    duplicate.

    The order that counts is that of docs/algorithm.md ("Why it works"): a record may be repeated, but neither
    it nor its repetition may arrive behind a later record of its key. Duplicates are found too; whether they
    are allowed is up to whoever reads the result.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._sent = 0
        self._delivered = 0
        self._repeated = 0
        self._defects: Counter[Defect] = Counter()
        self._examples: dict[Defect, list[Named]] = {defect: [] for defect in Defect}
        self._listening = False

    def committed(self, key: str, sequence: int) -> None:
        """Takes a record that an application stashed and committed, in any order.

        Raises:
            ValueError: It was there already, or messages have been fed before: a message whose commit is
                not known yet could not be told from a foreign one.
        """
        if self._listening:
            raise ValueError("feed all committed records before the first message")
        account = self._accounts.setdefault(key, _Account())
        if not account.committed.add(sequence):
            raise ValueError(f"key {key!r}: sequence {sequence} was committed twice")
        self._sent += 1

    def arrived(self, key: str, sequence: int | None) -> None:
        """Takes a message from the topic, in the order of its key's partition.

        Args:
            key: The message's key.
            sequence: Its sequence; ``None`` for a message without one, which counts as foreign.
        """
        self._listening = True
        account = self._accounts.get(key)
        rank = None if account is None or sequence is None else account.committed.rank(sequence)
        if account is None or rank is None:
            self._note(Defect.FOREIGN, key, sequence)
            return
        first = account.arrived.add(rank)
        if first:
            self._delivered += 1
        else:
            self._repeated += 1
            if account.duplicate(rank):
                self._note(Defect.DUPLICATES, key, sequence)
        if rank < account.furthest:
            self._note(Defect.OVERTAKEN if first else Defect.REAPPEARED, key, sequence)
            account.reappeared += not first
        account.furthest = max(account.furthest, rank)

    def result(self) -> Result:
        """Returns what has been found so far; changes nothing."""
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

    def _note(self, defect: Defect, key: str, sequence: int | None) -> None:
        self._defects[defect] += 1
        if len(self._examples[defect]) < EXAMPLES:
            self._examples[defect].append((key, sequence))

    def _most_reappeared(self) -> tuple[tuple[str, int], ...]:
        """Returns the keys with the most reappeared messages, and how many these are."""
        keys = ((key, account.reappeared) for key, account in self._accounts.items() if account.reappeared)
        return tuple(nsmallest(EXAMPLES, keys, key=lambda each: (-each[1], each[0])))

    def _lost(self) -> tuple[Named, ...]:
        lost = (
            (key, account.committed.member(rank))
            for key, account in self._accounts.items()
            for rank in account.arrived.absent(len(account.committed))
        )
        return tuple(islice(lost, EXAMPLES))
