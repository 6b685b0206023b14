"""Whom stasher and inbox write through."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import iscoroutinefunction
from typing import Any, Protocol

from outbox_api.application.connections import is_a, refuse_autocommit, require_transaction, unprepared
from outbox_api.application.sqlalchemy_target import AsyncSqlAlchemyTarget, SqlAlchemyTarget
from outbox_api.support.statement import Statement, StatementIn, Style, Values

_ASYNC_SQLALCHEMY = ("AsyncConnection", "AsyncSession", "async_scoped_session")
_ASYNC_PSYCOPG = ("AsyncConnection", "AsyncCursor", "AsyncServerCursor")
_SYNC = "a DB-API connection or cursor, a SQLAlchemy Connection or Session, or Django's connection or cursor"
_ASYNC = "a psycopg AsyncConnection or AsyncCursor, or a SQLAlchemy AsyncConnection or AsyncSession"


class Target(Protocol):
    """Executes the statement inside the caller's transaction."""

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes it for rows of parameters in order.

        Returns:
            For one row, how many rows of the table it touched; negative if the driver does not tell.
        """
        ...


class AsyncTarget(Protocol):
    """As ``Target``, awaitable."""

    async def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        ...


def find_target(connection: Any, statement: StatementIn, writer: str = "Stasher") -> Target:
    """Returns the way to write through ``connection``.

    Args:
        connection: The caller's.
        statement: What to execute.
        writer: Who writes, for errors; ``Async`` before it is its asynchronous form.

    Raises:
        TypeError: It is nothing that is known, or needs the asynchronous stasher.
    """
    if is_a(connection, "sqlalchemy.ext.asyncio", *_ASYNC_SQLALCHEMY) or is_a(
        connection, "psycopg", *_ASYNC_PSYCOPG
    ):
        raise TypeError(f"{_name(connection)} is asynchronous: use Async{writer}")
    _refuse_engine(connection, "with engine.begin() as connection: …")
    if is_a(connection, "sqlalchemy", "Connection") or is_a(
        connection, "sqlalchemy.orm", "Session", "scoped_session"
    ):
        return SqlAlchemyTarget(connection, statement)
    if is_a(connection, "django.db.backends.utils", "CursorWrapper"):
        connection = connection.db
    if is_a(connection, "django.db.backends.base.base", "BaseDatabaseWrapper") or is_a(
        connection, "django.utils.connection", "ConnectionProxy"
    ):
        return DjangoTarget(connection, statement(Style.FORMAT))
    # What a pool hands out wraps the driver's own connection.
    connection = getattr(connection, "driver_connection", None) or connection
    if is_a(connection, "psycopg", "Cursor", "ServerCursor"):
        connection = connection.connection
    if is_a(connection, "psycopg", "Connection"):
        return PsycopgTarget(connection, statement(Style.PYFORMAT))
    style = _paramstyle(connection)
    if style is None or not _executes(connection) or _is_asynchronous(connection):
        raise TypeError(
            f"{writer} takes {_SYNC}, not a connection that is a {_name(connection)}"
            f"{_cure(connection, writer)}"
        )
    if not hasattr(connection, "cursor") and not hasattr(connection, "connection"):
        raise TypeError(f"a {_name(connection)} does not tell its connection: pass that")
    return DbApiTarget(connection, statement(style))


def find_async_target(connection: Any, statement: StatementIn, writer: str = "Stasher") -> AsyncTarget:
    """Returns the way to write through ``connection``; see :func:`find_target`.

    Raises:
        TypeError: It is nothing that is known, or needs the synchronous stasher.
    """
    if is_a(connection, "sqlalchemy.ext.asyncio", *_ASYNC_SQLALCHEMY):
        return AsyncSqlAlchemyTarget(connection, statement)
    if is_a(connection, "psycopg", "AsyncCursor", "AsyncServerCursor"):
        connection = connection.connection
    if is_a(connection, "psycopg", "AsyncConnection"):
        return AsyncPsycopgTarget(connection, statement(Style.PYFORMAT))
    _refuse_engine(connection, "async with engine.begin() as connection: …")
    hint = _cure(connection, writer) or (f": use {writer}" if _executes(connection) else "")
    raise TypeError(f"Async{writer} takes {_ASYNC}, not a connection that is a {_name(connection)}{hint}")


class DbApiTarget:
    """Any DB-API connection, or that of a cursor; through a cursor of its own: another's holds a result."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection if hasattr(connection, "cursor") else connection.connection
        self._cursor = self._connection.cursor()
        self._statement = statement

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        require_transaction(self._connection)
        return _execute(self._cursor, self._statement, rows)


