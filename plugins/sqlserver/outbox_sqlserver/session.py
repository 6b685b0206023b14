"""SQL Server's transactions: ids are one parameter, texts have one type, replies are read to their end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from outbox_sdk.portable import Session
from outbox_sdk.portable.by_ids import ChangeByIds, SelectByIds
from outbox_sdk.portable.session import TableMissing

from outbox_sqlserver.idiom import LISTED_IDS, octets

SHORT = 4_000
"""UTF-16 code units beyond which a text is sent as NVARCHAR(MAX), which no index is made for."""


class SqlServerSession(Session):
    """A connection as the dialect uses it."""

    def fetch(self, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """Executes a query in the transaction and returns its rows."""
        rows = super().fetch(sql, **values)
        self._finish()
        return rows

    def execute(self, sql: str, **values: object) -> int:
        """Executes a change in the transaction and returns how many rows it touched."""
        touched = super().execute(sql, **values)
        self._finish()
        return touched

    def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Executes a change for each of the rows, in order; so does the driver."""
        for row in rows:
            self.execute(sql, **row)

    def execute_by_ids(self, change: ChangeByIds, ids: Sequence[int], **values: object) -> int:
        """Executes a change of rows by their ids.

        Returns:
            How many rows it touched.
        """
        sql = self.idiom.change_by_ids(change, LISTED_IDS)
        return self.execute(sql, ids=json.dumps(list(ids)), **values) if ids else 0

    def fetch_by_ids(self, query: SelectByIds, ids: Sequence[int], **values: object) -> list[Sequence[Any]]:
        """Executes a query about ids."""
        return list(self.fetch(query.sql(LISTED_IDS), ids=json.dumps(list(ids)), **values)) if ids else []

    def execute_ddl(self, ddl: str) -> None:
        """Executes a statement that is sent as it stands."""
        super().execute_ddl(ddl)
        self._finish()

    def columns(self, table: str) -> list[str] | None:
        """Returns the names of a table's columns in lower case, or ``None`` where there is no such table."""
        try:
            with self.transaction(f"look at table {table}", reads=True):
                described = self._execute(f"SELECT * FROM {table} WHERE 1 = 0", {}).description  # noqa: S608 - quoted
                names = [str(column[0]).lower() for column in described]
                self._finish()
                return names
        except TableMissing:
            return None

    def _execute(self, sql: str, values: Mapping[str, object], ids: str = "") -> Any:
        return super()._execute(sql, {name: _typed(value) for name, value in values.items()}, ids)

    def _finish(self) -> None:
        """Reads a reply to its end. Otherwise the driver would cancel it before its next statement.

        With XACT_ABORT, a cancel may end the transaction.
        """
        while self._cursor.nextset():
            pass


def _typed(value: object) -> object:
    if not isinstance(value, str) or len(value.encode("utf-16-le", "surrogatepass")) > 2 * SHORT:
        return octets(value)
    from pytds.tds_base import Param  # noqa: PLC0415 - only who connects needs it
    from pytds.tds_types import NVarCharType  # noqa: PLC0415 - as above

    return Param(type=NVarCharType(size=SHORT), value=value)
