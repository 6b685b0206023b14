"""Takes in rows of a table of another layout."""

from __future__ import annotations

from typing import Any

from outbox_sdk import DriverError
from outbox_sdk.portable import PortableIntake, TableName

from outbox_mysql.idiom import MySqlIdiom

_INDEX = (
    "SELECT index_name FROM information_schema.statistics"
    " WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}"
    " AND column_name = {column} AND seq_in_index = 1 ORDER BY non_unique, index_name = 'PRIMARY' DESC"
)


class MySqlIntake(PortableIntake):
    """Deletes what it took in by an index: otherwise it would wait for all who write into the table."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        schema, table = TableName.parse(self._intake.table)
        with self._session.transaction(f"look at the indexes of table {table}"):
            found = self._session.fetch(_INDEX, schema=schema, table=table, column=self._intake.id)
        if not found:
            raise DriverError(
                f"table {self._intake.table} cannot be taken in: without an index that begins with "
                f"'{self._intake.id}' each deletion would wait for all who write into it; create one",
                retryable=False,
            )
        self._index = self._session.idiom.name(str(found[0][0])).replace("{", "{{").replace("}", "}}")

    def _deletion(self) -> str:
        return MySqlIdiom().delete(self._source, f"FORCE INDEX ({self._index})")
