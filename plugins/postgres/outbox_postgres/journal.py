"""A connection to the journal of one outbox."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

import psycopg
from outbox_sdk import Deed, Entry
from outbox_sdk.journal import new_entry_id
from outbox_sdk.portable.columns import JOURNAL_TEXTS
from outbox_sdk.portable.rows import fitting

from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.layout import Layout
from outbox_postgres.sql_ascii import readable


class PostgresJournal:
    """The ``Journal`` of PostgreSQL. Made by ``PostgresDialect.journal``.

    Args:
        connection: The connection.
        source: Where it leads to.
        layout: The outbox as found.
    """

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, layout: Layout) -> None:
        self._connection = connection
        self._source = source
        self._name = layout.name
        unicode = connection.info.parameter_status("server_encoding") == "UTF8"
        self._encoding = "utf-8" if unicode else "ascii"
        journal = layout.journal
        self._begin = (
            f"INSERT INTO {journal} (name, id, operator, via, verb, subject, reason)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7)"
        )
        self._end = (
            f"UPDATE {journal} SET outcome = $3, ended = clock_timestamp()"
            " WHERE name = $1 AND id = $2 AND ended IS NULL"
        )
        self._entries = (
            f"SELECT id, begun, operator, via, verb, subject, reason, outcome FROM {journal}"
            " WHERE name = $1 ORDER BY begun DESC, id DESC LIMIT $2"
        )

    def user(self) -> str:
        """Returns the user as whom the session was opened."""
        with translated(self._source, "ask for the user"):
            return str(self._connection.execute("SELECT session_user").fetchall()[0][0])

    def begin(self, deed: Deed) -> UUID:
        """Notes what is about to be done, durably."""
        entry = new_entry_id()
        texts = [self._fitting(column, text) for column, text in asdict(deed).items()]
        with translated(self._source, "note a deed"):
            self._connection.execute(self._begin, (self._name, entry, *texts))
        return entry

    def end(self, entry: UUID, outcome: str) -> None:
        """Notes what came of it."""
        with translated(self._source, "note the outcome of a deed"):
            self._connection.execute(self._end, (self._name, entry, self._fitting("outcome", outcome)))

    def entries(self, limit: int = 100) -> list[Entry]:
        """Returns the last entries, the newest first."""
        with translated(self._source, "read the journal"):
            rows = self._connection.execute(self._entries, (self._name, limit)).fetchall()
        return [
            Entry(number, begun, Deed(*map(readable, texts)), None if outcome is None else readable(outcome))
            for number, begun, *texts, outcome in rows
        ]

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()

    def _fitting(self, column: str, text: str) -> str:
        return fitting(text, JOURNAL_TEXTS[column], self._encoding)
