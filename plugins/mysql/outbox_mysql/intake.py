"""Takes in rows of a table of another layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_sdk import DriverError
from outbox_sdk.portable import PortableIntake, Session, TableName
from outbox_sdk.portable.by_ids import ChangeByIds
from outbox_sdk.portable.sources import quoted

_INDEX = (
    "SELECT index_name FROM information_schema.statistics"
    " WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}"
    " AND column_name = {column} AND seq_in_index = 1 ORDER BY non_unique, index_name = 'PRIMARY' DESC"
)


class MySqlIntake(PortableIntake):
    """Deletes rows through an index: a DELETE without one would wait for every open INSERT into the table."""

    def __init__(self, session: Session, *arguments: Any, **named: Any) -> None:
        super().__init__(session, *arguments, **named)
        schema, table = TableName.parse(self._intake.table)
        with session.transaction(f"look at the indexes of table {table}", reads=True):
            found = session.fetch(_INDEX, schema=schema, table=table, column=self._intake.id)
        if not found:
            raise DriverError(
                f"table {self._intake.table} cannot be taken in: without an index that begins with "
                f"'{self._intake.id}' each deletion would wait for all who write into it; create one",
                retryable=False,
            )
        idiom = session.idiom
        index = quoted(idiom, TableName("", str(found[0][0])))
        self._index = index
        hint = f"/*+ INDEX({quoted(idiom, TableName('', table))} {index}) */"
        self._one = f"DELETE {hint} FROM {self._source} WHERE {self._key} = {{key}}"

    def deletion(self) -> ChangeByIds:
        """Returns the DELETE of rows of the source by their ids."""
        return ChangeByIds(self._source, id_column=self._key, index=self._index)

    def _delete(self, keys: Sequence[Any]) -> int:
        if all(isinstance(key, int) for key in keys):
            return super()._delete(keys)
        # For a list of texts a server may prefer a scan of the whole table.
        return sum(self._session.execute(self._one, key=key) for key in keys)
