"""Marks rows over one connection: from which id, without which keys, and without locked rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import psycopg
from outbox_sdk import UNBOUNDED, Fence
from outbox_sdk.portable.lock_waits import named

from outbox_postgres.layout import Layout
from outbox_postgres.locked_rows import LockedRows, blockers
from outbox_postgres.marking_statements import MarkingStatements
from outbox_postgres.rows import Claimed, claimed
from outbox_postgres.scan_starts import ScanStarts, excluding
from outbox_postgres.session import Session
from outbox_postgres.sources import Source

log = logging.getLogger("outbox.postgres")


class Wanted(NamedTuple):
    """The parameters of a mark.

    Attributes:
        limit: How many rows at most.
        max_bytes: How many bytes at most.
        excluded: The keys to leave out.
        source: From which of the sources.
        topics: The topics to leave out.
    """

    limit: int
    max_bytes: int = UNBOUNDED
    excluded: frozenset[str] = frozenset()
    source: int = 0
    topics: frozenset[str] = frozenset()


class Marking:
    """Marks the rows of one outbox.

    Args:
        session: The connection.
        layout: The outbox as found.
        starts: From which id a mark looks.
        sources: From which rows; each mark takes from one of them.
    """

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
