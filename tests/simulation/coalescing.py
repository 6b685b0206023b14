"""The statements that outline what waits, and delete what is superseded; and the audit of the latter."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence

from outbox_api import Batch, Outline, Outlined

from .base_statements import Common, Fenced, names
from .database import LOST
from .tables import Row
from .trail import Violation


class ReadOutline(Fenced):
    """Reads the rows behind an id, as of one moment.

    Args:
        common: As of every statement; there is no leader id.
        after: The id.
        limit: How many rows to read.
        topics: The topics.
    """

    def __init__(self, common: Common, after: int, limit: int, topics: Sequence[str]) -> None:
        super().__init__(common)
        self.after = after
        self.limit = limit
        self.topics = topics

    def run(self) -> None:
        if not self.held():
            self.refuse(LOST)
            return
        outline = self.outline()
        self.pause_then(lambda: self.refuse(outline))

    def outline(self) -> Outline:
        """Returns it, by the snapshot."""
        database = self.database
        first = bisect_right(database.ids, self.after)
        read = [database.rows[number] for number in database.ids[first : first + self.limit]]
        if not read:
            return Outline([])
        newest = repr(max(row.created for row in read)) if database.dates else ""
        rows = [Outlined(row.id, row.topic, row.key) for row in read if self.has(row)]
        return Outline(rows, read[-1].id, len(read), newest)

    def has(self, row: Row) -> bool:
        """Whether a row is in the outline."""
        right, parked = self.right, self.database.parked
        mine = row.bucket % right.lanes == right.lane and row.leader is None
        return mine and row.key not in parked and row.topic in self.topics


class Supersede(Fenced):
    """Deletes rows, durably, but for those that others have locked, or that a trigger keeps.

    Args:
        common: As of every statement; there is no leader id.
        batch: The rows.
        taken: Returns the batches that the lane has in its hands, for the audit.
    """

    share_lock = True

    def __init__(self, common: Common, batch: Batch, taken: Callable[[], Collection[Batch]]) -> None:
        super().__init__(common)
        self.batch = batch
        self.taken = taken

    def run(self) -> None:
        rows = self.database.rows
        found = (rows[number] for number in self.batch.ids() if number in rows)
        self.under_fence([row for row in found if names([self.batch], row)])

    def skips(self, row: Row) -> bool:
        return True

    def keeps(self, row: Row) -> bool:
        """Behind a wait for the fence only the id is looked at again."""
        return True

    def apply(self) -> int:
        database, audit = self.database, self.database.audit
        deleted = [row for row in self.locked if not row.kept]
        for row in deleted:
            audit.fenced_write(self.session, "deletion", current=self.still_current(), key=row.key)
            self._check(row)
        for row in deleted:
            database.remove(row)
        for row in deleted:
            if not self._has_successor(row):
                self._violate(row, "no later record waits")
            audit.superseded(row.serial)
        database.logged([(row, row.leader, True) for row in deleted], durable=True)
        return len(deleted)

    def _check(self, row: Row) -> None:
        audit, right = self.database.audit, self.right
        if row.key in self.database.parked:
            self._violate(row, "its key is parked")
        if row.leader is not None or row.serial in self.session.trail.flying[row.key]:
            self._violate(row, "it is in somebody's hands")
        if row.bucket % right.lanes != right.lane:
            self._violate(row, "it is another lane's")
        entry = audit.entries[row.serial]
        if names(self.taken(), row) or (entry.transacted and not entry.forgiven):
            self._violate(row, "a transaction may have committed it")

    def _has_successor(self, row: Row) -> bool:
        """Whether a later row of its key waits, or did until an application deleted it."""
        rows = self.database.rows.values()
        if any(row.id < other.id for other in rows if (other.key, other.topic) == (row.key, row.topic)):
            return True
        entry, entries = self.database.audit.entries[row.serial], self.database.audit.entries.values()
        return any(
            other.serial > entry.serial
            for other in entries
            if other.skipped and not other.superseded and (other.key, other.topic) == (entry.key, entry.topic)
        )

    def _violate(self, row: Row, why: str) -> None:
        text = f"{self.session.name} deletes {row.serial} of key {row.key!r} as superseded: {why}"
        raise Violation("coalesced", text, row.key, self.session.lane)
