"""Purges, resets and parks marked rows over one connection, around those that others have locked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
from outbox_sdk import Changed, Fence
from outbox_sdk.portable.lock_waits import LockWaits

from outbox_postgres.layout import Layout
from outbox_postgres.locked_rows import blockers
from outbox_postgres.session import Session, array
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
        """Deletes rows; see :meth:`outbox_sdk.OutboxTable.purge`."""
        sql = (self._sql.purge, self._sql.purge_free)
        changed = self.change(sql, fence, leader_id, ids, "purge")
        if changed.locked or changed.kept or changed.rows >= len(ids):
            return changed
        kept = self._carried(leader_id, ids, "purge")
        return changed._replace(kept=kept)

    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Clears the leader id of rows; see :meth:`outbox_sdk.OutboxTable.reset`."""
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
        """Executes a statement, or the one that skips locked rows, and tells which rows were locked.

        Args:
            sql: Both statements.
            fence: The caller's fence.
            leader_id: What the rows carry.
            ids: The rows.
            doing: What is being done, for errors.
            more: Parameters behind the ids.
        """
        waits, skips = sql
        parameters = (*self._layout.held(fence), leader_id, array(ids), *more)
        changed = self._waiting(waits, parameters, fence, doing) if self._waits.permitted else None
        if changed is not None:
            self._waits.met(ids, ())
            return changed
        with self._session.translated(doing):
            rows, *kept = self._execute(skips, parameters, fence)
        left = set(self._carried(leader_id, ids, doing)) if rows < len(ids) else set()
        kept = kept[0] if kept else []
        locked = sorted(left.difference(kept))
        self._waits.met(ids, locked)
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
