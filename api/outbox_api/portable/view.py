"""One connection to a portable outbox: what operators and monitors look at."""
# ruff: noqa: S608 - names come quoted from the idiom, and every other value is a parameter

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from outbox_api.base.errors import DriverError
from outbox_api.base.record import MarkedRecord
from outbox_api.portable.keeping import Keep
from outbox_api.portable.notes import Takeovers
from outbox_api.portable.outboxes import MemberRow, MemberStatements, read_members
from outbox_api.portable.pauses import Pausing
from outbox_api.portable.rows import records
from outbox_api.portable.session import Session
from outbox_api.portable.sources import Source, sources
from outbox_api.portable.statements import Statements
from outbox_api.portable.tables import Tables
from outbox_api.portable.waits import Waits
from outbox_api.seams.affinity import ColumnIs, Origin, Takeover
from outbox_api.seams.fence import Fence, LaneStatus, TransactionalLane
from outbox_api.seams.outbox_view import (
    MAX_COUNTED,
    Backlog,
    OldSnapshot,
    OriginBacklog,
    Upkeep,
    WaitingGroup,
    WaitingKey,
)
from outbox_api.seams.parking import Parked
from outbox_api.seams.pausing import Pause

if TYPE_CHECKING:
    from outbox_api.portable.intake_table import (
        WaitingRows,  # which a look at an outbox without one needs not
    )


class Origins:
    """Counts the rows of each cluster, within the caller's transaction, by the index of the column."""

    def __init__(self, session: Session, sql: Statements, origin: Origin, indexes: Mapping[str, str]) -> None:
        self._session = session
        [source] = sources(session.idiom, [ColumnIs(origin.column, origin.own)], indexes)
        self.statements = OriginStatements(sql, source)

    def backlogs(self) -> list[OriginBacklog]:
        """Returns how many rows of each cluster there are, ordered by cluster."""
        return [found for cluster in self._clusters() if (found := self._backlog(cluster))]

    def spread(self) -> int:
        """Returns how many rows there are at most, by the ranges of each cluster's ids."""
        ranges = [self._session.fetch(self.statements.spread, eligible=each)[0] for each in self._clusters()]
        return sum(int(last) - int(first) + 1 for first, last in ranges if first is not None)

    def _clusters(self) -> Iterator[Any]:
        """Leaps from each cluster to the next: one look into the index for each."""
        statement, values = self.statements.first, dict[str, Any]()
        while (found := self._session.fetch(statement, **values)[0][0]) is not None:
            yield found
            statement, values = self.statements.next, {"eligible": found}

    def _backlog(self, cluster: Any) -> OriginBacklog | None:
        [(count,)] = self._session.fetch(self.statements.count, eligible=cluster, limit=MAX_COUNTED + 1)
        head = self._session.fetch(self.statements.oldest, eligible=cluster)
        if not head:
            return None  # they are gone by now
        records, age = int(count), head[0][0]
        return OriginBacklog(
            cluster=int(cluster),
            records=min(max(records, 1), MAX_COUNTED),
            exact=records <= MAX_COUNTED,
            oldest=0.0 if age is None else max(0.0, float(age)),
        )


class OriginStatements:
    """The statements about rows of the cluster ``{eligible}``.

    Attributes:
        first: Returns the lowest number of a cluster, or null.
        next: Returns the next higher number, or null.
        count: Counts rows of a cluster, up to ``{limit}``.
        oldest: Returns the age of the cluster's row with the lowest id.
        spread: Returns the cluster's lowest and highest id, or nulls.
    """

    def __init__(self, sql: Statements, source: Source) -> None:
        idiom, seen = sql.idiom, sql.seen_by(source)
        column, own = source.column, source.condition
        self.first = f"SELECT MIN({column}) FROM {seen}"
        self.next = f"{self.first} WHERE {column} > {{eligible}}"
        sample = idiom.limit(f"SELECT id FROM {seen} WHERE {own} ORDER BY {source.order}", "{limit}")
        self.count = f"SELECT COUNT(*) FROM ({sample}) counted"
        age = idiom.age_seconds("create_time")
        self.oldest = idiom.limit(f"SELECT {age} FROM {seen} WHERE {own} ORDER BY {source.order}", "1")
        self.spread = f"SELECT MIN(id), MAX(id) FROM {seen} WHERE {own}"


