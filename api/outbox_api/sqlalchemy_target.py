"""Writing through SQLAlchemy: a connection's schemas are the record's, a session's records come first."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from outbox_api.connections import is_a, refuse_autocommit, require_transaction, unprepared
from outbox_api.statement import StatementIn, Style, Values

_PART = re.compile(r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[^\s.]+')
_QUOTES = '"`[]'


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
        driver = connection.connection.driver_connection
        require_transaction(driver)
        if is_session and _holds_records(self._connection):
            self._connection.flush()
        with unprepared(driver):
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
        opened = connection.sync_connection.connection
        require_transaction(opened.driver_connection)
        if getattr(opened.dbapi_connection, "isolation_level", None) == "autocommit":  # only so asyncpg tells
            refuse_autocommit()
        if not is_connection and _holds_records(self._connection):
            await self._connection.flush()
        text = _typed(self._statement, connection.sync_connection, rows)
        with unprepared(opened.driver_connection):
            return int((await connection.execute(text, list(rows))).rowcount)


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


def _holds_records(session: Any) -> bool:
    """Returns whether a session is yet to write records, which come before one that is stashed now."""
    mapped = sys.modules.get("outbox_api.sqlalchemy")
    return mapped is not None and any(isinstance(each, mapped.Stashable) for each in session.new)
