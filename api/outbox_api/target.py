"""Whom stasher and inbox write through: recognizes a connection without importing what made it.

An object of a library can only be there when its library has been imported, so ``sys.modules`` tells all.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NoReturn, Protocol

from outbox_api.statement import Statement, Style

Values = Mapping[str, object]
Rename = Callable[[str], str]
"""The name of a table as the application writes it → its name on a connection."""


class StatementIn(Protocol):
    """Returns the statement in a style, for the table as it is called on a connection."""

    def __call__(self, style: Style, rename: Rename = str) -> Statement:
        """Returns it."""
        ...


_ASYNC_SQLALCHEMY = ("AsyncConnection", "AsyncSession", "async_scoped_session")
_ASYNC_PSYCOPG = ("AsyncConnection", "AsyncCursor", "AsyncServerCursor")
_PART = re.compile(r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[^\s.]+')
_QUOTES = '"`[]'
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
        return SqlAlchemyTarget(connection, statement)
    if _is(connection, "django.db.backends.utils", "CursorWrapper"):
        connection = connection.db
    if _is(connection, "django.db.backends.base.base", "BaseDatabaseWrapper") or _is(
        connection, "django.utils.connection", "ConnectionProxy"
    ):
        return DjangoTarget(connection, statement(Style.FORMAT))
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
    if not hasattr(connection, "cursor") and not hasattr(connection, "connection"):
        raise TypeError(f"a {_name(connection)} does not tell its connection: pass that")
    return DbApiTarget(connection, statement(style))


def find_async_target(connection: Any, statement: StatementIn, writer: str = "Stasher") -> AsyncTarget:
    """Returns the way to write through ``connection``; see :func:`find_target`.

    Raises:
        TypeError: It is nothing that is known, or needs the synchronous stasher.
    """
    if _is(connection, "sqlalchemy.ext.asyncio", *_ASYNC_SQLALCHEMY):
        return AsyncSqlAlchemyTarget(connection, statement)
    if _is(connection, "psycopg", "AsyncCursor", "AsyncServerCursor"):
        connection = connection.connection
    if _is(connection, "psycopg", "AsyncConnection"):
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
            if _is(driver, "psycopg", "Connection"):
                cursor.cursor = _plain_cursor(sys.modules["psycopg"].Cursor, driver)
            with _unprepared(driver):
                return _execute(cursor, self._statement, rows)

    def _require_block(self) -> None:
        if self._connection.get_autocommit():
            _refuse_autocommit()


class PsycopgTarget:
    """A psycopg 3 connection. Uses a plain cursor of its own, whatever the connection's cursors are like."""

    def __init__(self, connection: Any, statement: Statement) -> None:
        self._connection = connection
        self._cursor = _plain_cursor(sys.modules["psycopg"].Cursor, connection)
        self._statement = statement

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        require_transaction(self._connection)
        with _unprepared(self._connection):
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
            with _unprepared(self._connection):
                await self._cursor.executemany(self._text, rows)
        return int(self._cursor.rowcount)


class SqlAlchemyTarget:
    """A SQLAlchemy ``Connection`` or ``Session``."""

    def __init__(self, connection: Any, statement: StatementIn) -> None:
        self._connection = connection
        self._statement = statement

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        # A session's connection joins the session's transaction, and begins it where there is none.
        is_session = _is(self._connection, "sqlalchemy.orm", "Session", "scoped_session")
        connection = self._connection.connection() if is_session else self._connection
        driver = connection.connection.driver_connection
        require_transaction(driver)
        if is_session and _holds_records(self._connection):
            self._connection.flush()
        with _unprepared(driver):
            return int(connection.execute(_typed(self._statement, connection, rows), list(rows)).rowcount)


class AsyncSqlAlchemyTarget:
    """A SQLAlchemy ``AsyncConnection`` or ``AsyncSession``."""

    def __init__(self, connection: Any, statement: StatementIn) -> None:
        self._connection = connection
        self._statement = statement

    async def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        is_connection = _is(self._connection, "sqlalchemy.ext.asyncio", "AsyncConnection")
        connection = self._connection if is_connection else await self._connection.connection()
        opened = connection.sync_connection.connection
        require_transaction(opened.driver_connection)
        if getattr(opened.dbapi_connection, "isolation_level", None) == "autocommit":  # only so asyncpg tells
            _refuse_autocommit()
        if not is_connection and _holds_records(self._connection):
            await self._connection.flush()
        text = _typed(self._statement, connection.sync_connection, rows)
        with _unprepared(opened.driver_connection):
            return int((await connection.execute(text, list(rows))).rowcount)


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


def _execute(cursor: Any, statement: Statement, rows: Sequence[Values]) -> int:
    arguments = [statement.arguments(row) for row in rows]
    if len(arguments) == 1:
        cursor.execute(statement.text, arguments[0])
    else:
        cursor.executemany(statement.text, arguments)
    return int(cursor.rowcount)


@contextmanager
def _unprepared(connection: Any) -> Iterator[None]:
    """Has psycopg prepare nothing: a pooler in transaction mode would look for it in another's session."""
    threshold = getattr(connection, "prepare_threshold", None)
    if threshold is None:
        yield
        return
    connection.prepare_threshold = None
    try:
        yield
    finally:
        connection.prepare_threshold = threshold


def _holds_records(session: Any) -> bool:
    """Returns whether a session is yet to write records, which come before one that is stashed now."""
    mapped = sys.modules.get("outbox_api.sqlalchemy")
    return mapped is not None and any(isinstance(each, mapped.Stashable) for each in session.new)


def _plain_cursor(kind: Any, connection: Any) -> Any:
    cursor = kind(connection)
    # Text is sent as text: sent without a type, a bytea column would take a backslash for an escape.
    cursor.adapters.register_dumper(str, sys.modules["psycopg"].types.string.StrDumper)
    return cursor


def _typed(statement: StatementIn, connection: Any, rows: Sequence[Values]) -> Any:
    sqlalchemy = sys.modules["sqlalchemy"]
    text = statement(Style.SQLALCHEMY, partial(translated, connection)).text
    types: dict[type, Any] = {str: sqlalchemy.String, bytes: sqlalchemy.LargeBinary}
    parameters = []
    for name in rows[0]:
        value = next((row[name] for row in rows if row[name] is not None), None)
        if kind := types.get(type(value)):
            parameters.append(sqlalchemy.bindparam(name, type_=kind()))
    return sqlalchemy.text(text).bindparams(*parameters)


def translated(connection: Any, table: str) -> str:
    """Returns the name of a table as the ``schema_translate_map`` of a connection of SQLAlchemy has it."""
    schemas = connection.get_execution_options().get("schema_translate_map") or {}
    *schema, name = _PART.findall(table)
    before = schema[0].strip(_QUOTES) if schema else None
    if before is not None and before not in schemas and schema[0] == before:
        before = before.lower()  # written without quotes
    if before not in schemas:
        return table
    after = schemas[before]
    return f"{connection.dialect.identifier_preparer.quote_schema(after)}.{name}" if after else str(name)


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