def read_upkeep(session: Session) -> Upkeep:
    """Returns what waits to be removed; all of it is unknown if the idiom has no queries."""
    queries = session.idiom.upkeep
    if queries is None:
        return Upkeep()
    dead = next((rows[0][0] for query in queries.dead if (rows := _permitted(session, query))), None)
    found = _permitted(session, queries.snapshot)
    snapshot = OldSnapshot(str(found[0][0]), float(found[0][1])) if found else None
    number = None if dead is None else int(dead)
    return Upkeep(number, queries.unit, snapshot=snapshot, visible=found is not None)


def _permitted(session: Session, query: str) -> Sequence[Sequence[Any]] | None:
    """Returns the rows of a query, or ``None`` if the user may not send it."""
    try:
        return session.query("look for old snapshots", query)
    except DriverError as error:
        if error.retryable:
            raise
        return None


def read_lane_statuses(session: Session, sql: Statements) -> list[LaneStatus]:
    """Returns what the fence stores about each lane of an outbox; see ``PortableView.lane_statuses``."""
    rows = session.query("read the fence", sql.lane_statuses, name=sql.name)
    moment, text = session.idiom.read_timestamp, session.idiom.read_text
    return [
        LaneStatus(
            fence=Fence(lane=int(lane), lanes=int(lanes), token=int(token), epoch=int(epoch)),
            holder=text(holder) or "",
            since=moment(since),
            heartbeat_at=None if heartbeat_at is None else moment(heartbeat_at),
            age=None if age is None else float(age),
            metrics=json.loads(text(metrics) or "{}"),
        )
        for lane, lanes, token, epoch, holder, since, heartbeat_at, age, metrics in rows
    ]


