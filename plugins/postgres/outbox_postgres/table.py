"""One connection to an outbox table: mark, purge, reset, advance, park, and the fence."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from outbox_sdk import (
    UNBOUNDED,
    Advanced,
    Batch,
    Changed,
    Condition,
    Fence,
    MarkedRecord,
    Origin,
    Poison,
    TransactionalLane,
)
from outbox_sdk.fence import lost_token, perhaps_renamed, token_step, unexpected_token

from outbox_postgres import statements
from outbox_postgres.batches import Batches
from outbox_postgres.data_source import DataSource
from outbox_postgres.intake import PostgresIntake
from outbox_postgres.layout import Layout
from outbox_postgres.marking import Marking, Wanted
from outbox_postgres.releasing import Releasing
from outbox_postgres.session import Session
from outbox_postgres.sources import sources
from outbox_postgres.sql_ascii import stored
from outbox_postgres.starts import Starts
from outbox_postgres.view import PostgresView, digits

log = logging.getLogger("outbox.postgres")

STALLED_AFTER = 3.0
"""Seconds after which a bump ends a session that holds the fence and whose client does not read.

A bump looks for such sessions after it has waited for its lock until the time-out.
"""


class PostgresTable(PostgresView):
    """The ``OutboxTable`` of PostgreSQL. Made by ``PostgresDialect.connect``."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        source: DataSource,
        layout: Layout,
        eligible: Sequence[Condition],
        *,
        prepare: bool,
        intake: PostgresIntake | None = None,
        origin: Origin | None = None,
    ) -> None:
        session = Session(connection, source, prepare=prepare)
        super().__init__(session, layout, intake=intake, origin=origin)
        self._connection = connection
        taken_from = sources(layout.outbox, eligible, layout.indexed)
        self._starts = starts = Starts(session, layout, taken_from[0])
        self._marks = Marking(session, layout, starts, taken_from)
        self._batches = Batches(session, layout, starts, taken_from)
        self._releasing = Releasing(session, layout, self._sql)
        self._sourced = bool(eligible)
        self._intake = intake

    def identity(self) -> str:
        """Returns the outbox's identity; the first call creates it."""
        while (known := self._known()) is None:
            with self._session.translated("draw the outbox's identity"):
                self._session.execute(self._sql.identify, (self._layout.name,))
        return known

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        """Makes the caller the leader: raises every lane's token durably."""
        self._known()
        with self._session.translated("raise the fence's token"):
            try:
                return self._raise(lanes, holder, expected)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
                if not self._end_stalled():
                    raise
            return self._raise(lanes, holder, expected)

    def _known(self) -> str | None:
        """Returns the outbox's identity, if there is one; raises if it may have been renamed."""
        known = self.known_identity()
        if known is None and (former := self._session.fetch(self._sql.noted, (), "look at the fence")):
            layout, names = self._layout, [row[0] for row in former]
            raise perhaps_renamed(layout.name, names, layout.fence, layout.dead_letters)
        return known

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        """Starts a lane: raises its epoch."""
        rows = self._session.fetch(self._sql.enter, (self._layout.name, lane, lanes, token), "enter a lane")
        if not rows:
            raise lost_token(lane, lanes, token)
        attempt, identity = rows[0]
        return Fence(lane, lanes, token, attempt, digits(identity))

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
        self._take_in(fence, limit)
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
    ) -> Advanced:
        """Deletes batches and selects the next in one statement that holds the fence, durably.

        Where nothing is finished, it only reads.
        """
        if limit:
            self._take_in(fence, limit)
        source = source if self._sourced else 0
        excluded = (frozenset(excluded_keys), frozenset(excluded_topics))
        return self._batches.advance(fence, finished, pending, limit, max_bytes, source, *excluded)

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns the rows of a batch that are still in the outbox."""
        return self._batches.rows(batch)

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        """Stores durably that the lane publishes in transactions and how, or that it no longer does."""
        doing = "note who publishes in transactions"
        note = (noted.lanes, noted.sender, noted.location) if noted else (0, "", "")
        if not self._session.fetch(self._sql.set_transactional, (*self._layout.held(fence), *note), doing):
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
        reasons = [stored(self._connection, poison.reason) for poison in poisons]
        poisonous = (heads, reasons, [poison.attempts for poison in poisons])
        id_conflicts = self._session.fetch(
            self._parking.id_conflicts, (self._layout.name, heads, leader_id), "park"
        )
        if not id_conflicts:
            return self._park(fence, leader_id, ids, poisonous)
        with self._session.translated("park"), self._connection.transaction():
            # Before the fence, as a release does: those who lock both lock them in one order.
            self._session.execute(statements.FENCE_LOCK, (self._layout.name,))
            self._session.execute(
                self._parking.move_conflicts, (self._layout.name, [row[0] for row in id_conflicts])
            )
            return self._park(fence, leader_id, ids, poisonous)

    def forget_skipped(self, age: float, limit: int) -> int:
        """Deletes dead letters that were skipped long ago."""
        doing = "delete skipped dead letters"
        return len(self._session.fetch(self._parking.forget_skipped, (self._layout.name, age, limit), doing))

    def heartbeat(self, fence: Fence, reading: Mapping[str, Any]) -> None:
        """Writes the lane's metrics."""
        if not self._session.fetch(
            self._sql.heartbeat, (*self._layout.held(fence), json.dumps(dict(reading))), "write a heartbeat"
        ):
            raise fence.lost()

    def begin_takeover(self, cluster: int, reason: str) -> bool:
        """Stores durably that a takeover has begun."""
        return self._clusters.begin(cluster, reason)

    def end_takeover(self, cluster: int) -> bool:
        """Stores durably that a takeover has ended."""
        return self._clusters.end(cluster)

    def _raise(self, lanes: int, holder: str, expected: int | None) -> int:
        with self._connection.transaction():
            # Serializes bumps even while there is no row to lock; rows alone would let two first
            # leaders read the same maximum.
            self._session.execute(statements.FENCE_LOCK, (self._layout.name,))
            parameters = (self._layout.name, lanes, stored(self._connection, holder), token_step(), expected)
            rows = self._session.execute(self._sql.bump, parameters).fetchall()
            if not rows:
                raise unexpected_token(expected)
        return int(rows[0][0])

    def _end_stalled(self) -> bool:
        # The bump ends these leaders in any case.
        ended = self._session.execute(
            statements.END_STALLED, (str(self._layout.fence), STALLED_AFTER)
        ).fetchall()
        for pid, application, address, _ in ended:
            where = f" at {address}" if address else ""
            log.warning(
                "ended server process %s (%s%s), which held the fence while its client did not read",
                *(pid, application, where),
            )
        return bool(ended)

    def _take_in(self, fence: Fence, limit: int) -> None:
        # One lane does it for all lanes, so that the rows keep their order.
        if self._intake and fence.lane == 0:
            self._intake.take(self._layout.held(fence), limit * fence.lanes)

    def _park(
        self,
        fence: Fence,
        leader_id: UUID | None,
        ids: Sequence[int],
        poisonous: tuple[object, ...],
    ) -> Changed:
        parking, layout = self._parking, self._layout
        if leader_id:
            sql = (parking.park, parking.park_free)
            return self._releasing.change(sql, fence, leader_id, ids, "park", *poisonous)
        parameters = (*layout.held(fence), None, "{}", *poisonous)
        rows = self._session.fetch(parking.park_unmarked, parameters, "park")
        if not rows:
            raise fence.lost()
        return Changed(int(rows[0][0]))