class DjangoTarget:
    """A connection of Django's, through its cursors: they choose a tenant's schema, and obey a test."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._statement = statement
        self._require_block()

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        self._require_block()
        with self._connection.cursor() as cursor:
            driver = self._connection.connection
            if is_a(driver, "psycopg", "Connection"):
                cursor.cursor = _plain_cursor(sys.modules["psycopg"].Cursor, driver)
            with unprepared(driver):
                return _execute(cursor, self._statement, rows)

    def _require_block(self) -> None:
        if self._connection.get_autocommit():
            refuse_autocommit()


class PsycopgTarget:
    """A psycopg 3 connection. Uses a plain cursor of its own, whatever the connection's cursors are like."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._cursor = _plain_cursor(sys.modules["psycopg"].Cursor, connection)
        self._statement = statement

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        require_transaction(self._connection)
        with unprepared(self._connection):
            return _execute(self._cursor, self._statement, rows)


class AsyncPsycopgTarget:
    """A psycopg 3 ``AsyncConnection``."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._cursor = _plain_cursor(sys.modules["psycopg"].AsyncCursor, connection)
        self._text = statement.text

    async def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        require_transaction(self._connection)
        if len(rows) == 1:
            await self._cursor.execute(self._text, rows[0], prepare=False)
        else:
            with unprepared(self._connection):
                await self._cursor.executemany(self._text, rows)
        return int(self._cursor.rowcount)


def _refuse_engine(connection: object, begin: str) -> None:
    engine = is_a(connection, "sqlalchemy", "Engine") or is_a(
        connection, "sqlalchemy.ext.asyncio", "AsyncEngine"
    )
    if engine or is_a(connection, "sqlalchemy.orm", "sessionmaker"):
        raise TypeError(
            f"{_name(connection)} is in no transaction: pass the connection or session that the business "
            f"data is written through ({begin})"
        )


def _executes(connection: object) -> bool:
    return hasattr(connection, "cursor") or hasattr(connection, "execute")


def _is_asynchronous(connection: object) -> bool:
    verbs = (getattr(connection, name, None) for name in ("execute", "cursor", "commit", "fetch"))
    return any(iscoroutinefunction(verb) for verb in verbs)


def _cure(connection: object, writer: str) -> str:
    """Returns what works in place of an asynchronous driver's own connection; nothing for others."""
    if not _is_asynchronous(connection):
        return ""
    return f": use Async{writer} with SQLAlchemy's AsyncConnection or AsyncSession over this driver"


def _execute(cursor: Any, statement: Statement, rows: Sequence[Values]) -> int:
    arguments = [statement.arguments(row) for row in rows]
    if len(arguments) == 1:
        cursor.execute(statement.text, arguments[0])
    else:
        cursor.executemany(statement.text, arguments)
    return int(cursor.rowcount)


def _plain_cursor(kind: Any, connection: Any) -> Any:
    cursor = kind(connection)
    # Text is sent as text: sent without a type, a bytea column would take a backslash for an escape.
    cursor.adapters.register_dumper(str, sys.modules["psycopg"].types.string.StrDumper)
    return cursor


def _paramstyle(instance: object) -> Style | None:
    """Finds ``paramstyle`` in the module of the driver, or of its package, of the instance's class."""
    for kind in type(instance).__mro__:
        path = kind.__module__
        while path:
            style = getattr(sys.modules.get(path), "paramstyle", None)
            if isinstance(style, str) and style in Style._value2member_map_:
                return Style(style)
            path = path.rpartition(".")[0]
    return None


def _name(instance: object) -> str:
    kind = type(instance)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
