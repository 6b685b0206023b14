"""What lanes and leaders ask of the database, statement by statement, as PostgreSQL's dialect does it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from outbox_postgres.settled import FIRST
from outbox_sdk import UNBOUNDED, Fence, MarkedRecord

from .database import LOST, Database, Transaction
from .tables import Row
from .trail import FAULTY, Session

Common = tuple[Database, Session, Fence, Any]
"""The database, whose the statement is, the fence it is checked against, and the leader id it carries."""


@dataclass(slots=True)
class Marked:
    """The reply to a mark.

    Attributes:
        records: What it marked, ordered by id.
        found: How many rows it found to mark.
        releases: The releases it saw, or ``None`` when the caller knows them.
        purged: How many rows it deleted; only an advance does.
        bytes: How many bytes the reply has.
    """

    records: list[MarkedRecord]
    found: int
    releases: int | None
    purged: int = 0
    bytes: int = 0


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


class Mark(Fenced):
    """Claims the earliest rows that are not the caller's. Its commit is not durable.

    Args:
        limit: How many at most.
        start: The id to start from if the releases are ``releases``.
        releases: What the caller has seen of them last.
        excluded: Keys of which nothing is claimed.
        max_bytes: How many bytes the claimed rows may have. One that has more is claimed without its value.
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
        super().__init__(common)
        self.limit = limit
        self.max_bytes = max_bytes
        self.excluded = excluded
        self.start_id = start
        self.releases = releases
        self.left_out: frozenset[Any] = frozenset((self.leader_id,))
        self._found = 0
        self._reading = False
        self._seen: int | None = None

    def keeps(self, row: Row) -> bool:
        """Behind a wait only the id is looked at again, as in ``UPDATE … WHERE id = ANY``."""
        return True

    def leaves_out(self, row: Row) -> bool:
        """Whether a row's key is parked, by the snapshot, or excluded."""
        return row.key in self.database.parked or row.key in self.excluded

    def run(self) -> None:
        self.under_fence(self.choose())

    def choose(self) -> list[Row]:
        database, right = self.database, self.right
        if (fence := database.fence.get(right.lane)) and fence.releases != self.releases:
            self.start_id, self._seen = FIRST, fence.releases
        chosen: list[Row] = []
        size = 0
        rows, left_out, lane, lanes = database.rows, self.left_out, right.lane, right.lanes
        ids = database.ids
        for number in ids[bisect_left(ids, self.start_id) :]:
            row = rows[number]
            if row.leader not in left_out and row.bucket % lanes == lane and not self.leaves_out(row):
                chosen.append(row)
                size += row.size if row.size <= self.max_bytes else 0
                if size > self.max_bytes:
                    chosen.pop()
                    break
                if len(chosen) >= self.limit:
                    break
        self._found = len(chosen)
        return chosen

    def apply(self) -> Marked:
        self.database.logged([(row, row.leader, False) for row in self.locked], durable=self.durable)
        return self.claim(self.locked)

    def claim(self, rows: list[Row]) -> Marked:
        """Writes the leader id into rows, and returns the reply."""
        database, session = self.database, self.session
        current = self.still_current()
        for row in rows:
            database.audit.fenced_write(session, self.verb, current=current, key=row.key)
            database.audit.marked(session, row.id, row.key, parked=row.key in database.parked)
            row.leader = self.leader_id
        size = sum(row.size for row in rows if row.size <= self.max_bytes)
        return Marked([self._record(row) for row in rows], self._found, self._seen, bytes=size)

    def finish(self) -> None:
        """Commits once the client has read what does not fit into the buffers between."""
        client = self.client
        size = sum(row.size for row in self.locked if row.size <= self.max_bytes)
        if size <= BUFFERED_BYTES or client is None or (client.alive and not client.paused):
            super().finish()
        elif client.alive:
            self.database.audit.counts["servers that waited for a client"] += 1
            self.database.scheduler.after(CLIENT_SECONDS, self._end_session)
            self._reading = True
            client.do(self._read)
        else:
            self.abort()

    def _read(self) -> None:
        self._reading = False
        if not self.over:
            super().finish()

    def _end_session(self) -> None:
        if self._reading:
            self.abort()

    def _record(self, row: Row) -> MarkedRecord:
        if row.size > self.max_bytes:
            return MarkedRecord(row.id, "t", row.key, None, fault="too large")
        size, faulty = row.size - len(row.key), self.database.audit.entries[row.id].refusals >= FAULTY
        value = VALUES.get(size) or VALUES.setdefault(size, size * "v")
        return MarkedRecord(row.id, "t", row.key, value, fault="no message" if faulty else None)


class Purge(Fenced):
    """Deletes rows that still carry the caller's leader id."""

    verb = "purge"

    def __init__(self, common: Common, ids: list[int]) -> None:
        super().__init__(common)
        self.ids = ids

    def run(self) -> None:
        self.under_fence(self.rows(self.ids))

    def apply(self) -> int:
        database, session = self.database, self.session
        for row in self.locked:
            told = row.id in session.trail.acked
            database.audit.purged(session, row.id, owned=row.leader == self.leader_id, told=told)
            database.remove(row)
        for number in self.ids:
            database.audit.settled(session, number)
        database.logged([(row, row.leader, True) for row in self.locked], durable=self.durable)
        return len(self.locked)


class Reset(Fenced):
    """Clears the leader id of rows that still carry the caller's."""

    verb = "reset"

    def __init__(self, common: Common, ids: list[int]) -> None:
        super().__init__(common)
        self.ids = ids

    def run(self) -> None:
        self.under_fence(self.rows(self.ids))

    def apply(self) -> int:
        for row in self.locked:
            self.database.audit.reset(self.session, row.id, owned=row.leader == self.leader_id)
            row.leader = None
        self.database.logged([], durable=True)
        return len(self.locked)


class Park(Reset):
    """Parks the keys of heads that still carry the caller's leader id, and resets them and their tails."""

    verb = "park"
    share_lock = True

    def __init__(self, common: Common, heads: list[int], ids: list[int]) -> None:
        super().__init__(common, ids)
        self.heads = frozenset(heads)

    def apply(self) -> int:
        database = self.database
        heads = [row for row in self.locked if row.id in self.heads]
        current = self.still_current()
        for row in heads:
            database.audit.fenced_write(self.session, "park", current=current, key=row.key)
            database.parked[row.key] = row.id
            database.audit.parks(self.session, row.id)
        super().apply()
        return len(heads)


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
