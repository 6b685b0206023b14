"""Finds rows that were deleted and are still there, before exactly-once delivery publishes them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from outbox_sdk import Advanced, Batch, MarkedRecord

from outbox_core.delivery.left_rows import kept

MAX_BATCHES = 16
"""How many of the batches that were deleted last are remembered: what is kept is selected next."""


class Rows(Protocol):
    """What knows which rows are there; an :class:`outbox_sdk.OutboxTable` does."""

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """See :meth:`outbox_sdk.OutboxTable.rows`."""
        ...


class KeptRows:
    """Compares what is selected with what was deleted lately.

    Nobody counts what the deletion of a batch deletes, since that would cost half as much as the deletion. A
    row that a trigger or row security keeps comes back with one of the next selections.

    Args:
        deleted: Batches that were deleted before.
    """

    def __init__(self, deleted: Sequence[Batch] = ()) -> None:
        self._deleted: deque[Batch] = deque(maxlen=MAX_BATCHES)
        self._known: set[int] = set()
        self._parked: set[int] = set()
        self._remember(deleted)

    def checked(self, table: Rows, finished: Sequence[Batch], advanced: Advanced) -> Advanced:
        """Returns the result of an advance, in which rows that were deleted before carry a fault.

        Args:
            table: The connection over which they were selected.
            finished: The batches that the advance has deleted.
            advanced: Its result.

        Raises:
            DriverError: As of :meth:`outbox_sdk.OutboxTable.rows`.
        """
        self._remember(finished)
        ids = [record.id for record in advanced.records]
        suspects = [batch for batch in self._deleted if ids and _shares(batch, ids)]
        # A row that has the id of a deleted one is younger, and is not returned.
        there = {row.id for batch in suspects for row in table.rows(batch)} | self._known
        back = there.intersection(ids) - self._parked
        if not back:
            return advanced
        records = [kept(record) if record.id in back else record for record in advanced.records]
        purged = max(0, advanced.purged - len(back - self._known))
        self._known |= back
        return advanced._replace(purged=purged, records=records)

    def parked(self, heads: Sequence[int], keys: int) -> None:
        """Takes that ``keys`` of the keys that begin with these rows were parked.

        If one of their heads comes back, an operator has it tried again.
        """
        if keys == len(heads):
            self._parked.update(heads)

    def _remember(self, batches: Sequence[Batch]) -> None:
        if self._parked:
            self._parked.difference_update(number for batch in batches for number in batch.ids())
        self._deleted.extend(batch for batch in batches if batch.runs)


def _shares(batch: Batch, ids: Sequence[int]) -> bool:
    """Returns whether a batch has one of some ids, which ascend."""
    if batch.runs[0][0] > ids[-1] or batch.runs[-1][1] < ids[0]:
        return False
    return not set(ids).isdisjoint(batch.ids())
