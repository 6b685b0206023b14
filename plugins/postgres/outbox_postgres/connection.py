"""Opens connections, and checks the tables that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from outbox_sdk import Condition
from outbox_sdk.full_server import pace_of
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from outbox_postgres import statements
from outbox_postgres.catalogue import Catalogue
from outbox_postgres.data_source import DataSource
from outbox_postgres.dead_letters import PostgresDeadLetters
from outbox_postgres.errors import translated
from outbox_postgres.inspector import Inspector
from outbox_postgres.intake import PostgresIntake, WaitingIntake
from outbox_postgres.journal import PostgresJournal
from outbox_postgres.layout import Layout, find_layout
from outbox_postgres.lease import PostgresLease
from outbox_postgres.members import PostgresMembers
from outbox_postgres.options import PostgresOptions
from outbox_postgres.search_path import Connection
from outbox_postgres.session import Session
from outbox_postgres.sql_ascii import is_raw, read_raw
from outbox_postgres.starts import provable
from outbox_postgres.table import PostgresTable
from outbox_postgres.view import PostgresView


def connect(source: DataSource) -> Connection:
    """Connects in autocommit mode, with parameters numbered as in the server's own protocol.

    Names and operators mean what the server's catalogue says, see :mod:`outbox_postgres.search_path`.

    Raises:
        DriverError: Unreachable (retryable) or refused (not).
    """
    with pace_of(str(source)).connecting(), translated(source, "connect"):
        connection = Connection.connect(
            make_conninfo(**source.parameters), autocommit=True, cursor_factory=psycopg.RawCursor
        )
    connection.patience = source.patience
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
    source, catalogue, layout = _open(options, eligible)
    connection = catalogue.connection
    with ExitStack() as unless_it_works:
        unless_it_works.callback(connection.close)
        with translated(source, "set up the session"):
            connection.execute(statements.PLANNING)
        if not (options.skip_settled and provable(layout, eligible, options.origin)):
            layout = replace(layout, sequence=None)  # so marks always read from the head
        intake = PostgresIntake(catalogue, source, layout, options.intake) if options.intake else None
        table = PostgresTable(
            *(connection, source, layout, eligible),
            prepare=options.prepare,
            intake=intake,
            origin=options.origin,
        )
        unless_it_works.pop_all()
        return table


def open_view(options: PostgresOptions) -> PostgresView:
    """Connects to look at the outbox; the work behind ``PostgresDialect.watch``."""
    source, catalogue, layout = _open(options, read_only=True)
    connection = catalogue.connection
    with ExitStack() as unless_it_works:
        unless_it_works.callback(connection.close)
        with translated(source, "set up the session"):
            connection.execute(statements.PLANNING)
        waiting = WaitingIntake.find(catalogue, source, options.intake) if options.intake else None
        session = Session(connection, source, prepare=options.prepare)
        view = PostgresView(session, layout, intake=waiting, origin=options.origin)
        unless_it_works.pop_all()
        return view


def open_dead_letters(options: PostgresOptions, *, read_only: bool) -> PostgresDeadLetters:
    """Connects to the dead letters; the work behind ``PostgresDialect.dead_letters``."""
    source, catalogue, layout = _open(options, read_only=read_only)
    return PostgresDeadLetters(catalogue.connection, source, layout)


def open_journal(options: PostgresOptions, *, read_only: bool) -> PostgresJournal:
    """Connects to the journal; the work behind ``PostgresDialect.journal``."""
    source, catalogue, layout = _open(options, read_only=read_only, for_journal=True)
    return PostgresJournal(catalogue.connection, source, layout)


def open_lease(options: PostgresOptions) -> PostgresLease:
    """Connects to the lease; the work behind ``PostgresDialect.lease``."""
    source, catalogue, layout = _open(options)
    with ExitStack() as unless_it_works:
        unless_it_works.callback(catalogue.connection.close)
        lease = PostgresLease(catalogue.connection, source, layout)
        lease.open()
        unless_it_works.pop_all()
    return lease


def open_members(options: PostgresOptions) -> PostgresMembers:
    """Connects to the list of members; the work behind ``PostgresDialect.members``."""
    source, catalogue, layout = _open(options)
    return PostgresMembers(catalogue.connection, source, layout)


@contextmanager
def open_catalogue(
    options: PostgresOptions, *, read_only: bool = True
) -> Iterator[tuple[DataSource, Catalogue]]:
    """Connects, whatever the tables are like, in a session like all others.

    Raises:
        DriverError: Unreachable (retryable) or refused (not).
    """
    source = DataSource(options)
    with connect(source) as connection:
        with translated(source, "set up the session"):
            _set_up(connection, options, read_only=read_only)
        yield source, Catalogue(connection)


def _open(
    options: PostgresOptions,
    eligible: Sequence[Condition] = (),
    *,
    read_only: bool = False,
    for_journal: bool = False,
) -> tuple[DataSource, Catalogue, Layout]:
    source = DataSource(options)
    connection = connect(source)
    with ExitStack() as unless_it_works:
        unless_it_works.callback(connection.close)
        with translated(source, "look at the outbox"):
            _set_up(connection, options, read_only=read_only)
            catalogue = Catalogue(connection)
            layout = find_layout(catalogue, options, writable=not read_only)
            inspector = Inspector(catalogue, options, read_only=read_only)
            inspector.require_journal(layout) if for_journal else inspector.require(layout, eligible)
        unless_it_works.pop_all()
    return source, catalogue, layout


def _set_up(connection: Connection, options: PostgresOptions, *, read_only: bool) -> None:
    if not options.prepare:
        connection.prepare_threshold = None
    timeouts = (options.lock_timeout, options.statement_timeout)
    connection.execute(statements.SESSION, [f"{seconds * 1000:.0f}ms" for seconds in timeouts])
    connection.watches = read_only
