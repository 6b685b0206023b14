"""Writes records into the outbox, inside the caller's own transaction (seed 001).

A stasher never opens, commits or rolls back anything: the record is committed with the caller's other
changes, or not at all. It works on what the application has: a DB-API connection or cursor, or a SQLAlchemy
connection or session; :class:`AsyncStasher` on their asynchronous forms. Neither a database driver nor
SQLAlchemy is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outbox_sdk.dialect import Insert
from outbox_sdk.errors import PluginError, RecordError
from outbox_sdk.record import Record
from outbox_sdk.registry import Seam, find
from outbox_sdk.target import Target, target_of

TOPIC_LENGTH = 249
"""The longest name that Kafka lets a topic have, in characters."""


class Stasher:
    """Writes records into one outbox table. Holds no connection, so one serves the whole application.

    Args:
        table: The outbox table, optionally with its schema.
        dialect: The driver name of the database's dialect, whose plugin must be installed.

    Raises:
        PluginError: The dialect is not installed.
    """

    def __init__(self, table: str = "outbox", dialect: str = "postgres") -> None:
        self._insert = _insert(table, dialect)

    def stash(self, connection: Any, record: Record) -> None:
        """Writes one record in the transaction that ``connection`` is in.

        Args:
            connection: A DB-API connection or cursor, or a SQLAlchemy ``Connection`` or ``Session``.
            record: What to publish once the transaction is committed.

        Raises:
            RecordError: The record cannot be written; the transaction is as it was.
            TypeError: ``connection`` is none of the above, or asynchronous.
            ValueError: ``connection`` commits every statement by itself, so nothing would be atomic.
        """
        self.stash_many(connection, (record,))

    def stash_many(self, connection: Any, records: Iterable[Record]) -> None:
        """Writes records in the order given, in as few round trips as the driver can; see :meth:`stash`."""
        self.prepare(connection).stash_many(records)

    def prepare(self, connection: Any) -> PreparedStash:
        """Returns a stasher for the transaction that ``connection`` is in, which repeats no set-up.

        Where the driver can, the statement is prepared on the server with its first use.
        """
        target = target_of(connection, self._insert.sql)
        if target.asynchronous:
            raise TypeError(f"{_kind(connection)} is asynchronous: use AsyncStasher")
        return PreparedStash(self._insert, target)


class PreparedStash:
    """A stasher bound to one transaction; made by :meth:`Stasher.prepare`."""

    def __init__(self, insert: Insert, target: Target) -> None:
        self._insert = insert
        self._target = target

    def stash(self, record: Record) -> None:
        """Writes one record; see :meth:`Stasher.stash`."""
        self.stash_many((record,))

    def stash_many(self, records: Iterable[Record]) -> None:
        """Writes records in the order given; see :meth:`Stasher.stash_many`."""
        rows = _rows(self._insert, records)
        if rows:
            self._target.write(rows)


class AsyncStasher:
    """Writes records over asynchronous connections; the verbs and errors are those of :class:`Stasher`.

    Takes a psycopg ``AsyncConnection`` or ``AsyncCursor``, or a SQLAlchemy ``AsyncConnection`` or
    ``AsyncSession``.

    Args:
        table: The outbox table, optionally with its schema.
        dialect: The driver name of the database's dialect, whose plugin must be installed.
    """

    def __init__(self, table: str = "outbox", dialect: str = "postgres") -> None:
        self._insert = _insert(table, dialect)

    async def stash(self, connection: Any, record: Record) -> None:
        """Writes one record in the transaction that ``connection`` is in; see :meth:`Stasher.stash`."""
        await self.stash_many(connection, (record,))

    async def stash_many(self, connection: Any, records: Iterable[Record]) -> None:
        """Writes records in the order given; see :meth:`Stasher.stash_many`."""
        await self.prepare(connection).stash_many(records)

    def prepare(self, connection: Any) -> AsyncPreparedStash:
        """Returns a stasher for the transaction that ``connection`` is in; see :meth:`Stasher.prepare`."""
        target = target_of(connection, self._insert.sql)
        if not target.asynchronous:
            raise TypeError(f"{_kind(connection)} is not asynchronous: use Stasher")
        return AsyncPreparedStash(self._insert, target)


class AsyncPreparedStash:
    """An asynchronous stasher bound to one transaction; made by :meth:`AsyncStasher.prepare`."""

    def __init__(self, insert: Insert, target: Target) -> None:
        self._insert = insert
        self._target = target

    async def stash(self, record: Record) -> None:
        """Writes one record; see :meth:`Stasher.stash`."""
        await self.stash_many((record,))

    async def stash_many(self, records: Iterable[Record]) -> None:
        """Writes records in the order given; see :meth:`Stasher.stash_many`."""
        rows = _rows(self._insert, records)
        if rows:
            await self._target.write_async(rows)


def _insert(table: str, dialect: str) -> Insert:
    driver = find(Seam.DIALECT, dialect)
    if driver.insert is None:
        raise PluginError(f"the dialect '{dialect}' offers no way to stash")
    return driver.insert(table)


def _rows(insert: Insert, records: Iterable[Record]) -> list[dict[str, object]]:
    rows = []
    for record in records:
        if problem := _problem(record):
            raise RecordError(f"{problem} ({_name(record)})")
        try:
            rows.append(dict(insert.bind(record)))
        except ValueError as error:
            raise RecordError(f"{error} ({_name(record)})") from error
    return rows


def _name(record: Any) -> str:
    # The value stays out of errors: it is the application's business, and may be large.
    return f"topic {record.topic!r}, key {record.key!r}"


def _problem(record: Any) -> str:
    if not isinstance(record.topic, str) or not 0 < len(record.topic) <= TOPIC_LENGTH:
        return f"a record's topic is text of 1 to {TOPIC_LENGTH} characters"
    if not isinstance(record.key, str):
        return "a record's key is text, possibly empty, never None"
    if not isinstance(record.value, str | bytes | None):
        return "a record's value is text, bytes or None"
    for header in record.headers:
        if not isinstance(header, tuple) or len(header) != 2:  # noqa: PLR2004 - a pair
            return "a record's headers are pairs of a name and a value"
        if not isinstance(header[0], str) or not isinstance(header[1], str | bytes | None):
            return "a header's name is text, its value text, bytes or None"
    return ""


def _kind(connection: object) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
