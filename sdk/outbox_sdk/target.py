"""What a stasher writes to: tells connections, cursors and sessions apart, and speaks to each its own way."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any, Protocol

Rows = Sequence[Mapping[str, object]]

_STYLES = {"pyformat": "%({})s", "format": "%({})s", "named": ":{}", "qmark": ":{}"}
"""DB-API parameter style → how a named parameter is written; SQLite reads names where it says ``qmark``."""


class Target(Protocol):
    """One transaction of the caller's, ready to be written to."""

    asynchronous: bool
    """Whether :meth:`write_async` is the one to call, rather than :meth:`write`."""

    def write(self, rows: Rows) -> None:
        """Executes the insert for each row, in order."""
        ...

    async def write_async(self, rows: Rows) -> None:
        """Executes the insert for each row, in order."""
        ...


def target_of(connection: Any, sql: str) -> Target:
    """Recognizes what the caller handed in.

    Args:
        connection: A DB-API connection or cursor, or a SQLAlchemy connection or session, or an asynchronous
            form of these.
        sql: The insert; its parameters are written ``{name}``.

    Raises:
        TypeError: It is none of these.
        ValueError: It commits every statement by itself.
    """
    if "sqlalchemy" in _modules(connection) and hasattr(connection, "execute"):
        return _SqlAlchemy(connection, sql)
    if hasattr(connection, "execute") or hasattr(connection, "cursor"):
        return _DbApi(connection, sql)
    raise TypeError(
        f"a record is stashed over a DB-API or SQLAlchemy connection, cursor or session, not over "
        f"{type(connection).__module__}.{type(connection).__qualname__}"
    )


class _SqlAlchemy:
    """A SQLAlchemy Connection, Session, scoped session, AsyncConnection or AsyncSession."""

    def __init__(self, connection: Any, sql: str) -> None:
        # Whoever hands in an object of SQLAlchemy's has imported it.
        text = sys.modules["sqlalchemy"].text
        self.asynchronous = inspect.iscoroutinefunction(connection.execute)
        self._execute = connection.execute
        self._statement = text(_render(sql, ":{}"))
        options = connection.get_execution_options() if hasattr(connection, "get_execution_options") else {}
        if options.get("isolation_level") == "AUTOCOMMIT":
            raise _autocommit()

    def write(self, rows: Rows) -> None:
        self._execute(self._statement, list(rows))

    async def write_async(self, rows: Rows) -> None:
        await self._execute(self._statement, list(rows))


class _DbApi:
    """A DB-API connection or cursor, or psycopg's asynchronous ones."""

    def __init__(self, connection: Any, sql: str) -> None:
        cursor = connection.cursor() if hasattr(connection, "cursor") else connection
        owner = getattr(cursor, "connection", connection)
        if _commits_by_itself(owner):
            raise _autocommit()
        self.asynchronous = inspect.iscoroutinefunction(cursor.execute)
        self._cursor = cursor
        self._sql = _render(sql, _style(cursor))
        # psycopg prepares a statement on request; other drivers do so by themselves or not at all.
        prepares = "prepare" in inspect.signature(cursor.execute).parameters
        self._extra: dict[str, Any] = {"prepare": True} if prepares else {}

    def write(self, rows: Rows) -> None:
        if len(rows) == 1:
            self._cursor.execute(self._sql, rows[0], **self._extra)
        else:
            self._cursor.executemany(self._sql, rows)

    async def write_async(self, rows: Rows) -> None:
        if len(rows) == 1:
            await self._cursor.execute(self._sql, rows[0], **self._extra)
        else:
            await self._cursor.executemany(self._sql, rows)


def _modules(thing: object) -> list[str]:
    return [kind.__module__.split(".", 1)[0] for kind in type(thing).__mro__]


def _style(cursor: object) -> str:
    for name in _modules(cursor):
        style = getattr(sys.modules.get(name), "paramstyle", None)
        if style in _STYLES:
            return _STYLES[style]
    return _STYLES["pyformat"]


def _render(sql: str, style: str) -> str:
    parts = []
    for text, name, _, _ in Formatter().parse(sql):
        parts.append(text.replace("%", "%%") if style.startswith("%") else text)
        if name is not None:
            parts.append(style.format(name))
    return "".join(parts)


def _commits_by_itself(connection: Any) -> bool:
    """Tells, of drivers that say so, whether no transaction is open and none would be opened."""
    if getattr(connection, "autocommit", None) is not True:
        return False
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    return status is not None and int(status) == 0  # libpq: idle


def _autocommit() -> ValueError:
    return ValueError(
        "the connection is in autocommit mode and no transaction is open: the record would be committed by "
        "itself, whatever becomes of your other changes; open a transaction first"
    )
