"""How a portable outbox deletes and selects batches, as exactly-once delivery does.

Deletion and selection are two statements, and under READ COMMITTED the second may see rows that were
committed after the first. That is no harm: such a row is in none of the batches, whose ids the selection
leaves out, and it is selected as it would have been a moment later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from time import time

from outbox_api.base.record import Batch, MarkedRecord
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds, bounds, without_runs
from outbox_api.portable.choosing import Choosing, Row, Wanted
from outbox_api.portable.rows import records
from outbox_api.portable.runs import LISTED_RUNS, change_rows, padded
from outbox_api.portable.session import Session
from outbox_api.portable.statements import Statements
from outbox_api.seams.fence import Fence


class Batches:
    """Deletes and selects batches over one connection, within the caller's transaction."""

    def __init__(self, session: Session, sql: Statements, choosing: Choosing) -> None:
        self._session = session
        self._idiom = session.idiom
        self._sql = sql
        self._choosing = choosing
        self._locked: frozenset[int] = frozenset()

    @property
    def skips_locked(self) -> bool:
        """Whether the database can tell which rows others have locked."""
        return self._sql.free is not None

    def supersede(self, batch: Batch, token: int) -> int:
        """Deletes rows that were not delivered while the fence is held; returns how many.

        It waits for none that others have locked, if the database can.
        """
        if self._sql.free is None:
            return self._delete(batch, token, superseded=True)
        return self._delete_free(batch, token, self._sql.free, superseded=True)[0]

    def delete(self, batches: Sequence[Batch], token: int, *, waits: bool) -> tuple[int, list[Batch]]:
        """Deletes the rows of batches while the fence is held.

        Args:
            batches: The batches.
            token: The fence's token, for rows that are kept.
            waits: Whether to wait for rows that others have locked. Those that this connection has once
                found locked are not waited for.

        Returns:
            How many rows it deleted, and the rows that it left to those who have locked them.

        Raises:
            LockTimeout: It waited in vain.
        """
        deleted, locked = 0, list[Batch]()
        for batch in batches:
            if self._sql.free is None or (waits and not self._found_locked(batch)):
                deleted += self._delete(batch, token)
                continue
            rows, left = self._delete_free(batch, token, self._sql.free)
            deleted += rows
            if left:
                locked.append(Batch.of(left, batch.newest))
        self._locked = frozenset(number for batch in locked for number in batch.ids())
        return deleted, locked

    def select(  # noqa: PLR0917 - as in OutboxTable
        self,
        fence: Fence,
        batches: Sequence[Batch],
        limit: int,
        max_bytes: int,
        source: int,
        keys: Collection[str] = (),
        topics: Collection[str] = (),
        dated: bool = False,
    ) -> tuple[list[MarkedRecord], str]:
        """Selects the lane's earliest rows of a source that are in none of the batches.

        Returns:
            The rows, and the greatest ``create_time`` among them.
        """
        condition, values = self._outside(batches)
        without, named = self._sql.without(keys, topics)
        conditions = (*([condition] if condition else []), *without)
        wanted = Wanted(limit, max_bytes, conditions, {**values, **named}, source, dated)
        chosen = self._choosing.choose(fence, wanted)
        if not chosen.rows:
            return [], ""
        newest = self._newest(chosen.ids, source)
        statements = (self._sql.selected_rows, self._sql.selected_heads)
        return self._choosing.read(chosen, max_bytes, statements), newest

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns the rows of a batch that are there, ordered by id."""
        guard, at = self._guard(batch), time()
        statement = self._sql.selected_old if guard else self._sql.selected_rows
        found = self._session.fetch_by_ids(statement, batch.ids(), **guard)
        return sorted(records(found, self._idiom, at), key=itemgetter(0))

    def _found_locked(self, batch: Batch) -> bool:
        return bool(self._locked) and not self._locked.isdisjoint(batch.ids())

    def _guard(self, batch: Batch) -> dict[str, str]:
        """Returns the parameter by which statements leave out younger rows, if there is one."""
        return {"newest": batch.newest} if batch.newest and self._idiom.time_text else {}

    def _removal(self, *, old: bool, superseded: bool) -> ChangeByIds:
        sql = self._sql
        if superseded:
            return sql.supersede_old if old else sql.supersede
        return sql.remove_old if old else sql.remove

    def _delete(self, batch: Batch, token: int, *, superseded: bool = False) -> int:
        guard = self._guard(batch)
        change = self._removal(old=bool(guard), superseded=superseded)
        return change_rows(self._session, change, batch, token=token, **guard)

    def _delete_free(
        self, batch: Batch, token: int, free: SelectByIds, *, superseded: bool = False
    ) -> tuple[int, list[int]]:
        """Deletes rows that nobody has locked; returns how many, and the ids of the others."""
        guard = self._guard(batch)
        change = self._removal(old=bool(guard), superseded=superseded)
        present = self._sql.present_old if guard else self._sql.present
        ids = _ids(self._session.fetch_by_ids(present, batch.ids(), **guard))
        ours = _ids(self._session.fetch_by_ids(free, ids))
        deleted = self._session.execute_by_ids(change, ours, token=token, **guard)
        # Who had locked a row may have deleted it by now.
        rest = sorted(set(ids).difference(ours))
        return deleted, _ids(self._session.fetch_by_ids(present, rest, **guard))

    def _outside(self, batches: Sequence[Batch]) -> tuple[str, Mapping[str, object]]:
        """Makes the condition that a row is in none of the batches, and its parameters."""
        runs = [run for batch in batches for run in batch.runs]
        if not runs:
            return "", {}
        if len(runs) > LISTED_RUNS[-1]:
            return self._idiom.ids_not_in([number for batch in batches for number in batch.ids()])
        listed = padded(runs)
        return without_runs(len(listed)), bounds(listed)

    def _newest(self, ids: Sequence[int], source: int) -> str:
        """Returns the greatest ``create_time`` of rows.

        Rows between them may count, too: all are older than any that gets one of these ids a second time.
        """
        if not (newest := self._sql.newest(source)):
            return ""
        values = self._sql.source(source).values
        [(time,)] = self._session.fetch(newest, **values, first=ids[0], last=ids[-1])
        return self._idiom.read_text(time) or ""


def _ids(rows: Sequence[Row]) -> list[int]:
    return sorted(int(row[0]) for row in rows)
