"""Rows that a lane has delivered and could not delete: others have locked them, or something keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from outbox_api import MarkedRecord

LOCKED_SECONDS = 1.0
"""The pause before rows that others had locked are purged or reset again."""


class LeftRows:
    """The delivered rows of a lane of at-least-once delivery that others had locked when it purged them.

    Their keys stay busy until they are purged. A remark does not wait for them: they keep the leader id that
    they were marked with.
    """

    def __init__(self) -> None:
        self.due = float("inf")
        """When some of them are to be purged again, in the caller's time; infinity if there are none."""
        self.rows = 0  # how many there are
        self._left: dict[UUID, list[MarkedRecord]] = {}

    def add(self, now: float, leader_id: UUID, records: Iterable[MarkedRecord]) -> None:
        """Adds rows that carry a leader id. Only their ids and keys are kept."""
        left = [record._replace(value=None, headers=()) for record in records]
        self._left.setdefault(leader_id, []).extend(left)
        self.rows += len(left)
        self.due = min(self.due, now + LOCKED_SECONDS)

    def take(self, now: float) -> tuple[UUID, list[MarkedRecord]]:
        """Removes and returns those of one leader id, and the id."""
        leader_id = next(iter(self._left))
        records = self._left.pop(leader_id)
        self.rows -= len(records)
        self.due = now + LOCKED_SECONDS if self._left else float("inf")
        return leader_id, records


def kept(record: MarkedRecord) -> MarkedRecord:
    """Returns a record that is in its topic already as a faulty one, so that it is not published again."""
    fault = (
        f"row {record.id} was deleted and is still there: a trigger, rule or row security keeps it; remove "
        "what does, and skip the record, which is in its topic"
    )
    return record._replace(value=None, headers=(), fault=fault)
