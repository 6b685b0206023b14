"""What the tests of an application use: the records that its transactions have stashed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from outbox_api.application.registry import Seam, find
from outbox_api.application.sqlalchemy_target import translated
from outbox_api.base.record import Record
from outbox_api.portable.dialect import PortableDialect
from outbox_api.portable.rows import header_fault

_DRIVERS = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
"""SQLAlchemy's name of a database → the driver name of its dialect."""
_FIRST = 1 - (1 << 63)
"""Below all ids but one, written as every database reads it."""


class Stashed:
    """The records that were stashed since this object was made, in the order of their ids.

    It reads the outbox anew each time that it is asked, over a connection of its own. So it sees what is
    committed, and nothing of a transaction that is open or was rolled back. Over the test's own connection
    it sees what that sees. What a harvester has sent is gone from the outbox, and not among them.

    Args:
        database: Where the outbox is: a dialect's driver name and the data source, then missing tables are
            created; a SQLAlchemy engine; or the test's own connection (DB-API, SQLAlchemy, Django) or
            session, which is neither committed nor closed.
        table: The outbox's name, as it is written in SQL.
        earlier: Also have the records that were there before.
    """

    def __init__(self, database: Any, table: str = "outbox", *, earlier: bool = False) -> None:
        if hasattr(database, "run_sync"):
            raise TypeError(
                "an asynchronous connection is read within run_sync: stashed = await connection.run_sync("
                "Stashed), then await connection.run_sync(lambda _: stashed.one())"
            )
        if hasattr(database, "sync_engine"):
            database = place(database)
        if isinstance(database, tuple):
            dialect_at(database, table).create()
        self._database, self._table = database, table
        self._before = _FIRST if earlier else max((row[0] for row in self._rows(_FIRST)), default=_FIRST)

    def of(self, topic: str | None = None, key: str | None = None) -> list[Record]:
        """Returns those of a topic, a key, or both.

        Raises:
            AssertionError: A row can be no message; the harvester would park its key.
        """
        return [each for each in self if topic in {None, each.topic} and key in {None, each.key}]

    def one(self, topic: str | None = None, key: str | None = None) -> Record:
        """Returns the only one of a topic, a key, or both.

        Raises:
            AssertionError: There is none, or there are several; the message lists what was stashed.
        """
        __tracebackhide__ = True
        found = self.of(topic, key)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} records{wanted(topic, key)} were stashed, not one; {self!r}")
        return found[0]

    def __iter__(self) -> Iterator[Record]:
        return iter([_record(row) for row in self._rows(self._before)])

    def __len__(self) -> int:
        return len(self._rows(self._before))

    def __repr__(self) -> str:
        return f"stashed: {listed(list(self))}"

    def _rows(self, after: int) -> list[Sequence[Any]]:
        names = "id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
        query = f"SELECT {names} FROM {{}} WHERE id > {after} ORDER BY id"  # noqa: S608 - the test's own
        with self._connection() as opened:
            connection = opened.connection() if hasattr(opened, "get_bind") else opened  # of a session
            if hasattr(connection, "exec_driver_sql"):
                return list(connection.exec_driver_sql(query.format(translated(connection, self._table))))
            cursor = connection.cursor()
            cursor.execute(query.format(self._table))
            rows = cursor.fetchall()
            cursor.close()
        return [tuple(row.values()) if isinstance(row, Mapping) else row for row in rows]

    def _connection(self) -> AbstractContextManager[Any]:
        if isinstance(self._database, tuple):
            return closing(dialect_at(self._database, self._table).stash_connection())
        if hasattr(self._database, "raw_connection"):  # an engine
            opened: AbstractContextManager[Any] = self._database.connect()
            return opened
        return nullcontext(self._database)


def place(database: Any) -> tuple[str, str]:
    """Returns the driver name of a database's dialect, and the data source.

    Args:
        database: Just these; or an engine of SQLAlchemy, which tells them by its URL.

    Raises:
        TypeError: It is neither, or an engine of another database.
    """
    if isinstance(database, tuple):
        return database
    url = getattr(database, "url", None)
    driver = _DRIVERS.get(url.get_backend_name()) if url is not None else None
    if url is None or driver is None:
        raise TypeError(
            f"the outbox cannot be reached by a {type(database).__name__}: return the driver name of its "
            "dialect and the data source, such as ('postgres', 'host=localhost dbname=shop')"
        )
    if driver == "sqlite":
        return driver, url.database or ""
    plain = url.set(drivername="postgresql") if driver == "postgres" else url.set(drivername=driver, query={})
    return driver, plain.render_as_string(hide_password=False)


def dialect_at(database: tuple[str, str], table: str) -> PortableDialect:
    """Returns the dialect of an outbox at a :func:`place`."""
    driver, data_source = database
    kind = find(Seam.DIALECT, driver)
    return kind.create(kind.options(data_source=data_source, table=table))


def wanted(topic: str | None, key: str | None) -> str:
    """Says which records are asked for."""
    return (f" of topic {topic!r}" if topic is not None else "") + (
        f" with key {key!r}" if key is not None else ""
    )


def listed(records: Sequence[Record]) -> str:
    """Returns topics and keys of records, for messages."""
    return ", ".join(f"{each.topic} {each.key!r}" for each in records) or "nothing"


def _record(row: Sequence[Any]) -> Record:
    number, topic, key, value, *headers = row
    names, values = map(_texts, headers)
    if fault := header_fault(names, values):
        raise AssertionError(f"row {number} of the outbox can be no message: {fault}")
    text = bytes(value) if isinstance(value, memoryview) else value
    return Record(topic, key, text, tuple(zip(names, values, strict=True)))


def _texts(column: Any) -> list[Any]:
    """Reads header names or values: an array of PostgreSQL, or JSON."""
    return list(column or ()) if not isinstance(column, str | bytes) else json.loads(column or "[]")
