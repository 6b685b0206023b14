"""Statements over one connection, whose errors say what was being done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from outbox_sdk import portable

from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.idiom import PostgresIdiom
from outbox_postgres.search_path import Connection

_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s)::oid AND attnum > 0 AND NOT attisdropped
"""


def array(numbers: Sequence[int]) -> str:
    """Writes an array of integers, several times cheaper than psycopg adapts a list of them."""
    return f"{{{','.join(map(str, numbers))}}}"


class Session(portable.Session):
    """Sends statements over a connection to an outbox.

    What harvests is sent as it stands, with numbered parameters, by :meth:`rows` and :meth:`send`; everything
    else as of any portable dialect.

    Args:
        connection: The connection, which commits each statement.
        source: What it leads to, for messages.
        prepare: Whether to prepare statements.

    Attributes:
        source: As given.
    """

    def __init__(self, connection: Connection, source: DataSource, *, prepare: bool) -> None:
        super().__init__(connection, PostgresIdiom(), str(source), watches=connection.watches)
        self.source = source
        self._prepare = prepare
        unicode = connection.info.parameter_status("server_encoding") == "UTF8"
        self.encoding = "utf-8" if unicode else "ascii"

    def translated(
        self, doing: str, but: type[psycopg.Error] | tuple[()] = ()
    ) -> AbstractContextManager[None]:
        """Turns psycopg's errors into driver errors, but for those that the caller handles."""
        return translated(self.source, doing, but)

    def rows(self, statement: str, parameters: tuple[object, ...], doing: str) -> list[tuple[Any, ...]]:
        """Returns all rows of a statement's result.

        Raises:
            DriverError: The server refused, or is not to be reached.
        """
        with self.translated(doing):
            return self.send(statement, parameters).fetchall()

    def send(self, statement: str, parameters: tuple[object, ...]) -> psycopg.Cursor[Any]:
        """Sends a statement; psycopg's errors pass through."""
        cursor: psycopg.Cursor[Any] = self.connection.execute(
            statement, parameters, prepare=self._prepare, binary=True
        )
        return cursor

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        """Commits what is executed within; see the base class. What only reads needs no transaction."""
        self._must_not_watch(doing, reads=reads)
        alone = reads and not self._watches
        with self.translated(doing), nullcontext() if alone else self.connection.transaction():
            self._cursor = psycopg.Cursor(self.connection)
            yield

    def columns(self, table: str) -> list[str] | None:
        """Returns the names of a table's columns, or ``None`` where there is none; needs no right to it."""
        with self.translated(f"look at table {table}"):
            found = psycopg.Cursor(self.connection).execute(_COLUMNS, (table,)).fetchall()
        return [str(row[0]) for row in found] or None
