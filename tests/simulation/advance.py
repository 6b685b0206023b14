"""The statement of exactly-once delivery: deletes batches that are published, and selects the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outbox_api import UNBOUNDED, Batch

from .base_statements import AroundLocked, Choosing, Common, Marked, names
from .database import LOST, Change
from .tables import Row


class Advance(AroundLocked, Choosing):
    """Deletes the rows of batches, durably, and selects the earliest rows that are of no batch.

    Where nothing is finished it only reads: it compares the fence as its snapshot has it, and locks nothing.

    Args:
        common: As of every statement; there is no leader id.
        finished: The batches to delete.
        limit: How many rows to select at most; 0 for none.
        pending: Batches that are neither finished nor abandoned.
        start: The id to start from if the releases are ``releases``.
        releases: What the caller has seen of them last.
        max_bytes: As of a mark.
        locked: The ids of rows that this connection knows to be locked, and does not wait for again.
        excluded: Topics of which nothing is selected, with a NUL before them.
    """

    verb = "advance"
    share_lock = True

    def __init__(
        self,
        common: Common,
        finished: Sequence[Batch],
        limit: int,
        *,
        pending: Sequence[Batch],
        start: int,
        releases: int,
        max_bytes: int = UNBOUNDED,
        locked: Collection[int] = (),
        excluded: Collection[str] = (),
    ) -> None:
        super().__init__(common, limit, start, releases, max_bytes=max_bytes)
        self.finished = finished
        self.pending = pending
        self._skipped = locked
        self._excluded = excluded
        self._deleting: list[Row] = []
        self._chosen: list[Row] = []

    def run(self) -> None:
        if self.database.at_once or not self.finished:
            # All of the statement sees the table as it was when it began.
            self._select()
        if self.finished:
            self._deleting = self.published()
            self.under_fence(self._deleting)
        elif self.held():
            self.pause_then(self.finish)
        else:
            self.refuse(LOST)

    def _select(self) -> None:
        self._chosen = self.choose() if self.limit else []

    # --- the rows ------------------------------------------------------------------------------------

    def published(self) -> list[Row]:
        """Returns the rows to delete, by the snapshot."""
        rows = self.database.rows
        ids = sorted({number for batch in self.finished for number in batch.ids()})
        return [rows[number] for number in ids if number in rows and self.is_of(rows[number], self.finished)]

    def is_of(self, row: Row, batches: Sequence[Batch]) -> bool:
        """Whether a row is of one of some batches: it has one of its ids, and is not younger."""
        return names(batches, row)

    def leaves_out(self, row: Row) -> bool:
        excluded = f"\0{row.topic}" in self._excluded
        batches = (self.finished, self.pending)
        return super().leaves_out(row) or excluded or any(self.is_of(row, each) for each in batches)

    def keeps(self, row: Row) -> bool:
        """Behind a wait only the id is looked at again."""
        return True

    def taken(self) -> list[Row]:
        return self._chosen

    # --- locks of others -----------------------------------------------------------------------------

    def skips(self, row: Row) -> bool:
        return super().skips(row) or row.id in self._skipped

    def left_batches(self) -> list[Batch]:
        """Returns the rows that are not deleted as others have locked them, batch by batch."""
        mine = set(map(id, self.locked))
        rows = [row for row in self._deleting if id(row) not in mine and not row.gone]
        left = (
            Batch.of([row.id for row in rows if self.is_of(row, [batch])], batch.newest)
            for batch in self.finished
        )
        return [batch for batch in left if batch.runs]

    # --- the end -------------------------------------------------------------------------------------

    def apply(self) -> Marked:
        database, session = self.database, self.session
        current = self.still_current()
        for row in self.locked:
            database.audit.fenced_write(session, "purge", current=current, key=row.key)
            owned = self.is_of(row, self.finished)
            database.audit.purged(session, row.serial, owned=owned, told=row.id in session.trail.told)
        left, deleted = self.left_batches(), self.deleted(self.locked)
        self.write([(row, row.leader, True) for row in deleted])
        for row in deleted:
            database.remove(row)
        if self.finished and not database.at_once:
            self._select()
        database.audit.counts["rows that others had locked"] += sum(batch.rows for batch in left)
        return self.reply(len(deleted), left)

    def reply(self, purged: int, left: Sequence[Batch]) -> Marked:
        database, chosen = self.database, self._chosen
        newest = repr(max(row.created for row in chosen)) if chosen and database.dates else ""
        records = [self.record(row) for row in chosen]
        size = self.bytes_of(chosen)
        return Marked(records, self._found, self._seen, purged, newest, left, bytes=size)

    def choose(self) -> list[Row]:
        chosen = super().choose()
        for row in chosen:
            parked = row.key in self.database.parked
            self.database.audit.taken(self.session, row.serial, row.key, parked=parked)
        return chosen

    def write(self, deleted: list[Change]) -> None:
        """Commits the deletion."""
        if deleted:
            self.database.logged(deleted, durable=True)
