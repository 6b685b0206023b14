"""Marks, purges, resets and parks rows over one connection, around those that others have locked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from outbox_api import UNBOUNDED, Changed, Fence
from outbox_api.portable.releasing import LockWaits, named

from outbox_postgres.layout import Layout
from outbox_postgres.marking_statements import MarkingStatements
from outbox_postgres.rows import Claimed, claimed
from outbox_postgres.scan_starts import ScanStarts, excluding
from outbox_postgres.session import LockedRows, Session, array, blockers
from outbox_postgres.sources import Source
from outbox_postgres.statements import Statements

log = logging.getLogger("outbox.postgres")


class Releasing:
    """Takes marked rows out of a leader id's hands.

    A statement waits for a locked row until the lock time-out. It is repeated without such rows; and for a
    while after it has met one, the connection waits for none (:class:`.LockWaits`).

    Args:
        session: The connection.
        layout: The outbox as found.
        sql: The statements.
        clock: Seconds on a clock that never goes back.
    """

    def __init__(
        self, session: Session, layout: Layout, sql: Statements, clock: Callable[[], float] = monotonic
    ) -> None:
        self._session = session
        self._layout = layout
        self._sql = sql
        self._waits = LockWaits(
            layout.name, log, clock, lambda locked: blockers(session, layout.outbox, locked)
        )

    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Deletes rows; see :meth:`outbox_api.OutboxTable.purge`."""
        sql = (self._sql.purge, self._sql.purge_free)
        changed = self.change(sql, fence, leader_id, ids, "purge")
        if changed.locked or changed.kept or changed.rows >= len(ids):
            return changed
        kept = self._carried(leader_id, ids, "purge")
        return changed._replace(kept=kept)

    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Clears the leader id of rows; see :meth:`outbox_api.OutboxTable.reset`."""
        return self.change((self._sql.reset, self._sql.reset_free), fence, leader_id, ids, "reset")._replace(
            kept=()
        )

    def change(
        self,
        sql: tuple[str, str],
        fence: Fence,
        leader_id: UUID,
        ids: Sequence[int],
        doing: str,
        *more: object,
    ) -> Changed:
        """Executes a statement, or the one that skips locked rows, and tells which rows were locked."""
        waits, skips = sql
        parameters = (*self._layout.held(fence), leader_id, array(ids), *more)
        changed = self._waiting(waits, parameters, fence, doing) if self._waits.permitted else None
        if changed is not None:
            self._waits.met(ids, ())
            return changed
        with self._session.translated(doing):
            rows, *lists = self._execute(skips, parameters, fence)
        left = set(self._carried(leader_id, ids, doing)) if rows < len(ids) else set()
        kept, behind = lists or ((), ())
        locked = sorted(left.difference(kept))
        self._waits.met(ids, sorted(left.difference(kept, behind)))
        return Changed(rows, locked, sorted(left.intersection(kept)))

    def _waiting(
        self, statement: str, parameters: tuple[object, ...], fence: Fence, doing: str
    ) -> Changed | None:
        """Executes a statement that waits for locked rows; returns ``None`` if it waited in vain."""
        try:
            with self._session.translated(doing, but=psycopg.errors.LockNotAvailable):
                return Changed(self._execute(statement, parameters, fence)[0])
        except psycopg.errors.LockNotAvailable:
            self._waits.timed_out()
            return None

    def _execute(self, statement: str, parameters: tuple[object, ...], fence: Fence) -> tuple[Any, ...]:
        row = self._session.send(statement, parameters).fetchone()
        if row is None:
            raise fence.lost()
        return tuple(row)

    def _carried(self, leader_id: UUID, ids: Sequence[int], doing: str) -> list[int]:
        return [row[0] for row in self._session.rows(self._sql.carried, (leader_id, array(ids)), doing)]


class Wanted(NamedTuple):
    """The parameters of a mark."""

    limit: int
    max_bytes: int = UNBOUNDED
    excluded: frozenset[str] = frozenset()
    source: int = 0
    topics: frozenset[str] = frozenset()


class Marking:
    """Marks the rows of one outbox."""

    def __init__(
        self, session: Session, layout: Layout, starts: ScanStarts, sources: Sequence[Source]
    ) -> None:
        tables = (layout.outbox, layout.fence, layout.dead_letters)
        self.sql = MarkingStatements(*tables, sources, extras=layout.extras, sequence=layout.sequence)
        self._sources = sources
        self._session = session
        self._layout = layout
        self._starts = starts
        self._locked = LockedRows()

    def mark(self, fence: Fence, leader_id: UUID, wanted: Wanted) -> Claimed | None:
        """Marks by one leader id; returns ``None`` when the fence is lost."""
        taken = self._claim(fence, leader_id, wanted)
        if taken is None:
            return None
        if taken.basis is not None:
            self._starts.rebased(taken.basis)
        marked = taken.records
        span = (marked[0].id, marked[-1].id) if marked else None
        self._starts.found(taken.found, span, source=wanted.source)
        return taken

    def claim(self, fence: Fence, leader_id: UUID, wanted: Wanted, start: int) -> tuple[object, ...]:
        """Returns the parameters that all marks have."""
        limits = (wanted.limit, start, self._starts.basis, list(wanted.excluded))
        rest = (wanted.max_bytes, list(wanted.topics), list(self._locked.keys))
        held = self._layout.held(fence)
        return (*held, leader_id, *limits, *rest, *self._sources[wanted.source].parameters)

    def _claim(self, fence: Fence, leader_id: UUID, wanted: Wanted) -> Claimed | None:
        lane, bounded = fence.lanes > 1, wanted.max_bytes < UNBOUNDED
        mark = self.sql.mark(wanted.source, lane=lane, bounded=bounded)
        look = self.sql.locked(wanted.source, lane=lane)
        again = True
        while True:
            if self._locked.due():
                self._look_again()
            keys = wanted.excluded | self._locked.keys
            claimant, left_out = (fence.lane, fence.lanes, leader_id), excluding(keys, wanted.topics)
            start = self._starts.next(claimant, keys=left_out, source=wanted.source)
            parameters = self.claim(fence, leader_id, wanted, start)
            with self._session.translated("mark"):
                try:
                    return claimed(self._session.send(mark, parameters))
                except psycopg.errors.LockNotAvailable:
                    if not again or not self._find_locked(look, parameters):
                        raise
            again = False

    def _find_locked(self, look: str, parameters: tuple[object, ...]) -> bool:
        found = self._session.send(look, parameters).fetchall()
        rows = dict(found)
        if rows:
            self._locked.found(rows)
            log.warning(
                "%s: others have locked %s; their keys wait, and every other goes on; locked by %s",
                *(self._layout.name, named(rows), blockers(self._session, self._layout.outbox, rows)),
            )
        return bool(rows)

    def _look_again(self) -> None:
        before = self._locked.ids
        rows = self._session.rows(self.sql.locked_still, (before,), "look at locked rows")
        self._locked.looked({row[0] for row in rows})
        if not self._locked.keys:
            log.info("%s: no row is locked any more", self._layout.name)
