"""What lanes and leaders ask of the database, statement by statement, as PostgreSQL's dialect does it."""

from __future__ import annotations

from outbox_api import UNBOUNDED, Batch, Changed

from .base_statements import AroundLocked, Choosing, Common, Fenced, Marked, names, record_of
from .database import Database, Transaction
from .tables import Row


class Mark(Choosing):
    """Claims the earliest rows that are not the caller's. Its commit is not durable.

    Args:
        common: As of every statement.
        limit: As above.
        start: As above.
        releases: As above.
        excluded: Keys of which nothing is claimed, and topics, with a NUL before them.
        max_bytes: As above.
    """

    verb = "mark"
    durable = False
    share_lock = True

    def __init__(  # noqa: PLR0917 - a statement's parameters
        self,
        common: Common,
        limit: int,
        start: int,
        releases: int,
        excluded: frozenset[str] = frozenset(),
        max_bytes: int = UNBOUNDED,
    ) -> None:
        super().__init__(common, limit, start, releases, max_bytes=max_bytes)
        self.excluded = excluded

    def keeps(self, row: Row) -> bool:
        """Behind a wait only the id is looked at again, as in ``UPDATE … WHERE id = ANY``."""
        return True

    def leaves_out(self, row: Row) -> bool:
        """Whether a row is marked, or its key is parked, by the snapshot, or excluded."""
        excluded = row.key in self.excluded or f"\0{row.topic}" in self.excluded
        return row.leader == self.leader_id or row.key in self.database.parked or excluded

    def taken(self) -> list[Row]:
        return self.locked

    def run(self) -> None:
        self.under_fence(self.choose())

    def apply(self) -> Marked:
        database, session = self.database, self.session
        database.logged([(row, row.leader, False) for row in self.locked], durable=self.durable)
        current = self.still_current()
        for row in self.locked:
            database.audit.fenced_write(session, self.verb, current=current, key=row.key)
            database.audit.taken(session, row.serial, row.key, parked=row.key in database.parked)
            row.leader = self.leader_id
        records = [self.record(row) for row in self.locked]
        return Marked(records, self._found, self._seen, bytes=self.bytes_of(self.locked))


class Purge(AroundLocked):
    """Deletes rows that still carry the caller's leader id, none behind a locked one of its key."""

    verb = "purge"
    keeps_prefix = True

    def __init__(self, common: Common, ids: list[int]) -> None:
        super().__init__(common)
        self.ids = ids

    def run(self) -> None:
        self.under_fence(self.rows(self.ids))

    def apply(self) -> Changed:
        database, session = self.database, self.session
        left = self.left(self.ids)
        first = {row.key: row.id for row in reversed(Fenced.rows(self, left)) if self.keeps_prefix}
        passed = [row for row in self.locked if row.id < first.get(row.key, row.id + 1)]
        left += [row.id for row in self.locked if row not in passed]
        deleted = self.deleted(passed)
        for row in passed:
            told = row.id in session.trail.acked
            database.audit.purged(session, row.serial, owned=row.leader == self.leader_id, told=told)
        for row in deleted:
            database.remove(row)
        for number in self.ids:
            if number not in left:
                database.audit.settled(session, number)
        database.logged([(row, row.leader, True) for row in deleted], durable=self.durable)
        return Changed(len(deleted), left, [row.id for row in passed if row.kept])


class Reset(AroundLocked):
    """Clears the leader id of rows that still carry the caller's."""

    verb = "reset"

    def __init__(self, common: Common, ids: list[int]) -> None:
        super().__init__(common)
        self.ids = ids

    def run(self) -> None:
        self.under_fence(self.rows(self.ids))

    def apply(self) -> Changed:
        left = self.left(self.ids)
        for row in self.locked:
            self.database.audit.reset(self.session, row.serial, owned=row.leader == self.leader_id)
            row.leader = None
        self.database.logged([], durable=True)
        return Changed(len(self.locked), left)


class Park(Reset):
    """Parks the keys of heads that still carry the caller's leader id, and resets them and their tails.

    Without a leader id it parks the keys of heads that are still there, and resets nothing.
    """

    verb = "park"
    share_lock = True

    def __init__(self, common: Common, heads: list[int], ids: list[int]) -> None:
        super().__init__(common, ids)
        self.heads = frozenset(heads)

    def run(self) -> None:
        if self.leader_id is None:
            self.under_fence([])  # rows that are only copied are not locked
        else:
            super().run()

    def keeps(self, row: Row) -> bool:
        return self.leader_id is None or super().keeps(row)

    def apply(self) -> Changed:
        database, left = self.database, self.left(self.ids)
        seen = self.locked if self.leader_id else database.rows.values()
        heads = [row for row in seen if row.id in self.heads]
        current = self.still_current()
        for row in heads:
            database.audit.fenced_write(self.session, "park", current=current, key=row.key)
            database.parked[row.key] = row
            database.audit.parks(self.session, row.serial)
        if self.leader_id is None:
            database.logged([], durable=True)
        else:
            super().apply()
        return Changed(len(heads), left)


class Listing(Transaction):
    """Reads the newest id from ``floor`` on, and then which transactions have taken an id and not ended."""

    def __init__(self, database: Database, floor: int) -> None:
        super().__init__(database)
        self._floor = floor
        self._newest: int | None = None

    def run(self) -> None:
        ids = self.database.ids
        self._newest = ids[-1] if ids and ids[-1] >= self._floor else None
        self.pause_then(self._look)

    def _look(self) -> None:
        self.refuse((self._newest, tuple(self.database.holders)))


class ReadRows(Transaction):
    """Reads those rows of a batch that are in the outbox, by the order of their ids."""

    def __init__(self, database: Database, batch: Batch) -> None:
        super().__init__(database)
        self._batch = batch

    def run(self) -> None:
        rows = (self.database.rows[number] for number in self._batch.ids() if number in self.database.rows)
        found = [record_of(self.database, row) for row in rows if names([self._batch], row)]
        self.pause_then(lambda: self.refuse(found))
