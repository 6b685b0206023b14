"""Oracle's transactions. Ids are bound, never written into statements, as Oracle parses each new text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import Any

from outbox_sdk.portable import Session
from outbox_sdk.portable.by_ids import ChangeByIds, SelectByIds
from outbox_sdk.statement import Statement, Style

FETCHED = 1_000
"""Rows that one round trip fetches."""

LISTED = (1, 10, 100, 1_000)
"""How many ids a query lists: few sizes make few texts to parse. A thousand is Oracle's limit."""

LONG = 4_000
"""Characters or bytes beyond which a value is sent as a large object, outside of arrays."""

_statement = lru_cache(maxsize=256)(Statement)


class OracleSession(Session):
    """A connection as the dialect uses it."""

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        """Makes what is executed within durable together."""
        with super().transaction(doing, reads=reads):
            self._cursor.arraysize = FETCHED
            self._cursor.prefetchrows = FETCHED + 1
            yield

    def execute(self, sql: str, **values: object) -> int:
        """Executes a change in the transaction and returns how many rows it touched."""
        return super().execute(sql, **self._bound(values))

    def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Executes a change for each of the rows, in order: in arrays of one type each, long values alone."""
        statement = _statement(sql, Style.NAMED)
        bound = [statement.arguments(self._bound(row)) for row in rows]
        for shape, group in groupby(bound, _shape):
            if None in shape:
                for row in group:
                    self._cursor.execute(statement.text, row)
            else:
                self._cursor.executemany(statement.text, list(group))

    def execute_by_ids(self, change: ChangeByIds, ids: Sequence[int], **values: object) -> int:
        """Executes a change for each of the ids, in array binds.

        Returns:
            How many rows it touched in all.
        """
        statement = _statement(self.idiom.change_by_ids(change, "{row_id}"), Style.NAMED)
        rows = [statement.arguments({**values, "row_id": number}) for number in ids]
        size, touched = self.idiom.max_ids, 0
        for start in range(0, len(rows), size):
            self._cursor.executemany(statement.text, rows[start : start + size])
            touched += int(self._cursor.rowcount)
        return touched

    def fetch_by_ids(self, query: SelectByIds, ids: Sequence[int], **values: object) -> list[Sequence[Any]]:
        """Executes a query for rows by their ids, which are bound; pads a list with its last id."""
        found: list[Sequence[Any]] = []
        for start in range(0, len(ids), LISTED[-1]):
            part = ids[start : start + LISTED[-1]]
            size = next(size for size in LISTED if size >= len(part))
            padded = [*part, *[part[-1]] * (size - len(part))]
            bound = {f"id{place}": number for place, number in enumerate(padded)}
            listed = ", ".join(f"{{{name}}}" for name in bound)
            found += self.fetch(query.sql(listed), **values, **bound)
        return found

    def _bound(self, values: Mapping[str, Any]) -> dict[str, object]:
        return {
            name: self.idiom.value_parameter(value) if name == "kafka_value" else value
            for name, value in values.items()
        }


def _shape(row: Any) -> tuple[type | None, ...]:
    """Returns the type of each value, or nothing for one that is long."""
    values = row.values()
    return tuple(
        None if isinstance(value, str | bytes) and len(value) > LONG else type(value) for value in values
    )
