"""What statements have in common: the fence that they are checked against, and how rows are chosen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from outbox_api import UNBOUNDED, Batch, Fence, MarkedRecord
from outbox_postgres.settled import FIRST

from .database import LOST, Database, Transaction
from .tables import Lock, Row
from .trail import FAULTY, Session

Common = tuple[Database, Session, Fence, Any]
"""The database, whose the statement is, the fence it is checked against, and the leader id it carries."""


@dataclass(slots=True)
class Marked:
    """The reply to a mark or an advance.

    Attributes:
        records: What it marked or selected, ordered by id.
        found: How many rows it found.
        releases: The releases it saw, or ``None`` when the caller knows them.
        purged: How many rows it deleted; only an advance does.
        newest: The greatest ``create_time`` of what it selected.
        locked: The rows that it did not delete because others had locked them.
        bytes: How many bytes the reply has.
    """

    records: list[MarkedRecord]
    found: int
    releases: int | None
    purged: int = 0
    newest: str = ""
    locked: Sequence[Batch] = ()
    bytes: int = 0


ROW_SECONDS = 0.3
"""How long a deletion waits for rows that others have locked, before it goes on without them."""
VALUES: dict[int, str] = {}
"""Size → a value of that many bytes."""
BUFFERED_BYTES = 1000
"""So many bytes of a reply the network takes though the client reads nothing."""
CLIENT_SECONDS = 2.0
"""How long the server waits for a client that reads nothing, before it ends its session."""


class Fenced(Transaction):
    """A statement under a fence.

    Attributes:
        session: Whose it is.
        right: The fence it is checked against.
        leader_id: The leader id it carries.
    """

    verb = ""
    share_lock = False

    def __init__(self, common: Common) -> None:
        database, self.session, self.right, self.leader_id = common
        super().__init__(database)

    def held(self) -> bool:
        """Whether the fence is the caller's, as it was committed last."""
        right, row = self.right, self.database.fence.get(self.right.lane)
        return (
            row is not None
            and row.epoch == right.epoch
            and row.token == right.token
            and row.lanes == right.lanes
        )

    def rows(self, ids: list[int]) -> list[Row]:
        """Returns the rows with these ids that still carry the caller's leader id, by the snapshot."""
        found = (self.database.rows.get(number) for number in sorted(ids))
        return [row for row in found if row is not None and self.keeps(row)]

    def keeps(self, row: Row) -> bool:
        return bool(row.leader == self.leader_id)

    def under_fence(self, rows: list[Row]) -> None:
        """Locks the fence if the statement does, checks it, and goes on to change ``rows``."""
        if self.share_lock and (row := self.database.fence.get(self.right.lane)):
            self.pause_then(lambda: row.lock.acquire(self, False, lambda: self._checked(rows)))
        elif self.held():  # by the snapshot, as the statement begins at this moment
            self.pause_then(lambda: self.lock_rows(rows, self.finish))
        else:
            self.refuse(LOST)

    def _checked(self, rows: list[Row]) -> None:
        if self.held():
            self.pause_then(lambda: self.lock_rows(rows, self.finish))
        else:
            self.refuse(LOST)

    def still_current(self) -> bool:
        """Whether the fence is the caller's now that the statement takes effect; for the audit."""
        return Fenced.held(self)


class FenceWrite(Fenced):
    """A statement that changes the lane's row of the fence, which it locks."""

    def run(self) -> None:
        if self.held():
            row = self.database.fence[self.right.lane]
            self.pause_then(lambda: row.lock.acquire(self, True, self._check))
        else:
            self.refuse(LOST)

    def _check(self) -> None:
        if self.held():
            self.finish()
        else:
            self.refuse(LOST)


