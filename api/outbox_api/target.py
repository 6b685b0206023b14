"""Whom stasher and inbox write through: recognizes a connection without importing what made it.

An object of a library can only be there when its library has been imported, so ``sys.modules`` tells all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, NoReturn, Protocol

from outbox_api.statement import Statement, Style

Values = Mapping[str, object]
StatementIn = Callable[[Style], Statement]
"""Returns the statement in a style."""

_ASYNC_SQLALCHEMY = ("AsyncConnection", "AsyncSession", "async_scoped_session")
_ASYNC_PSYCOPG = ("AsyncConnection", "AsyncCursor", "AsyncServerCursor")
_IDLE = 0  # libpq's PQTRANS_IDLE, which psycopg and psycopg2 share
_IN_TRANSACTION = 1  # MySQL's SERVER_STATUS_IN_TRANS, as PyMySQL and its asynchronous kin show it
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
    if _is(connection, "sqlalchemy.ext.asyncio", *_ASYNC_SQLALCHEMY) or _is(
        connection, "psycopg", *_ASYNC_PSYCOPG
    ):
        raise TypeError(f"{_name(connection)} is asynchronous: use Async{writer}")
    _refuse_engine(connection, "with engine.begin() as connection: …")
    if _is(connection, "sqlalchemy", "Connection") or _is(
        connection, "sqlalchemy.orm", "Session", "scoped_session"
    ):
        return SqlAlchemyTarget(connection, statement(Style.SQLALCHEMY))
    connection = _out_of_django(connection)
    # What a pool hands out wraps the driver's own connection.
    connection = getattr(connection, "driver_connection", None) or connection
    if _is(connection, "psycopg", "Cursor", "ServerCursor"):
        connection = connection.connection
    if _is(connection, "psycopg", "Connection"):
        return PsycopgTarget(connection, statement(Style.PYFORMAT))
    style = _paramstyle(connection)
    if style is None or not _executes(connection) or _is_asynchronous(connection):
        raise TypeError(
            f"{writer} takes {_SYNC}, not a connection that is a {_name(connection)}"
            f"{_cure(connection, writer)}"
        )
    return DbApiTarget(connection, statement(style))


def find_async_target(connection: Any, statement: StatementIn, writer: str = "Stasher") -> AsyncTarget:
    """Returns the way to write through ``connection``; see :func:`find_target`.

    Raises:
        TypeError: It is nothing that is known, or needs the synchronous stasher.
    """
    if _is(connection, "sqlalchemy.ext.asyncio", *_ASYNC_SQLALCHEMY):
        return AsyncSqlAlchemyTarget(connection, statement(Style.SQLALCHEMY))
    if _is(connection, "psycopg", "AsyncCursor", "AsyncServerCursor"):
        connection = connection.connection
    if _is(connection, "psycopg", "AsyncConnection"):
        return AsyncPsycopgTarget(connection, statement(Style.PYFORMAT))
    _refuse_engine(connection, "async with engine.begin() as connection: …")
    hint = _cure(connection, writer) or (f": use {writer}" if _executes(connection) else "")
    raise TypeError(f"Async{writer} takes {_ASYNC}, not a connection that is a {_name(connection)}{hint}")


class DbApiTarget:
    """Any DB-API connection, or a cursor of it."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        is_connection = hasattr(connection, "cursor")
        self._connection = connection if is_connection else getattr(connection, "connection", None)
        self._cursor = connection.cursor() if is_connection else connection
        self._statement = statement

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        require_transaction(self._connection)
        arguments = [self._statement.arguments(row) for row in rows]
        if len(arguments) == 1:
            self._cursor.execute(self._statement.text, arguments[0])
        else:
            self._cursor.executemany(self._statement.text, arguments)
        return int(self._cursor.rowcount)


class PsycopgTarget:
    """A psycopg 3 connection. Uses a plain cursor of its own, whatever the connection's cursors are like."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._cursor = _plain_cursor(sys.modules["psycopg"].Cursor, connection)
        self._text = statement.text

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        require_transaction(self._connection)
        if len(rows) == 1:
            self._cursor.execute(self._text, rows[0], prepare=True)
        else:
            self._cursor.executemany(self._text, rows)
        return int(self._cursor.rowcount)


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
            await self._cursor.execute(self._text, rows[0], prepare=True)
        else:
            await self._cursor.executemany(self._text, rows)
        return int(self._cursor.rowcount)


class SqlAlchemyTarget:
    """A SQLAlchemy ``Connection`` or ``Session``."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._text = statement.text

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        # A session's connection joins the session's transaction, and begins it where there is none.
        is_session = _is(self._connection, "sqlalchemy.orm", "Session", "scoped_session")
        connection = self._connection.connection() if is_session else self._connection
        require_transaction(connection.connection.driver_connection)
        return int(connection.execute(_typed(self._text, rows), list(rows)).rowcount)


