"""Statements over one connection, whose errors say what was being done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg

from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated


def array(numbers: Sequence[int]) -> str:
    """Writes an array of integers, several times cheaper than psycopg adapts a list of them."""
    return f"{{{','.join(map(str, numbers))}}}"


class Session:
    """Sends statements over a connection to an outbox.

    Args:
        connection: The connection.
        source: What it leads to, for messages.
        prepare: Whether to prepare statements.
    """

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, *, prepare: bool) -> None:
        self.connection = connection
        self._source = source
        self._prepare = prepare

    def translated(
        self, doing: str, but: type[psycopg.Error] | tuple[()] = ()
    ) -> AbstractContextManager[None]:
        """Turns psycopg's errors into driver errors, but for those that the caller handles."""
        return translated(self._source, doing, but)

    def fetch(self, statement: str, parameters: tuple[object, ...], doing: str) -> list[tuple[Any, ...]]:
        """Returns all rows of a statement's result.

        Raises:
            DriverError: The server refused, or is not to be reached.
        """
        with self.translated(doing):
            return self.execute(statement, parameters).fetchall()

    def execute(self, statement: str, parameters: tuple[object, ...]) -> psycopg.Cursor[Any]:
        """Sends a statement; psycopg's errors pass through."""
        return self.connection.execute(statement, parameters, prepare=self._prepare, binary=True)
