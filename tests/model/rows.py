"""Which rows of the outbox a statement selects and deletes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .scope import Rule, Scope
from .world import FREE, GONE, ONCE, Batch, Batches, Database, Rows, Selected, Wish


class Outbox:
    """The rows of a scope: their keys and their ids.

    Args:
        scope: What is explored.
        off: The rules that are off.
    """

    def __init__(self, scope: Scope, off: frozenset[Rule]) -> None:
        self._keys = scope.keys
        self._ids = scope.ids or tuple(range(len(scope.keys)))
        self._contents = scope.contents or tuple(range(len(scope.keys)))
        self._off = off

    def batch(self, rows: Sequence[int], name: int = 0) -> Selected | None:
        """Returns rows as a batch, ``None`` for none."""
        ids = tuple(self._ids[row] for row in rows)
        return Selected(Batch(ids, max(rows), name), tuple(rows)) if rows else None

    def selected(self, database: Database, lane: int, lanes: int, wish: Wish, purged: Batches) -> list[int]:
        """Returns the rows that a lane selects or marks next, in the order of their ids."""
        rows = database.rows
        left_out = () if "leave out what is pending" in self._off else wish.pending
        if "leave out what is being purged" not in self._off:
            left_out += purged
        guarded = "guard the selection" not in self._off
        parked = {self._keys[row] for row in database.parked}
        free = [
            row
            for row, key in enumerate(self._keys)
            if rows[row] >= FREE and key % lanes == lane and self._ids[row] > wish.after
            if not any(self._has(batch, row, rows[row], guarded=guarded) for batch in left_out)
            if not (
                row in database.parked
                or (key in parked and "leave out the whole parked key" not in self._off)
            )
        ]
        return sorted(free, key=self._ids.__getitem__)[: wish.limit]

    def of(self, rows: Rows, batches: Batches) -> set[int]:
        """Returns the rows of batches that are not purged yet."""
        guarded = "guard the deletion" not in self._off
        return {
            row
            for row, leader_id in enumerate(rows)
            if leader_id >= FREE
            if any(self._has(batch, row, leader_id, guarded=guarded) for batch in batches)
        }

    def ranges(self, rows: Rows, batches: Batches) -> set[int]:
        """Returns all rows between the first and the last of a batch: what would be wrong to purge."""
        wide = tuple(each._replace(ids=tuple(range(each.ids[0], each.ids[-1] + 1))) for each in batches)
        return self.of(rows, wide)

    def found(self, rows: Rows, log: Rows, attempted: Batch) -> Rows:
        """Returns those of an attempt's rows of which transactions have brought a record into the log.

        A record that is there does not tell of which of the attempt's rows that say the same: it counts for
        the first that is looked for. A row of the attempt that is there was brought by the attempt: had an
        earlier transaction brought it, the attempt might as well bring it twice.
        """
        if "heed the trace" in self._off:
            contents = {self._contents[row] for row, place in enumerate(log) if place == ONCE}
            return tuple(row for row in rows if self._contents[row] in contents)
        left = Counter(
            self._contents[row]
            for row, place in enumerate(log)
            if place == ONCE and self._has(attempted, row, FREE, guarded=True)
        )
        seen = set()
        for row in rows:
            if left[self._contents[row]]:
                left[self._contents[row]] -= 1
                seen.add(row)
        return tuple(row for row in rows if row in seen or self._replaced(row, seen))

    def _replaced(self, row: int, seen: set[int]) -> bool:
        """Returns whether a record that is not in the log must have been, as a later one of its key is."""
        if "heed later records" in self._off:
            return False
        earliest = -1 if "assume no whole partitions" in self._off else row
        return any(other > earliest and self._keys[other] == self._keys[row] for other in seen)

    def replaced(self, row: int, rows: Rows) -> list[int]:
        """Returns the rows that had a row's id before."""
        return [other for other in range(row) if self._ids[other] == self._ids[row] and rows[other] != GONE]

    def _has(self, batch: Batch, row: int, leader_id: int, *, guarded: bool) -> bool:
        if batch.name:
            return leader_id == batch.name and batch.ids[0] <= self._ids[row] <= batch.ids[-1]
        return self._ids[row] in batch.ids and (row <= batch.newest or not guarded)
