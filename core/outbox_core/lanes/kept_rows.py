"""Finds rows that were deleted and are still there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import Protocol

from outbox_api import Advanced, Batch, MarkedRecord

from outbox_core.delivery.left_rows import kept

MAX_RUNS = 10_000
"""How many runs of ids are remembered."""


class Rows(Protocol):
    """What knows which rows are there; an :class:`outbox_api.OutboxTable` does."""

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """See :meth:`outbox_api.OutboxTable.rows`."""
        ...


class KeptRows:
    """Compares what is selected with what was deleted lately.

    Nobody counts what the deletion of a batch deletes, since that would cost half as much as the deletion. A
    row that a trigger or row security keeps comes back with one of the next selections.
    """

    def __init__(self, deleted: Sequence[Batch] = ()) -> None:
        # First id of a run → last id, and the batch; the oldest first.
        self._deleted: dict[int, tuple[int, Batch]] = {}
        self._firsts: list[int] = []  # ascending
        self._known: set[int] = set()
        self._parked: set[int] = set()
        self._remember(deleted)

    def checked(self, table: Rows, finished: Sequence[Batch], advanced: Advanced) -> Advanced:
        """Returns the result of an advance, in which rows that were deleted before carry a fault."""
        self._remember(finished)
        ids = [record.id for record in advanced.records]
        top = self._deleted[self._firsts[-1]][0] if self._firsts else 0
        usual = bisect_right(ids, top)  # all rows from here on are newer than any that was deleted
        suspects = dict.fromkeys(batch for number in ids[:usual] if (batch := self._deleted_with(number)))
        if not suspects and not self._known:
            return advanced
        # A row that has the id of a deleted one is younger, and is not returned.
        there = {row.id for batch in suspects for row in table.rows(batch)}
        back = (there | self._known).intersection(ids) - self._parked
        new = len(back - self._known)
        self._known |= there  # also those of keys that are parked meanwhile: they come back later
        if not back:
            return advanced
        records = [kept(record) if record.id in back else record for record in advanced.records]
        return advanced._replace(purged=max(0, advanced.purged - new), records=records)

    def parked(self, heads: Sequence[int], keys: int) -> None:
        """Takes that ``keys`` of the keys that begin with these rows were parked.

        If one of their heads comes back, an operator has it tried again.
        """
        if keys == len(heads):
            self._parked.update(heads)

    def _remember(self, batches: Sequence[Batch]) -> None:
        if self._parked:
            self._parked.difference_update(number for batch in batches for number in batch.ids())
        for batch in batches:
            for first, last in batch.runs:
                self._cut_out(first, last)
                self._put(first, last, batch)
        while len(self._deleted) > MAX_RUNS:
            first = next(iter(self._deleted))
            del self._deleted[first]
            del self._firsts[bisect_left(self._firsts, first)]

    def _cut_out(self, first: int, last: int) -> None:
        """Leaves these ids out of former runs: rows that were locked are deleted again, apart from others."""
        at = bisect_left(self._firsts, first)
        if at and self._deleted[self._firsts[at - 1]][0] >= first:
            at -= 1
        while at < len(self._firsts) and self._firsts[at] <= last:
            begin = self._firsts.pop(at)
            end, batch = self._deleted.pop(begin)
            if begin < first:
                self._put(begin, first - 1, batch)
                at += 1
            if end > last:
                self._put(last + 1, end, batch)

    def _put(self, first: int, last: int, batch: Batch) -> None:
        insort(self._firsts, first)
        self._deleted[first] = (last, batch)

    def _deleted_with(self, number: int) -> Batch | None:
        """Returns the batch that was deleted with a row; ``None`` for the usual one, which no batch had."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        last, batch = self._deleted[self._firsts[at]]
        return batch if number <= last else None
