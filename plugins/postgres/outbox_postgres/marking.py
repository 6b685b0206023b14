"""Marks rows over one connection: from which id, without which keys, and without locked rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import psycopg
from outbox_sdk import UNBOUNDED, Batch, Condition, Fence

from outbox_postgres.layout import Layout
from outbox_postgres.locked_rows import LockedRows
from outbox_postgres.marking_statements import MarkingStatements
from outbox_postgres.rows import Claimed, claimed
from outbox_postgres.session import Session
from outbox_postgres.settled import FIRST, Settled
from outbox_postgres.sql_ascii import readable, spelled
from outbox_postgres.statements import Statements

log = logging.getLogger("outbox.postgres")

_UNKNOWN = -1
"""A number of releases that no fence has."""

MAX_NAMED = 5
"""How many locked rows a message names."""


class Wanted(NamedTuple):
    """The parameters of a mark.

    Attributes:
        limit: How many rows at most.
        max_bytes: How many bytes at most.
        excluded: The keys to leave out.
    """

    limit: int
    max_bytes: int = UNBOUNDED
    excluded: frozenset[str] = frozenset()


class Marking:
    """Marks the rows of one outbox.

    Args:
        calls: The connection.
        layout: The outbox as found.
        statements: Its other statements.
        eligible: Conditions of which one must hold for a row to be marked.
    """

    def __init__(
        self, session: Session, layout: Layout, statements: Statements, eligible: Sequence[Condition]
    ) -> None:
        tables = (layout.outbox, layout.fence, layout.dead_letters)
        self.sql = MarkingStatements(*tables, eligible, extras=layout.extras)
        self.settled = Settled() if layout.sequence else None
        self._session = session
        self._layout = layout
        self._listing = statements.listing
        self._locked = LockedRows()
        # As the last mark saw them; a mark for another lane or leader id starts at the head in any case.
        self._releases = _UNKNOWN

    def mark(self, fence: Fence, leader_id: UUID, wanted: Wanted) -> Claimed | None:
        """Marks by one leader id; returns ``None`` when the fence is lost."""
        lane, bounded = fence.lanes > 1, wanted.max_bytes < UNBOUNDED
        statements = (self.sql.mark(lane=lane, bounded=bounded), self.sql.locked(lane=lane, batches=False))
        claimant = (fence.lane, fence.lanes, leader_id)
        return self._take(self._claim(statements, fence, leader_id, wanted, claimant), (), ())

    def advance(
        self,
        fence: Fence,
        finished: Sequence[Batch],
        leader_id: UUID,
        wanted: Wanted,
        pending: Sequence[UUID],
    ) -> Claimed | None:
        """Deletes batches and marks the next; returns ``None`` when the fence is lost."""
        lane, bounded = fence.lanes > 1, wanted.max_bytes < UNBOUNDED
        done = [batch.leader_id for batch in finished]
        statements = (
            self.sql.advance(len(done), lane=lane, bounded=bounded),
            self.sql.locked(lane=lane, batches=True),
        )
        left_out = [*done, *pending]
        more = ([*left_out, leader_id], *self.purged(finished))
        taken = self._claim(statements, fence, leader_id, wanted, fence, left_out, more)
        return self._take(taken, pending, (leader_id,))

    def finish(self, fence: Fence, finished: Sequence[Batch]) -> int | None:
        """Deletes batches; returns how many rows, or ``None`` when the fence is lost."""
        statement = self.sql.finish(len(finished))
        rows = self._session.fetch(statement, (*self.held(fence), *self.purged(finished)), "delete batches")
        if rows and self.settled:
            self.settled.finished([batch.leader_id for batch in finished])
        return rows[0][0] if rows else None

    def released(self) -> None:
        """Must be called when this connection frees rows."""
        if self.settled:
            self.settled.released()

    def held(self, fence: Fence) -> tuple[str, int, int, int, int]:
        """Returns a fence as statements compare it."""
        return (self._layout.name, fence.lane, fence.lanes, fence.token, fence.epoch)

    def purged(self, finished: Sequence[Batch]) -> list[object]:
        """Returns batches as statements delete them."""
        return [value for batch in finished for value in batch]

    def claim(self, fence: Fence, leader_id: UUID, wanted: Wanted, start: int) -> tuple[object, ...]:
        """Returns the parameters that all marks have."""
        limits = (wanted.limit, start, self._releases, self._spelled(wanted.excluded), wanted.max_bytes)
        return (*self.held(fence), leader_id, *limits, *self.sql.parameters)

    def _spelled(self, keys: frozenset[str]) -> list[str]:
        return spelled(keys, raw=self._layout.raw)

    def _claim(  # noqa: PLR0917 - what two kinds of mark differ in
        self,
        statements: tuple[str, str],
        fence: Fence,
        leader_id: UUID,
        wanted: Wanted,
        claimant: object,
        left_out: Sequence[UUID] = (),
        more: tuple[object, ...] = (),
    ) -> Claimed | None:
        mark, look = statements
        again = True
        while True:
            if self._locked.due():
                self._look_again()
            keys = wanted.excluded | self._locked.keys
            start = self._start(claimant, left_out, keys)
            parameters = (*self.claim(fence, leader_id, wanted._replace(excluded=keys), start), *more)
            with self._session.translated("mark"):
                try:
                    return claimed(self._session.execute(mark, parameters), raw=self._layout.raw)
                except psycopg.errors.LockNotAvailable:
                    if not again or not self._find_locked(look, parameters):
                        raise
            again = False

    def _start(self, claimant: object, left_out: Sequence[UUID], keys: frozenset[str]) -> int:
        if self.settled is None:
            return FIRST
        if self.settled.due():
            parameters = (self.settled.floor(), self._layout.sequence)
            [listed] = self._session.fetch(self._listing, parameters, "read the newest id")
            newest, holders, prepared = listed
            self.settled.listed(newest, holders, prepared=prepared)
        return self.settled.begin(claimant, left_out, keys)

    def _take(
        self, taken: Claimed | None, pending: Sequence[UUID], batch: tuple[UUID, ...]
    ) -> Claimed | None:
        if taken is None:
            return None
        if taken.releases is not None:
            self._releases = taken.releases
            self.released()
        if self.settled:
            marked = taken.records
            span = (marked[0].id, marked[-1].id) if marked else None
            # A name that no row carries is nobody's batch, and its absence later no sign of anything.
            own = batch if marked else ()
            self.settled.marked(taken.found, span, (*pending, *own))
        return taken

    def _find_locked(self, look: str, parameters: tuple[object, ...]) -> bool:
        found = self._session.execute(look, parameters).fetchall()
        rows = {number: readable(key) for number, key in found}
        if rows:
            self._locked.found(rows)
            log.warning(
                "%s: others have locked %s; their keys wait, and every other goes on; locked by %s",
                *(self._layout.name, _named(rows), self._blockers(list(rows))),
            )
        return bool(rows)

    def _look_again(self) -> None:
        before = self._locked.ids
        rows = self._session.fetch(self.sql.locked_still, (before,), "look at locked rows")
        self._locked.looked({row[0] for row in rows})
        if not self._locked.keys:
            log.info("%s: no row is locked any more", self._layout.name)

    def _blockers(self, ids: list[int]) -> str:
        found = self._session.execute(self.sql.blockers, (ids,)).fetchall()
        return (
            ", ".join(
                f"server process {pid} ({application}, user {user}, since {since or '?'})"
                for pid, application, user, since in found
            )
            or "a transaction that is not visible, perhaps a prepared one"
        )


def _named(rows: Mapping[int, str]) -> str:
    ids = sorted(rows)
    more = f" and {len(ids) - MAX_NAMED:,} more" if len(ids) > MAX_NAMED else ""
    return f"row{'s' * (len(ids) > 1)} {', '.join(map(str, ids[:MAX_NAMED]))}{more}"
