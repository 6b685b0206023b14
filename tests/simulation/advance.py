"""The statement of exactly-once delivery: deletes batches that are published, and marks the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outbox_sdk import UNBOUNDED, Batch

from .database import Change
from .statements import Common, Mark, Marked
from .tables import Row


class Advance(Mark):
    """Deletes batches by their names, and claims the earliest rows of no other batch; durable as a whole.

    Args:
        common: As of every statement; the leader id is the new batch's name.
        finished: The batches to delete.
        limit: How many rows to mark at most; 0 for none.
        pending: The names of batches that are neither finished nor abandoned.
        start: The id to start from if the releases are ``releases``.
        releases: What the caller has seen of them last.
    """

    verb = "advance"
    durable = True

    def __init__(
        self,
        common: Common,
        finished: Sequence[Batch],
        limit: int,
        *,
        pending: Collection[object],
        start: int,
        releases: int,
        max_bytes: int = UNBOUNDED,
    ) -> None:
        super().__init__(common, limit, start, releases, max_bytes=max_bytes)
        self.finished = finished
        self.names = frozenset(batch.leader_id for batch in finished)
        self.left_out = self.left_out | self.names | frozenset(pending)
        self._deleting: frozenset[int] = frozenset()

    def run(self) -> None:
        # All of the statement sees the table as it was when it began.
        deleting = self.published()
        self._deleting = frozenset(row.id for row in deleting)
        self.under_fence([*deleting, *(self.choose() if self.limit else [])])

    def published(self) -> list[Row]:
        """Returns the rows to delete, by the snapshot."""
        rows = self.database.rows
        found = (rows.get(number) for each in self.finished for number in self.database.ids_between(each))
        return [row for row in found if row is not None and row.leader in self.names]

    def keeps(self, row: Row) -> bool:
        return row.id not in self._deleting or row.leader in self.names

    def apply(self) -> Marked:
        database, session = self.database, self.session
        deleted = [row for row in self.locked if row.id in self._deleting]
        marked = [row for row in self.locked if row.id not in self._deleting]
        current = self.still_current()
        for row in deleted:
            database.audit.fenced_write(session, "purge", current=current, key=row.key)
            told = row.leader in session.trail.told
            database.audit.purged(session, row.id, owned=row.leader in self.names, told=told)
        self.write([(row, row.leader, True) for row in deleted], [(row, row.leader, False) for row in marked])
        for row in deleted:
            database.remove(row)
        reply = self.claim(marked)
        reply.purged = len(deleted)
        return reply

    def write(self, deleted: list[Change], marked: list[Change]) -> None:
        """Commits the changes, which are told with what they undo."""
        self.database.logged([*deleted, *marked], durable=True)
