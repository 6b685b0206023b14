"""Connections: opening one, making sure of what it leads to, creating what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
from outbox_sdk import Condition, DriverError
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from outbox_postgres import sql
from outbox_postgres.conninfo import DataSource
from outbox_postgres.ddl import ddl
from outbox_postgres.errors import translate
from outbox_postgres.layout import Inspector
from outbox_postgres.options import PostgresOptions, TableName
from outbox_postgres.table import PostgresTable


def connect(source: DataSource) -> psycopg.Connection[Any]:
    """Connects in autocommit mode, with parameters numbered as in the server's own protocol.

    Raises:
        DriverError: Unreachable (retryable) or refused (not).
    """
    try:
        connection: psycopg.Connection[Any] = psycopg.Connection.connect(
            make_conninfo(**source.parameters), autocommit=True, cursor_factory=psycopg.RawCursor
        )
    except psycopg.Error as error:
        raise translate(error, source, "connect") from error
    # One width for every integer: a statement is then prepared once, not once for each size of a number.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    return connection


def open_table(options: PostgresOptions, eligible: Sequence[Condition]) -> PostgresTable:
    """Connects to the outbox; the work behind ``PostgresDialect.connect``."""
    source = DataSource(options.data_source, options.connect_timeout)
    connection = connect(source)
    try:
        inspector = Inspector(connection, options)
        connection.execute(
            sql.SESSION, (f"{options.lock_timeout * 1000:.0f}ms", f"{options.statement_timeout * 1000:.0f}ms")
        )
        layout = inspector.layout()
        inspector.require(layout, eligible)
        if eligible or not options.skip_settled:
            # A row can become eligible long after it appeared, so no id is ever settled.
            layout = replace(layout, sequence=None)
        return PostgresTable(connection, source, layout, eligible, prepare=options.prepare)
    except psycopg.Error as error:
        connection.close()
        raise translate(error, source, "look at the outbox") from error
    except DriverError:
        connection.close()
        raise


def create(options: PostgresOptions) -> Sequence[str]:
    """Creates what is missing; the work behind ``PostgresDialect.create``."""
    source = DataSource(options.data_source, options.connect_timeout)
    created: list[str] = []
    with connect(source) as connection:
        for name, statement in zip((options.outbox, options.fence), ddl(options), strict=True):
            try:
                if _create(connection, name, statement):
                    created.append(".".join(part for part in name if part))
            except psycopg.errors.InsufficientPrivilege as error:
                raise DriverError(
                    f"the user may not create table {name} in {source}; let somebody who may run: "
                    f"{'; '.join(ddl(options))}",
                    retryable=False,
                ) from error
            except psycopg.Error as error:
                raise translate(error, source, f"create table {name}") from error
    return created


def _create(connection: psycopg.Connection[Any], name: TableName, statement: str) -> bool:
    found = connection.execute("SELECT to_regclass($1) IS NOT NULL", (str(name),)).fetchone()
    if found and found[0]:
        return False
    try:
        connection.execute(statement)
    except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
        return False  # another process created it at the same moment
    return True
