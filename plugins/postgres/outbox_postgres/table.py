"""One connection to an outbox table: mark, purge, reset, advance, park, and the fence."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from outbox_api import (
    UNBOUNDED,
    Advanced,
    Batch,
    Changed,
    ColumnIs,
    Fence,
    MarkedRecord,
    Origin,
    Outline,
    Poison,
    TransactionalLane,
)
from outbox_api.portable.given_ids import refused_ids
from outbox_api.portable.intake_table import WaitingRows
from outbox_api.portable.notes import random_identity
from outbox_api.portable.outlining import Outlining
from outbox_api.portable.rows import storable
from outbox_api.portable.statements import Statements as PortableStatements
from outbox_api.portable.table import ColdTable
from outbox_api.seams.fence import lost_token, token_step, unexpected_token

from outbox_postgres import statements
from outbox_postgres.batches import Batches
from outbox_postgres.catalogue import Catalogue
from outbox_postgres.keeping import keeping, positions_behind
from outbox_postgres.layout import Layout
from outbox_postgres.marking import Marking, Releasing, Wanted
from outbox_postgres.parking_statements import ParkingStatements
from outbox_postgres.scan_starts import ScanStarts
from outbox_postgres.session import Session
from outbox_postgres.sources import sources
from outbox_postgres.view import PostgresView

log = logging.getLogger("outbox.postgres")

STALLED_AFTER = 3.0
"""Seconds after which a bump ends a session that holds the fence and whose client does not read.

