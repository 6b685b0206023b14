"""One connection to an outbox in SQL Server, which marks by an UPDATE with OUTPUT."""
# ruff: noqa: S608 - names come quoted from the idiom

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from outbox_sdk.dialect import Fence
from outbox_sdk.portable import PortableTable
from outbox_sdk.portable.rows import COLUMNS, records
from outbox_sdk.record import MarkedRecord


class SqlServerTable(PortableTable):
    """The ``OutboxTable`` of SQL Server."""

    def _mark(
        self, fence: Fence, leader_id: UUID, limit: int, left_out: Sequence[UUID]
    ) -> list[MarkedRecord]:
        """Marks in one statement while the fence is held."""
        left = {f"left{number}": self._idiom.uuid(each) for number, each in enumerate(left_out)}
        choose = self._sql.choose(fence.lanes, len(left_out))
        leader = self._idiom.uuid(leader_id)
        marked = marking(self._sql.outbox, choose)
        rows = self._session.fetch(marked, **self._chosen(fence), **left, limit=limit, leader=leader)
        return records(sorted(rows, key=lambda row: int(row[0])), self._idiom)


def marking(outbox: str, choose: str) -> str:
    """Makes the statement that marks what a query chooses, and returns it in no order.

    The query reads versions, and thereby sees what is committed and waits for nobody. The rows that are to be
    changed are another matter, as a change reads them under update locks: so they stand in the statement by
    themselves, and are looked up one by one.
    """
    columns = choose.partition(") ")[2].partition(" FROM ")[0].split(", ")
    if tuple(columns[: len(COLUMNS)]) != COLUMNS:
        raise ValueError(f"no query for a mark: {choose}")
    output = ", ".join(f"inserted.{column}" for column in columns)
    return (
        f"UPDATE target SET leader_id = {{leader}} OUTPUT {output}"
        f" FROM ({choose}) AS chosen INNER LOOP JOIN {outbox} AS target WITH (ROWLOCK)"
        " ON target.id = chosen.id"
    )