class PortableView:
    """A connection that looks at one outbox, its fence and its dead letters; used by one thread at a time.

    Nothing here writes, locks or creates anything; the right to SELECT is enough.

    Every method raises ``DriverError`` if the database refuses or cannot be reached. After a retryable one
    the connection may be broken: close it and connect anew. A call on a connection that somebody has closed
    raises a retryable one, too.

    Args:
        session: The connection.
        tables: The tables of the outbox, which itself has its schema as far as it is known.
        eligible: Conditions of which one must hold for a row to be marked.
        origin: How rows tell where they were written; ``None`` if they do not.
        indexes: Column → name of an index of this column and ``id``, where there is one.
        intakes: The rows of other tables that are still to be taken in.
        extras: The columns for partition and timestamp that the outbox has.
        keep: Which rows a purge keeps; ``None`` for none.
    """

    def __init__(
        self,
        session: Session,
        tables: Tables,
        eligible: Sequence[ColumnIs] = (),
        *,
        origin: Origin | None = None,
        indexes: Mapping[str, str] = MappingProxyType({}),
        intakes: Sequence[WaitingRows] = (),
        extras: Sequence[str] = (),
        keep: Keep | None = None,
    ) -> None:
        self._session = session
        self._idiom = session.idiom
        self._tables = tables
        self._keep = keep
        self._outbox = tables.outbox
        self._origin = origin
        self._sql = Statements(session.idiom, tables, eligible, indexes=indexes, extras=extras, keep=keep)
        self._name = self._sql.name
        self._intakes = intakes
        self._origins = Origins(session, self._sql, origin, indexes) if origin else None
        self._takeovers = Takeovers(session, self._sql)
        self._pausing = Pausing(session, self._sql)
        self._waits = Waits(session, self._sql)

    @property
    def name(self) -> str:
        """The outbox's name with its schema, as the database knows it, however it was configured."""
        return self._name

    def known_identity(self) -> str | None:
        """Returns what :meth:`OutboxTable.identity` created; ``None`` before it is first asked for."""
        rows = self._session.query("read the outbox's identity", self._sql.identity, name=self._name)
        return str(rows[0][0]) if rows and rows[0][0] else None

    def parked(self) -> Parked:
        """Returns how much is parked; reads the parked keys only."""
        [(keys, oldest)] = self._session.query("read the parked keys", self._sql.parked, name=self._name)
        return Parked(keys=int(keys), oldest=None if oldest is None else float(oldest))

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        """Returns the lanes that publish in transactions, as they may still after a crash.

        Returns:
            Lane → what was stored about it, ordered by lane. May contain lanes that no longer exist.
        """
        rows = self._session.query(
            "read who publishes in transactions", self._sql.transactional_lanes, name=self._name
        )
        text = self._idiom.read_text
        return {
            int(lane): TransactionalLane(int(lanes), text(sender) or "", text(location) or "")
            for lane, lanes, sender, location in rows
        }

    def lane_statuses(self) -> list[LaneStatus]:
        """Returns what the fence stores about each lane, ordered by lane; empty before the first leader."""
        return read_lane_statuses(self._session, self._sql)

    def members(self) -> Sequence[MemberRow]:
        """Returns the rows of the members that have not left, of whatever group; see ``PortableMembers``."""
        rows = read_members(self._session, MemberStatements(self._sql))
        return [row for row in rows if row.leads is not None]

    def backlog(self, paused: Collection[str] = ()) -> Backlog:
        """Returns how many records wait, without a full scan of a large table.

        Args:
            paused: Topics of which no record counts as the oldest; those before the first other are read.
        """
        with self._session.transaction("read the backlog", reads=True):
            count = int(self._session.fetch(self._sql.count, limit=MAX_COUNTED + 1)[0][0])
            rows = self._fetch_oldest(paused)
            # A timestamp that cannot be read has no age.
            oldest = float(rows[0][0]) if rows and rows[0][0] is not None else None
            to_take_in = sum(each.waiting(MAX_COUNTED + 1) for each in self._intakes)
            return Backlog.of(count, to_take_in, oldest, self._id_range)

    def waiting(self) -> Mapping[str, int]:
        """Returns how many of the first ``MAX_COUNTED`` rows each topic has."""
        return self._waits.by_topic()

    def waiting_groups(self, most: int) -> tuple[list[WaitingGroup], list[WaitingGroup]]:
        """Returns what the first ``MAX_COUNTED`` rows are: by topic, and by topic and key.

        Args:
            most: How many groups of each kind, those with the most rows first.
        """
        return self._waits.groups(most)

    def waiting_key(self, most: int, key: str | None = None, of: int = 0) -> WaitingKey:
        """Returns the rows of a key, ``most`` of them with what they are; may read the whole table.

        Args:
            most: How many rows are told.
            key: The key, whole; ``None`` for that of the row ``of``.
            of: The id of a row of the key.
        """
        return self._waits.of_key(most, key, of)

    def peek(self, after: int, limit: int) -> list[MarkedRecord]:
        """Returns rows as they were committed, marked or not, also those of parked keys.

        Who reads on from the last row's id finds all that was there when he began, and is still there; of
        what is written meanwhile, some. Rows that an intake has yet to take in are left out.

        Returns:
            The rows, ordered by id, each with when it was created, by the database's clock; one that can be
            no message carries a fault.
        """
        with self._session.transaction("look at rows", reads=True):
            now = self._session.now().timestamp()
            return records(self._session.fetch(self._sql.peek, after=after, limit=limit), self._idiom, now)

    def origins(self) -> list[OriginBacklog]:
        """Returns how many records of each cluster of origin wait, without a full scan of a large table.

        Returns:
            One element for each cluster of which there are rows, ordered by cluster; also for clusters that
            nobody serves. Empty if the options name no :class:`outbox_api.Origin`.
        """
        if self._origins is None:
            return []
        with self._session.transaction("read the backlog of each cluster", reads=True):
            return self._origins.backlogs()

    def takeovers(self) -> list[Takeover]:
        """Returns the deliberate takeovers that have begun and not ended, ordered by cluster."""
        return self._takeovers.read()

    def pauses(self) -> list[Pause]:
        """Returns what is paused at this moment, the whole outbox first and then by topic."""
        return self._pausing.read()

    def now(self) -> datetime:
        """Returns the present time by the database's clock, with a time zone."""
        return self._session.ask_time()

    def upkeep(self) -> Upkeep:
        """Returns what waits to be removed from the outbox, and which old snapshot prevents it.

        Reads no rows of the outbox. What the database does not tell, or not this user, is missing in the
        result and no error.
        """
        return read_upkeep(self._session)

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        self._session.close()

    def _fetch_oldest(self, paused: Collection[str]) -> Sequence[Sequence[Any]]:
        without, values = self._sql.without((), sorted(paused))
        return self._session.fetch(self._sql.oldest(without), name=self._name, **values)

    def _id_range(self) -> int:
        if self._origins:
            return self._origins.spread()  # the ids of several writers may be far apart
        first, last = self._session.fetch(self._sql.spread)[0]
        return 0 if first is None else int(last) - int(first) + 1
