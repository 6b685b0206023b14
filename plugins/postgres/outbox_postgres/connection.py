"""Opens connections, checks the tables that they lead to, and finds outboxes by a pattern of their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from outbox_api import ColumnIs, DriverError
from outbox_api.full_server import pace_of
from outbox_api.portable.dialect import SCAN_PATIENCE
from outbox_api.portable.intakes import Connected
from outbox_api.portable.outboxes import TELLING_COLUMNS, TablePattern
from outbox_api.portable.session import closing_at_errors
from outbox_api.portable.statements import Statements
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from outbox_postgres import statements
from outbox_postgres.catalogue import Catalogue
from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.inspector import Inspector
from outbox_postgres.intake import SCANNING, PostgresIntake, waiting_rows
from outbox_postgres.layout import TABLE_KINDS, Layout, find_layout
from outbox_postgres.lease import PostgresLease
from outbox_postgres.options import PostgresOptions
from outbox_postgres.scan_starts import provable
from outbox_postgres.search_path import Connection
from outbox_postgres.session import Session
from outbox_postgres.table import PostgresTable
from outbox_postgres.view import PostgresView


def connect(source: DataSource) -> Connection:
    """Connects in autocommit mode, with parameters numbered as in the server's own protocol.

    Names and operators mean what the server's catalogue says, see :mod:`outbox_postgres.search_path`.
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
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            raise DriverError(
                f"{source} has no encoding (SQL_ASCII), so that its texts may be of any; use a database with "
                "ENCODING UTF8",
                retryable=False,
            )
        connection.leave_search_path()
        unless_it_works.pop_all()
    return connection


def connect_as_application(options: PostgresOptions) -> psycopg.Connection[Any]:
    """Connects as psycopg does by default; the work behind ``PostgresDialect.stash_connection``."""
    source = DataSource(options)
    with translated(source, "connect"):
        return psycopg.connect(make_conninfo(**source.parameters))


def open_table(options: PostgresOptions, eligible: Sequence[ColumnIs]) -> PostgresTable:
    """Connects to the outbox; the work behind ``PostgresDialect.connect``."""
    session, catalogue, layout = open_outbox(options, eligible)
    with closing_at_errors(session):
        _plan(session)
        if not (options.skip_settled and provable(layout, eligible, options.origin)):
            layout = replace(layout, sequence=None)  # so marks always read from the head
        intakes = []
        for intake in options.intakes:
            with suppress(DriverError):  # lanes go on without it
                intakes.append(waiting_rows(session, catalogue, intake))
        return PostgresTable(session, layout, eligible, intakes=intakes, origin=options.origin)


def open_intakes(options: PostgresOptions) -> Connected:
    """Connects to take rows in; the work behind ``PostgresDialect.connect_intakes``."""
    # A scan may read a whole table.
    patient = replace(options, statement_timeout=SCAN_PATIENCE * options.statement_timeout)
    session, catalogue, layout = open_outbox(patient)
    with closing_at_errors(session), session.translated("set up the session"):
        session.connection.execute(SCANNING)
    statements = Statements(session.idiom, layout.known)
    return Connected(session, statements, layout.name, partial(PostgresIntake, catalogue, session, layout))


def open_view(options: PostgresOptions) -> PostgresView:
    """Connects to look at the outbox; the work behind ``PostgresDialect.watch``."""
    session, catalogue, layout = open_outbox(options, watches=True)
    with closing_at_errors(session):
        _plan(session)
        intakes = [waiting_rows(session, catalogue, intake) for intake in options.intakes]
        return PostgresView(session, layout, intakes=intakes, origin=options.origin)


def open_lease(options: PostgresOptions) -> PostgresLease:
    """Connects to the lease; the work behind ``PostgresDialect.lease``."""
    session, _, layout = open_outbox(options, more="lease")
    with closing_at_errors(session):
        return PostgresLease(session, layout)


def open_session(options: PostgresOptions, *, watches: bool = False) -> Session:
    """Connects, whatever the tables are like, with the settings of all sessions."""
    source = DataSource(options)
    connection = connect(source)
    with ExitStack() as unless_it_works, translated(source, "set up the session"):
        unless_it_works.callback(connection.close)
        if not options.prepare:
            connection.prepare_threshold = None
        timeouts = (options.lock_timeout, options.statement_timeout)
        connection.execute(statements.SESSION, [f"{seconds * 1000:.0f}ms" for seconds in timeouts])
        connection.watches = watches
        unless_it_works.pop_all()
    return Session(connection, source, prepare=options.prepare)


def open_outbox(
    options: PostgresOptions, eligible: Sequence[ColumnIs] = (), *, watches: bool = False, more: str = ""
) -> tuple[Session, Catalogue, Layout]:
    """Connects to an outbox that is as whoever uses it needs it."""
    session = open_session(options, watches=watches)
    return session, *require(session, options, eligible, more)


def require(
    session: Session, options: PostgresOptions, eligible: Sequence[ColumnIs] = (), more: str = ""
) -> tuple[Catalogue, Layout]:
    """Makes sure that an outbox is as whoever uses it needs it; closes the session if it is not."""
    watches = session.connection.watches
    with closing_at_errors(session), session.translated("look at the outbox"):
        catalogue = Catalogue(session.connection)
        layout = find_layout(catalogue, options, writable=not watches)
        inspector = Inspector(catalogue, options, read_only=watches)
        if more == "journal":
            inspector.require_journal(layout)
        else:
            inspector.require(layout, eligible, more)
    return catalogue, layout


def _plan(session: Session) -> None:
    with session.translated("set up the session"):
        session.connection.execute(statements.PLANNING)


_FOUND = """
SELECT n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind::text = ANY ($1::text[]) AND NOT c.relispartition AND c.relpersistence <> 't'
  AND ($2 OR n.nspname::text = $4)
  AND EXISTS (
      SELECT FROM pg_roles AS r
      WHERE r.oid = c.relowner AND (
          r.rolname = current_user OR r.rolsuper OR r.rolname::text ~ ANY ($5::text[])
          OR r.oid = (SELECT datdba FROM pg_database WHERE datname = current_database())))
  AND (SELECT count(*) FROM pg_attribute AS a
       WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname::text = ANY ($3::text[]))
      = cardinality($3::text[])
"""


def find_outboxes(options: PostgresOptions, pattern: str) -> Sequence[str]:
    """Finds outboxes; the work behind ``PostgresDialect.find_outboxes``."""
    wanted = TablePattern(pattern, options.table_name, flags=re.NOFLAG)
    with closing(open_session(options)) as session, session.translated("look for outboxes"):
        connection = session.connection
        first = next(iter(connection.schemas), None)
        owners = [f"^({'.*'.join(map(re.escape, each.split('*')))})$" for each in options.owners]
        values = (list(TABLE_KINDS), bool(wanted.schema), list(TELLING_COLUMNS), first, owners)
        return wanted.names(connection.execute(_FOUND, values).fetchall())