A bump looks for such sessions after it has waited for its lock until the time-out.
"""


class PostgresTable(PostgresView, ColdTable):
    """The ``OutboxTable`` of PostgreSQL. Made by ``PostgresDialect.connect``."""

    def __init__(
        self,
        session: Session,
        layout: Layout,
        eligible: Sequence[ColumnIs],
        *,
        intakes: Sequence[WaitingRows] = (),
        origin: Origin | None = None,
    ) -> None:
        super().__init__(session, layout, intakes=intakes, origin=origin)
        self._connection = session.connection
        kept = keeping(layout)
        self._fencing = statements.Statements(layout.tables, kept)
        self._parks = ParkingStatements(layout.tables, binary=layout.binary)
        taken_from = sources(layout.outbox, eligible, layout.indexed)
        self._starts = starts = ScanStarts(session, layout, taken_from[0])
        self._marks = Marking(session, layout, starts, taken_from)
        self._batches = Batches(session, layout, starts, taken_from, kept)
        self._releasing = Releasing(session, layout, self._fencing)
        self._sourced = bool(eligible)
        read = PortableStatements(session.idiom, layout.tables, eligible, extras=layout.extras)
        self._outlining = Outlining(session, read, "MAX(create_time)::text")

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        """Makes the caller the leader: raises every lane's token durably."""
        self._refuse_ids_behind()
        self.identity()
        with self._numbered.translated("raise the fence's token"):
            try:
                return self._raise(lanes, holder, expected)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
                if not self._end_stalled():
                    raise
            return self._raise(lanes, holder, expected)

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        """Starts a lane: raises its epoch."""
        rows = self._numbered.rows(
            self._fencing.enter, (self._layout.name, lane, lanes, token), "enter a lane"
        )
        if not rows:
            raise lost_token(lane, lanes, token)
        epoch, identity = rows[0]
        return Fence(lane, lanes, token, epoch, identity)

    def mark(  # noqa: PLR0917 - the contract's
        self,
        fence: Fence,
        leader_id: UUID,
        limit: int,
        max_bytes: int = UNBOUNDED,
        excluded_keys: Collection[str] = (),
        source: int = 0,
        excluded_topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        """Claims the lane's earliest rows in one statement that holds the fence against a bump."""
        keys, topics = frozenset(excluded_keys), frozenset(excluded_topics)
        wanted = Wanted(limit, max_bytes, keys, source if self._sourced else 0, topics)
        taken = self._marks.mark(fence, leader_id, wanted)
        if taken is None:
            raise fence.lost()
        return taken.records

    def advance(  # noqa: PLR0917 - as above
        self,
        fence: Fence,
        finished: Sequence[Batch],
        pending: Sequence[Batch],
        limit: int,
        max_bytes: int = UNBOUNDED,
        source: int = 0,
        excluded_keys: Collection[str] = (),
        excluded_topics: Collection[str] = (),
        dated: bool = False,
    ) -> Advanced:
        """Deletes batches and selects the next in one statement that holds the fence, durably.

        Where nothing is finished, it only reads.
        """
        source = source if self._sourced else 0
        excluded = (frozenset(excluded_keys), frozenset(excluded_topics))
        return self._batches.advance(fence, finished, pending, limit, max_bytes, source, *excluded, dated)

    def outline(self, fence: Fence, after: int, limit: int, topics: Sequence[str]) -> Outline:
        """Reads ids, topics and keys of rows that wait."""
        return self._outlining.read(fence, after, limit, topics)

    def supersede(self, fence: Fence, batch: Batch) -> int:
        """Deletes rows that need not be delivered in one statement that holds the fence, durably."""
        return self._batches.supersede(fence, batch)

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns the rows of a batch that are still in the outbox."""
        return self._batches.rows(batch)

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        """Stores durably that the lane publishes in transactions and how, or that it no longer does."""
        doing = "note who publishes in transactions"
        note = (noted.lanes, noted.sender, noted.location) if noted else (0, "", "")
        if not self._numbered.rows(
            self._fencing.set_transactional, (*self._layout.held(fence), *note), doing
        ):
            raise fence.lost()

    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Deletes rows that still carry ``leader_id``, durably, around those that others have locked."""
        return self._releasing.purge(fence, leader_id, ids)

    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Clears the leader id of rows that still carry ``leader_id``, durably, as it purges."""
        self._starts.released()
        return self._releasing.reset(fence, leader_id, ids)

    def park(
        self, fence: Fence, leader_id: UUID | None, poisons: Sequence[Poison], ids: Sequence[int] = ()
    ) -> Changed:
        """Parks the keys of poisonous records in one statement that holds the fence, durably.

        A dead letter whose id was given out anew, as after ``TRUNCATE … RESTART IDENTITY``, keeps its content
        and gets a negative id.
        """
        self._starts.released()
        heads = [poison.id for poison in poisons]
        reasons = [storable(poison.reason, self._session.encoding) for poison in poisons]
        poisonous = (heads, reasons, [poison.attempts for poison in poisons])
        id_conflicts = self._numbered.rows(
            self._parks.id_conflicts, (self._layout.name, heads, leader_id), "park"
        )
        if not id_conflicts:
            return self._park(fence, leader_id, ids, poisonous)
        with self._numbered.translated("park"), self._connection.transaction():
            # Before the fence, as a release does: those who lock both lock them in one order.
            self._numbered.send(self._fencing.hold_note, (self._layout.name,))
            self._numbered.send(
                self._parks.move_conflicts, (self._layout.name, [row[0] for row in id_conflicts])
            )
            return self._park(fence, leader_id, ids, poisonous)

    def heartbeat(self, fence: Fence, metrics: Mapping[str, Any]) -> None:
        """Writes the lane's metrics."""
        if not self._numbered.rows(
            self._fencing.heartbeat,
            (*self._layout.held(fence), json.dumps(dict(metrics))),
            "write a heartbeat",
        ):
            raise fence.lost()

    def _refuse_ids_behind(self) -> None:
        """Raises an error if a copy was made without the sequences of its ids, or of what is kept."""
        layout, catalogue = self._layout, Catalogue(self._connection)
        with self._numbered.translated("compare the ids with their sequence"):
            if seen := catalogue.ids_behind(self._numbered, layout.outbox, layout.oid, self._origin):
                raise refused_ids(layout.outbox, seen, catalogue.last_id_cure(layout.oid))
        if layout.keep and (found := positions_behind(self._session, layout)):
            raise refused_ids(layout.outbox, found.message, found.cure)

    def _raise(self, lanes: int, holder: str, expected: int | None) -> int:
        with self._connection.transaction():
            # Serializes bumps even while there are no lanes; their rows alone would let two first leaders
            # read the same maximum.
            self._numbered.send(self._fencing.hold_note, (self._layout.name,))
            identities = [random_identity() for _ in range(lanes)]
            stored = storable(holder, self._session.encoding)
            parameters = (self._layout.name, lanes, stored, token_step(), expected, identities)
            rows = self._numbered.send(self._fencing.bump, parameters).fetchall()
            if not rows:
                raise unexpected_token(expected)
        return int(rows[0][0])

    def _end_stalled(self) -> bool:
        # The bump ends these leaders in any case.
        ended = self._numbered.send(
            statements.END_STALLED, (str(self._layout.fence), STALLED_AFTER, str(self._layout.tables.notes))
        ).fetchall()
        for pid, application, address, _ in ended:
            where = f" at {address}" if address else ""
            log.warning(
                "ended server process %s (%s%s), which held the fence while its client did not read",
                *(pid, application, where),
            )
        return bool(ended)

    def _park(
        self,
        fence: Fence,
        leader_id: UUID | None,
        ids: Sequence[int],
        poisonous: tuple[object, ...],
    ) -> Changed:
        parking, layout = self._parks, self._layout
        if leader_id:
            sql = (parking.park, parking.park_free)
            return self._releasing.change(sql, fence, leader_id, ids, "park", *poisonous)
        parameters = (*layout.held(fence), None, "{}", *poisonous)
        rows = self._numbered.rows(parking.park_unmarked, parameters, "park")
        if not rows:
            raise fence.lost()
        return Changed(int(rows[0][0]))
