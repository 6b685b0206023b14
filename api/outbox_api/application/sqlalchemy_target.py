"""Writing through SQLAlchemy: a connection's schemas are the record's, a session's records come first."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from outbox_api.application.connections import is_a, refuse_autocommit, require_transaction, unprepared
from outbox_api.support.statement import StatementIn, Style, Values

_PART = re.compile(r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[^\s.]+')
_QUOTES = '"`[]'
_BINDS = ("binds", "_Session__binds")
"""A session's databases by class and table, as SQLAlchemy 2.1 and 2.0 keep them."""


class SqlAlchemyTarget:
    """A SQLAlchemy ``Connection`` or ``Session``."""

    def __init__(self, connection: Any, statement: StatementIn) -> None:
        self._connection = connection
        self._statement = statement

    def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        # A session's connection joins the session's transaction, and begins it where there is none.
        is_session = is_a(self._connection, "sqlalchemy.orm", "Session", "scoped_session")
        connection = self._connection.connection() if is_session else self._connection
        require_joint(connection)
        if is_session:
            if _must_flush(self._connection):
                self._connection.flush()
            _require_alone(self._connection, connection)
        with unprepared(connection.connection.driver_connection):
            return int(connection.execute(_typed(self._statement, connection, rows), list(rows)).rowcount)


class AsyncSqlAlchemyTarget:
    """A SQLAlchemy ``AsyncConnection`` or ``AsyncSession``."""

    def __init__(self, connection: Any, statement: StatementIn) -> None:
        self._connection = connection
        self._statement = statement

    async def execute(self, rows: Sequence[Values]) -> int:
        """Executes the statement for rows of parameters in order."""
        is_connection = is_a(self._connection, "sqlalchemy.ext.asyncio", "AsyncConnection")
        connection = self._connection if is_connection else await self._connection.connection()
        require_joint(connection.sync_connection)
        if not is_connection:
            if _must_flush(self._connection):
                await self._connection.flush()
            _require_alone(self._connection, connection.sync_connection)
        text = _typed(self._statement, connection.sync_connection, rows)
        with unprepared(connection.sync_connection.connection.driver_connection):
            return int((await connection.execute(text, list(rows))).rowcount)


def require_joint(connection: Any) -> None:
    """Makes sure that what a ``Connection`` writes is committed with other changes.

    Raises:
        ValueError: It commits each statement by itself.
    """
    opened = connection.connection
    require_transaction(opened.driver_connection)
    if getattr(opened.dbapi_connection, "isolation_level", None) == "autocommit":  # only so asyncpg tells
        refuse_autocommit()


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
    after, preparer = schemas[before], connection.dialect.identifier_preparer
    if not after:
        return str(name)
    quoted = str(preparer.quote_schema(after))
    # For some drivers it is written as within a statement, where ``text`` doubles percent signs, too.
    return f"{quoted.replace('%%', '%') if getattr(preparer, '_double_percents', False) else quoted}.{name}"


def _must_flush(session: Any) -> bool:
    """Returns whether a session is yet to write what must be written before a record that is stashed now.

    These are records, for their order, and everything where only a flush shows to which database it goes.
    """
    mapped = sys.modules.get("outbox_api.application.sqlalchemy")
    if mapped is not None and any(isinstance(each, mapped.Stashable) for each in session.new):
        return True
    return _routes(_plain(session)) and bool(session.new or session.dirty or session.deleted)


def _require_alone(session: Any, connection: Any) -> None:
    """Makes sure that what a session writes shares its fate with a record that ``connection`` writes.

    Raises:
        ValueError: The session has, or may get, a transaction on another connection, too.
    """
    plain = _plain(session)
    begun = {entry[0] for entry in plain.get_transaction()._connections.values()}  # noqa: SLF001 - nothing else tells
    binds: Mapping[Any, Any] = next((vars(plain)[name] for name in _BINDS if name in vars(plain)), {})
    named = {each.engine for each in binds.values()}
    if begun <= {connection} and named <= {connection.engine}:
        return
    raise ValueError(
        "the session leads to several databases, and a record is atomic with the changes of one: pass the "
        'connection of that one, session.connection(bind_arguments={"bind": engine})'
    )


def _routes(session: Any) -> bool:
    """Returns whether a class of the application chooses a session's databases."""
    return type(session).get_bind is not sys.modules["sqlalchemy.orm"].Session.get_bind


def _plain(session: Any) -> Any:
    """Returns the ``Session`` behind a scoped or an asynchronous one."""
    session = session.registry() if hasattr(session, "registry") else session
    return getattr(session, "sync_session", session)
