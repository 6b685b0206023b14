"""Opens connections, checks the tables that they lead to, and creates those that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
from outbox_sdk import AccessDenied, Condition
from outbox_sdk.portable import TableName
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from outbox_postgres import statements
from outbox_postgres.auxiliary_tables import auxiliary_tables
from outbox_postgres.data_source import DataSource
from outbox_postgres.ddl import ddl
from outbox_postgres.dead_letters import PostgresDeadLetters
from outbox_postgres.errors import ALREADY_THERE, translated
from outbox_postgres.intake import PostgresIntake
from outbox_postgres.layout import Inspector, Layout
from outbox_postgres.lease import PostgresLease
from outbox_postgres.members import PostgresMembers
from outbox_postgres.options import PostgresOptions
from outbox_postgres.search_path import Connection
from outbox_postgres.sql_ascii import is_raw, read_raw
from outbox_postgres.starts import provable
from outbox_postgres.table import PostgresTable


def connect(source: DataSource) -> Connection:
    """Connects in autocommit mode, with parameters numbered as in the server's own protocol.

    Names and operators mean what the server's catalogue says, see :mod:`outbox_postgres.search_path`.

    Raises:
        DriverError: Unreachable (retryable) or refused (not).
    """
    with translated(source, "connect"):
        connection = Connection.connect(
            make_conninfo(**source.parameters), autocommit=True, cursor_factory=psycopg.RawCursor
        )
    # One width for every integer: a statement is then prepared once, not once for each size of a number.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    with ExitStack() as unless_it_works, translated(source, "connect"):
        unless_it_works.callback(connection.close)
        if is_raw(connection):
            read_raw(connection)
        connection.leave_search_path()
        unless_it_works.pop_all()
    return connection


def connect_as_application(options: PostgresOptions) -> psycopg.Connection[Any]:
    """Connects as psycopg does by default; the work behind ``PostgresDialect.stash_connection``."""
    source = DataSource(options)
    with translated(source, "connect"):
        return psycopg.connect(make_conninfo(**source.parameters))


def open_table(options: PostgresOptions, eligible: Sequence[Condition]) -> PostgresTable:
    """Connects to the outbox; the work behind ``PostgresDialect.connect``."""
    source, connection, layout = _open(options, eligible)
    with ExitStack() as unless_it_works:
        unless_it_works.callback(connection.close)
        with translated(source, "set up the session"):
            connection.execute(statements.PLANNING)
        if not (options.skip_settled and provable(layout, eligible, options.origin)):
            layout = replace(layout, sequence=None)  # so marks always read from the head
        intake = None
        if options.intake:
            inspector = Inspector(connection, options)
            intake = PostgresIntake(connection, source, layout, options.intake, inspector)
        table = PostgresTable(
            *(connection, source, layout, eligible),
            prepare=options.prepare,
            intake=intake,
            origin=options.origin,
        )
        unless_it_works.pop_all()
        return table


def open_dead_letters(options: PostgresOptions) -> PostgresDeadLetters:
    """Connects to the dead letters; the work behind ``PostgresDialect.dead_letters``."""
    source, connection, layout = _open(options, ())
    return PostgresDeadLetters(connection, source, layout)


def open_lease(options: PostgresOptions) -> PostgresLease:
    """Connects to the lease; the work behind ``PostgresDialect.lease``."""
    source, connection, layout = _open(options, ())
    with ExitStack() as unless_it_works:
        unless_it_works.callback(connection.close)
        lease = PostgresLease(connection, source, layout)
        lease.open()
        unless_it_works.pop_all()
    return lease


def open_members(options: PostgresOptions) -> PostgresMembers:
    """Connects to the list of members; the work behind ``PostgresDialect.members``."""
    source, connection, layout = _open(options, ())
    return PostgresMembers(connection, source, layout)


def _open(options: PostgresOptions, eligible: Sequence[Condition]) -> tuple[DataSource, Connection, Layout]:
    source = DataSource(options)
    connection = connect(source)
    with ExitStack() as unless_it_works:
        unless_it_works.callback(connection.close)
        if not options.prepare:
            connection.prepare_threshold = None
        with translated(source, "look at the outbox"):
            timeouts = (options.lock_timeout, options.statement_timeout)
            connection.execute(statements.SESSION, [f"{seconds * 1000:.0f}ms" for seconds in timeouts])
            inspector = Inspector(connection, options)
            layout = inspector.layout()
            inspector.require(layout, eligible)
        unless_it_works.pop_all()
    return source, connection, layout


def create(options: PostgresOptions) -> Sequence[str]:
    """Creates what is missing; the work behind ``PostgresDialect.create``."""
    source = DataSource(options)
    created: list[str] = []
    with connect(source) as connection:
        with translated(source, f"create table {options.outbox}"):
            placed = _placed(connection, options)
        for name, (place, statement) in zip(ddl(options), ddl(placed).items(), strict=True):
            with translated(source, f"create table {name}"):
                try:
                    if _create(connection, place, statement):
                        created.append(".".join(part for part in name if part))
                except psycopg.errors.InsufficientPrivilege as error:
                    raise AccessDenied(
                        f"the user may not create table {name} in {source}; let somebody who may run: "
                        f"{'; '.join(ddl(options).values())}"
                    ) from error
        with translated(source, "add what earlier versions did not have"):
            inspector = Inspector(connection, options)
            layout = inspector.layout()
            try:
                inspector.add_origin(layout)
            except psycopg.errors.InsufficientPrivilege as error:
                faults = "; ".join(fault.cure for fault in inspector.faults(layout))
                raise AccessDenied(
                    f"the user may not change table {layout.outbox} in {source}: {faults}"
                ) from error
            for table in auxiliary_tables(layout.fence, layout.dead_letters):
                inspector.upgrade(table)
    return created


def _placed(connection: Connection, options: PostgresOptions) -> PostgresOptions:
    """Returns options that name each table with its schema: the one it is in, or is to be created in."""
    found = Inspector(connection, options).find(options.outbox)
    outbox = found[1] if found else connection.new(options.outbox)
    beside = (name.within(outbox.schema) for name in (options.fence, options.dead_letters))
    fence, letters = map(str, beside)
    return replace(options, table=str(outbox), fence_table=fence, dead_letter_table=letters)


def _create(connection: Connection, name: TableName, statement: str) -> bool:
    try:
        with connection.transaction():
            # If several processes create it at the same time, only one reports it.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"create {name}",))
            found = connection.execute("SELECT to_regclass($1) IS NOT NULL", (str(name),)).fetchone()
            if found and found[0]:
                return False
            connection.execute(statement)
    except ALREADY_THERE:
        return False  # the others need not be ours
    return True