class AroundLocked(Fenced):
    """A statement that waits only for a while for rows that others have locked, and then goes on without."""

    waited = False

    def skips(self, row: Row) -> bool:
        return self.waited

    def wait_for(self, lock: Lock | Row) -> None:
        """Waits for a row only for a while."""
        if isinstance(lock, Row):
            self.waiting = True
            self.database.scheduler.after(ROW_SECONDS, self._unless_over, self._go_on)
        else:
            super().wait_for(lock)

    def _go_on(self) -> None:
        if self.waiting:
            self.waited = True
            self.lock_on()

    def left(self, ids: list[int]) -> list[int]:
        """Returns those of the rows that others have locked, and that still carry the leader id."""
        mine = {row.id for row in self.locked}
        left = [row.id for row in Fenced.rows(self, ids) if row.id not in mine]
        self.database.audit.counts["rows that others had locked"] += len(left)
        return left

    def deleted(self, rows: list[Row]) -> list[Row]:
        """Returns those of the rows that it deletes: all but those that a trigger keeps."""
        for row in [row for row in rows if row.kept]:
            self.database.audit.kept(self.session, row.serial)
        return [row for row in rows if not row.kept]


class Choosing(Fenced):
    """A statement that takes the lane's earliest rows.

    Args:
        limit: How many at most.
        start: The id to start from if the releases are ``releases``.
        releases: What the caller has seen of them last.
        max_bytes: How many bytes the rows may have. One that has more is taken without its value.
    """

    def __init__(
        self, common: Common, limit: int, start: int, releases: int, *, max_bytes: int = UNBOUNDED
    ) -> None:
        super().__init__(common)
        self.limit = limit
        self.max_bytes = max_bytes
        self.start_id = start
        self.releases = releases
        self._found = 0
        self._reading = False
        self._seen: int | None = None

    def leaves_out(self, row: Row) -> bool:
        """Whether a row is not to be taken, by the snapshot."""
        return row.key in self.database.parked

    def taken(self) -> list[Row]:
        """Returns the rows that the reply will have."""
        raise NotImplementedError

    def choose(self) -> list[Row]:
        """Returns the rows to take, by the snapshot."""
        database, right = self.database, self.right
        if (fence := database.fence.get(right.lane)) and fence.releases != self.releases:
            self.start_id, self._seen = FIRST, fence.releases
        chosen: list[Row] = []
        size = 0
        rows, lane, lanes = database.rows, right.lane, right.lanes
        ids = database.ids
        for number in ids[bisect_left(ids, self.start_id) :]:
            row = rows[number]
            if row.bucket % lanes == lane and not self.leaves_out(row):
                chosen.append(row)
                size += row.size if row.size <= self.max_bytes else 0
                if size > self.max_bytes:
                    chosen.pop()
                    break
                if len(chosen) >= self.limit:
                    break
        self._found = len(chosen)
        return chosen

    def finish(self) -> None:
        """Commits once the client has read what does not fit into the buffers between."""
        client = self.client
        size = self.bytes_of(self.taken())
        if size <= BUFFERED_BYTES or client is None or (client.alive and not client.paused):
            super().finish()
        elif client.alive:
            self.database.audit.counts["servers that waited for a client"] += 1
            self.database.scheduler.after(CLIENT_SECONDS, self._end_session)
            self._reading = True
            client.do(self._read)
        else:
            self.abort()

    def bytes_of(self, rows: list[Row]) -> int:
        """Returns how many bytes rows have in the reply."""
        return sum(row.size for row in rows if row.size <= self.max_bytes)

    def _read(self) -> None:
        self._reading = False
        if not self.over:
            super().finish()

    def _end_session(self) -> None:
        if self._reading:
            self.abort()

    def record(self, row: Row) -> MarkedRecord:
        """Returns a row as the reply has it."""
        return record_of(self.database, row, self.max_bytes)


def record_of(database: Database, row: Row, max_bytes: int = UNBOUNDED) -> MarkedRecord:
    """Returns a row as replies have it: without its value if it has too many bytes."""
    if row.size > max_bytes:
        return MarkedRecord(row.id, row.topic, row.key, None, timestamp_ms=row.serial, fault="too large")
    size, faulty = row.size - len(row.key), database.audit.entries[row.serial].refusals >= FAULTY
    value = VALUES.get(size) or VALUES.setdefault(size, size * "v")
    fault = "no message" if faulty else None
    return MarkedRecord(row.id, row.topic, row.key, value, timestamp_ms=row.serial, fault=fault)


def names(batches: Iterable[Batch], row: Row) -> bool:
    """Whether a row is of one of some batches: it has one of its ids, and is not younger."""
    return any(
        first <= row.id <= last and (not batch.newest or row.created <= float(batch.newest))
        for batch in batches
        for first, last in batch.runs
    )
