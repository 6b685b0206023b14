"""Deletes batches and selects the next over one connection: from which id, and without which rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

import psycopg
from outbox_api import UNBOUNDED, Advanced, Batch, Fence, MarkedRecord

from outbox_postgres.batch_statements import BatchStatements
from outbox_postgres.keeping import Keeping
from outbox_postgres.layout import Layout
from outbox_postgres.rows import Claimed, claimed, records
from outbox_postgres.scan_starts import ScanStarts, excluding
from outbox_postgres.session import Session, array, blockers
from outbox_postgres.sources import Source

log = logging.getLogger("outbox.postgres")


class _Wanted(NamedTuple):
    limit: int
    max_bytes: int
    left_out: Sequence[Batch]
    source: int
    keys: frozenset[str]
    topics: frozenset[str]
    dated: bool


class Batches:
    """Deletes and selects batches of one outbox."""

    def __init__(
        self,
        session: Session,
        layout: Layout,
        starts: ScanStarts,
        sources: Sequence[Source],
        keeping: Keeping,
    ) -> None:
        tables = (layout.outbox, layout.fence, layout.dead_letters)
        self.sql = BatchStatements(
            *tables,
            sources,
            time=layout.time,
            extras=layout.extras,
            sequence=layout.sequence,
            keeping=keeping,
        )
        self._sources = sources
        self._session = session
        self._layout = layout
        self._starts = starts
        self._locked: list[Batch] = []  # those of the latest purge of which others had locked rows

    def advance(  # noqa: PLR0917 - as in OutboxTable
        self,
        fence: Fence,
        finished: Sequence[Batch],
        pending: Sequence[Batch],
        limit: int,
        max_bytes: int,
        source: int = 0,
        keys: frozenset[str] = frozenset(),
        topics: frozenset[str] = frozenset(),
        dated: bool = False,
    ) -> Advanced:
        """Deletes batches and selects the next; see :meth:`outbox_api.OutboxTable.advance`."""
        wanted = _Wanted(limit, max_bytes, [*finished, *pending], source, keys, topics, dated)
        purged, locked = 0, list[Batch]()
        if not limit or self._were_locked(finished):
            purged, locked = self._finish(fence, finished)
            self._starts.finished(finished)
            finished = ()
        if not limit:
            return Advanced(purged, [], locked=locked)
        try:
            taken = self._take(fence, finished, wanted)
        except psycopg.errors.LockNotAvailable:
            purged, locked = self._finish_free(fence, finished)
            taken = self._take(fence, (), wanted)
        if taken.basis is not None:
            taken = self._take_anew(fence, taken, wanted)
        if source:
            self._starts.finished(finished)
        else:
            self._note(taken, pending)
        return Advanced(purged + taken.purged, taken.records, taken.newest, locked)

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns the rows of a batch that are there; see :meth:`outbox_api.OutboxTable.rows`."""
        rows = self._session.rows(self.sql.rows, _runs([batch]), "read the rows of a batch")
        return sorted(records(rows), key=itemgetter(0))

    def supersede(self, fence: Fence, batch: Batch) -> int:
        """Deletes rows that need not be delivered; see :meth:`outbox_api.OutboxTable.supersede`."""
        return self._deleted(self.sql.supersede, fence, [batch])

    def _finish(self, fence: Fence, finished: Sequence[Batch]) -> tuple[int, list[Batch]]:
        """Deletes batches; returns how many rows, and those that others have locked."""
        if not self._were_locked(finished):
            with suppress(psycopg.errors.LockNotAvailable):
                return self._deleted(self.sql.finish, fence, finished, psycopg.errors.LockNotAvailable), []
        return self._finish_free(fence, finished)

    def _were_locked(self, finished: Sequence[Batch]) -> bool:
        return any(batch in self._locked for batch in finished)

    def _finish_free(self, fence: Fence, finished: Sequence[Batch]) -> tuple[int, list[Batch]]:
        purged = self._deleted(self.sql.finish_free, fence, finished)
        locked = []
        for batch in finished:
            rows = self._session.rows(self.sql.left, _runs([batch]), "look for locked rows")
            if rows:
                locked.append(Batch.of(sorted(row[0] for row in rows), batch.newest))
        if locked and not self._locked:
            number = sum(batch.rows for batch in locked)
            log.warning(
                "%s: others have locked %d rows that are published; they are deleted when they are free, and "
                "all else goes on; the first has the id %d; locked by %s",
                *(self._layout.name, number, locked[0].runs[0][0]),
                blockers(self._session, self._layout.outbox, locked[0].ids()),
            )
        # The caller may pass either these or those again.
        self._locked = [*locked, *(finished if locked else ())]
        return purged, locked

    def _deleted(
        self,
        statement: str,
        fence: Fence,
        finished: Sequence[Batch],
        but: type[psycopg.Error] | tuple[()] = (),
    ) -> int:
        with self._session.translated("delete batches", but):
            rows = self._session.send(statement, (*self._layout.held(fence), *_runs(finished))).fetchall()
        if not rows:
            raise fence.lost()
        return int(rows[0][0])

    def _take(self, fence: Fence, finished: Sequence[Batch], wanted: _Wanted) -> Claimed:
        """Deletes batches, and selects from where rows may have been added."""
        excluded = excluding(wanted.keys, wanted.topics)
        start = self._starts.next(fence, wanted.left_out, excluded, wanted.source)
        lane, bounded = fence.lanes > 1, wanted.max_bytes < UNBOUNDED
        make = self.sql.advance if finished else self.sql.select
        statement = make(wanted.source, lane=lane, bounded=bounded, dated=wanted.dated)
        firsts, lasts = _from(wanted.left_out, start)
        parameters = (
            *self._layout.held(fence),
            *(firsts, wanted.limit, start, self._starts.basis, lasts, wanted.max_bytes),
            *(list(names) for names in (wanted.topics, wanted.keys)),
            *self._sources[wanted.source].parameters,
            *(_runs(finished) if finished else ()),
        )
        with self._session.translated(
            "select a batch", but=psycopg.errors.LockNotAvailable if finished else ()
        ):
            taken = claimed(self._session.send(statement, parameters))
        if taken is None:
            raise fence.lost()
        return taken._replace(purged=sum(batch.rows for batch in finished))

    def _take_anew(self, fence: Fence, taken: Claimed, wanted: _Wanted) -> Claimed:
        """Selects from the head of the table, as keys were freed that earlier selections have passed."""
        purged = taken.purged
        while taken.basis is not None:
            self._starts.rebased(taken.basis)
            taken = self._take(fence, (), wanted)
        return taken._replace(purged=purged)

    def _note(self, taken: Claimed, behind: Sequence[Batch]) -> None:
        records = taken.records
        if not records:
            self._starts.found(taken.found, None, behind)
            return
        own = Batch.of([record.id for record in records], taken.newest)
        self._starts.found(taken.found, (records[0].id, records[-1].id), [*behind, own])


def _runs(batches: Sequence[Batch]) -> tuple[str, str, list[str | None]]:
    """Returns the runs of batches as statements take them."""
    runs = [run for batch in batches for run in batch.runs]
    newest = [batch.newest or None for batch in batches for _ in batch.runs]
    return array([first for first, _ in runs]), array([last for _, last in runs]), newest


def _from(batches: Sequence[Batch], start: int) -> tuple[str, str]:
    """Returns the first and the last ids of those runs that reach to ``start``."""
    runs = [run for batch in batches for run in batch.runs if run[1] >= start]
    return array([first for first, _ in runs]), array([last for _, last in runs])