class AsyncSqlAlchemyTarget:
    """A SQLAlchemy ``AsyncConnection`` or ``AsyncSession``."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._text = statement.text

    async def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        is_connection = _is(self._connection, "sqlalchemy.ext.asyncio", "AsyncConnection")
        connection = self._connection if is_connection else await self._connection.connection()
        opened = connection.sync_connection.connection
        require_transaction(opened.driver_connection)
        if getattr(opened.dbapi_connection, "isolation_level", None) == "autocommit":  # only so asyncpg tells
            _refuse_autocommit()
        return int((await connection.execute(_typed(self._text, rows), list(rows))).rowcount)


def require_transaction(connection: Any) -> None:
    """Makes sure that a record would share its fate with other changes, where the driver lets it be seen.

    Raises:
        ValueError: The connection commits each statement by itself.
    """
    alone = False
    if getattr(connection, "autocommit", False) is True:
        info = getattr(connection, "info", None)
        alone = getattr(info, "transaction_status", None) == _IDLE and not getattr(info, "pipeline_status", 0)
        # MySQL Connector's, and sqlite3's.
        alone = alone or getattr(connection, "in_transaction", None) is False
    elif hasattr(connection, "get_autocommit") and hasattr(connection, "server_status"):
        alone = connection.get_autocommit() and not connection.server_status & _IN_TRANSACTION
    elif hasattr(connection, "in_transaction") and hasattr(connection, "isolation_level"):
        # sqlite3, where no isolation level means that nothing begins a transaction by itself.
        alone = connection.isolation_level is None and not connection.in_transaction
    if alone:
        _refuse_autocommit()


def _refuse_engine(connection: object, begin: str) -> None:
    engine = _is(connection, "sqlalchemy", "Engine") or _is(
        connection, "sqlalchemy.ext.asyncio", "AsyncEngine"
    )
    if engine or _is(connection, "sqlalchemy.orm", "sessionmaker"):
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


def _refuse_autocommit() -> NoReturn:
    raise ValueError(
        "the connection is in autocommit mode with no transaction open, so the record would not be "
        "atomic with anything: begin a transaction (with psycopg: with connection.transaction(): …; with "
        "Django: with transaction.atomic(): …), or switch autocommit off"
    )


def _out_of_django(connection: Any) -> Any:
    """Returns the driver's connection of Django's connection or cursor, which is in a transaction then."""
    if _is(connection, "django.db.backends.utils", "CursorWrapper"):
        connection = connection.db
    if not (
        _is(connection, "django.db.backends.base.base", "BaseDatabaseWrapper")
        or _is(connection, "django.utils.connection", "ConnectionProxy")
    ):
        return connection
    connection.ensure_connection()
    if connection.get_autocommit():
        _refuse_autocommit()
    return connection.connection


def _plain_cursor(kind: Any, connection: Any) -> Any:
    cursor = kind(connection)
    # Text is sent as text: sent without a type, a bytea column would take a backslash for an escape.
    cursor.adapters.register_dumper(str, sys.modules["psycopg"].types.string.StrDumper)
    return cursor


def _typed(text: str, rows: Sequence[Values]) -> Any:
    sqlalchemy = sys.modules["sqlalchemy"]
    types: dict[type, Any] = {str: sqlalchemy.String, bytes: sqlalchemy.LargeBinary}
    parameters = []
    for name in rows[0]:
        value = next((row[name] for row in rows if row[name] is not None), None)
        if kind := types.get(type(value)):
            parameters.append(sqlalchemy.bindparam(name, type_=kind()))
    return sqlalchemy.text(text).bindparams(*parameters)


def _is(instance: object, module: str, *names: str) -> bool:
    loaded = sys.modules.get(module)
    kinds = tuple(kind for name in names if isinstance(kind := getattr(loaded, name, None), type))
    return isinstance(instance, kinds)


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
