"""The PostgreSQL dialect: options, and connections made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from outbox_api import Capability, ColumnIs, DriverError, Finding
from outbox_api.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session, TableName
from outbox_api.portable.creation import create, first_note
from outbox_api.portable.intakes import Connected
from outbox_api.portable.session import closing_at_errors
from outbox_api.portable.statements import Statements
from outbox_api.portable.tables import Tables

from outbox_postgres.ddl import (
    PostgresIdiom,
    once,
    outbox_ddl,
    parked_index,
    parked_index_ddl,
    sequence_ddl,
    sequence_of,
    tables_ddl,
)
from outbox_postgres.options import PostgresOptions, QuotedName
from outbox_postgres.origin_columns import due_columns

if TYPE_CHECKING:
    from outbox_postgres.layout import Layout
    from outbox_postgres.lease import PostgresLease
    from outbox_postgres.rows import PostgresDeadLetters, PostgresKept
    from outbox_postgres.session import Session as PostgresSession
    from outbox_postgres.table import PostgresTable
    from outbox_postgres.view import PostgresView

# ruff: noqa: PLC0415 - psycopg is loaded only when it is needed: listing the drivers must not need it


class PostgresDialect(PortableDialect):
    """An outbox in a PostgreSQL database."""

    idiom: ClassVar[Idiom] = PostgresIdiom()
    capabilities: ClassVar[frozenset[Capability]] = SERVER_CAPABILITIES | {Capability.SKIP_LOCKED}
    options: PostgresOptions

    @property
    def address(self) -> str:
        """The database and the server in words, without secrets."""
        from outbox_postgres.data_source import DataSource

        return str(DataSource(self.options))

    @property
    def dataset(self) -> tuple[str, str]:
        """The outbox as catalogs of data name it; of several servers the first, of schemas ``public``."""
        from outbox_postgres.data_source import DataSource

        known = {"host": "localhost", "port": "5432", "user": "postgres"} | DataSource(
            self.options
        ).parameters
        host, port = (known[name].partition(",")[0].rpartition("@")[2] for name in ("host", "port"))
        names = (known.get("dbname", known["user"]), *self.options.outbox.within("public"))
        return f"postgres://{host}:{port}", ".".join(names)

    @property
    def secrets(self) -> Sequence[str]:
        """The passwords."""
        from outbox_postgres.data_source import DataSource

        return DataSource(self.options).secrets

    def open(self) -> Any:
        """Opens a connection for the harvester."""
        from outbox_postgres.connection import connect

        return connect(self.options)

    def open_as_application(self) -> Any:
        """Opens a psycopg connection as an application would have."""
        from outbox_postgres.connection import connect_as_application

        return connect_as_application(self.options)

    def plain_session(self) -> PostgresSession:
        """Connects without the settings of a session that harvests or looks."""
        from outbox_postgres.connection import connect

        return cast("PostgresSession", self._session(partial(connect, self.options, plain=True)))

    def session(self, *, watches: bool = False) -> PostgresSession:
        """Connects, without a look at the tables."""
        return cast("PostgresSession", super().session(watches=watches))

    def _over(self, connection: Any, *, watches: bool) -> Session:
        from outbox_postgres.session import Session as PostgresSession

        return PostgresSession(connection, self.idiom, self.address, self.secrets, watches=watches)

    def connect(self, eligible: Sequence[ColumnIs] = ()) -> PostgresTable:
        """Connects to the outbox and makes sure that it can be harvested."""
        from outbox_postgres.intake import waiting_rows
        from outbox_postgres.scan_starts import provable
        from outbox_postgres.table import PostgresTable

        session, options = self.session(), self.options
        layout = self._found(session, eligible, "kept" if options.keep else "")
        if not (options.skip_settled and provable(layout, eligible, options.origin)):
            layout = replace(layout, sequence=None)  # so marks always read from the head
        with closing_at_errors(session):
            session.plan()
            intakes = []
            for intake in options.intakes:
                with suppress(DriverError):  # lanes go on without it
                    intakes.append(waiting_rows(session, intake))
            return PostgresTable(session, layout, eligible, intakes=intakes, origin=options.origin)

    def watch(self) -> PostgresView:
        """Connects to the outbox to look at it."""
        from outbox_postgres.intake import waiting_rows
        from outbox_postgres.view import PostgresView

        session, options = self.session(watches=True), self.options
        layout = self._found(session)
        with closing_at_errors(session):
            session.plan()
            intakes = [waiting_rows(session, intake) for intake in options.intakes]
            return PostgresView(session, layout, intakes=intakes, origin=options.origin)

    def connect_intakes(self) -> Connected:
        """Connects to move rows of other tables into the outbox."""
        from outbox_postgres.intake import SCANNING, PostgresIntake

        session = self.patient().session()
        layout = self._found(session)
        with closing_at_errors(session), session.translated("set up the session"):
            session.connection.execute(SCANNING)
        look = partial(PostgresIntake, session, layout)
        return Connected(session, Statements(self.idiom, layout.tables), layout.name, look)

    def dead_letters(self, *, read_only: bool = False) -> PostgresDeadLetters:
        """Connects to the dead letters of the outbox, for an operator."""
        from outbox_postgres.rows import PostgresDeadLetters

        session = self.session(watches=read_only)
        return PostgresDeadLetters(session, self._found(session))

    def kept(self, *, read_only: bool = False) -> PostgresKept:
        """Connects to the kept records of the outbox."""
        from outbox_postgres.rows import PostgresKept

        session = self.kept_session(read_only=read_only)
        return PostgresKept(session, self._required(session, "kept"))

    def kept_session(self, *, read_only: bool = False) -> PostgresSession:
        """Connects to look for kept records by ranges of positions."""
        session = self.patient().session(watches=read_only)
        with closing_at_errors(session):
            session.find_by_ranges()
        return session

    def lease(self) -> PostgresLease:
        """Connects to the outbox's lease."""
        from outbox_postgres.lease import PostgresLease

        session = self.session()
        layout = self._found(session, more="lease")
        with closing_at_errors(session):
            return PostgresLease(session, layout)

    def _found(self, session: PostgresSession, eligible: Sequence[ColumnIs] = (), more: str = "") -> Layout:
        """Makes sure that the outbox is as whoever uses it needs it; closes the session if it is not."""
        from outbox_postgres.inspector import require

        with closing_at_errors(session), session.translated("look at the outbox"):
            return require(session, self.options, eligible, more)

    def _required(self, session: Session, more: str = "") -> Tables:
        return self._found(cast("PostgresSession", session), more=more).tables

    def free_connections(self) -> int:
        """Returns how many more connections the server, the database and the role permit."""
        from outbox_postgres.check_queries import FREE_CONNECTIONS

        with closing(self.plain_session()) as session:
            rows = session.rows(FREE_CONNECTIONS, (), "count the connections")
        return max(0, int(rows[0][0])) if rows else 0

    def find_outboxes(self, pattern: str) -> Sequence[str]:
        """Returns the names of the outboxes in the database that match a pattern, as names fold in SQL."""
        from outbox_postgres.catalogue import Catalogue

        wanted = self.options.table_pattern(pattern)
        with closing(self.session()) as session, session.translated("look for outboxes"):
            found = Catalogue(session.connection).outboxes(
                self.options.owners, everywhere=bool(wanted.schema)
            )
        return wanted.names(found)

    def names(self, session: Session) -> Tables:
        """Returns the tables' names with their schemas."""
        from outbox_postgres.catalogue import Catalogue

        wanted, connection = self.options.outbox, session.connection
        with cast("PostgresSession", session).translated(f"look for table {wanted}"):
            found = Catalogue(connection).find(wanted)
            outbox = TableName(*(found.name if found else connection.new(wanted)))
        tables = (TableName(*table.within(outbox.schema)) for table in self.options.tables)
        return Tables(*tables)._replace(outbox=outbox)

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statements that create the outbox."""
        return outbox_ddl(self.options, QuotedName.parse(table))

    def tables(self, names: Tables) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create the tables, by table."""
        return {**tables_ddl(self.options, names), **self.kept_tables(names)}

    def additions(self, session: Session) -> Sequence[Sequence[str]]:
        """Returns what ``outbox init`` adds to tables that exist; no row is written.

        That is the sequence of the lease, the index of the parked keys, and what the affinity asks for.
        """
        from outbox_postgres.catalogue import Catalogue

        names, catalogue = self.names(session), Catalogue(session.connection)
        outbox, letters = QuotedName(*names.outbox), QuotedName(*names.dead_letters)
        due: list[Sequence[str]] = []
        with cast("PostgresSession", session).translated("look at the tables"):
            if not catalogue.find(parked_index(letters)):
                due.append([parked_index_ddl(letters)])
            if not catalogue.find(sequence := sequence_of(outbox)):
                due.append([sequence_ddl(sequence)])
            found = catalogue.find(outbox)
            if found and (origin := self.options.origin):
                if columns := due_columns(outbox, origin, catalogue.columns(found.oid)):
                    due.append(columns)
                if origin.column not in catalogue.indexed(found.oid):
                    due.append([self.idiom.create_index(outbox, (origin.column, "id"))])
        return due

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create what does not exist of the outbox."""
        tables = self.tables(self.options.tables)
        created = [once(statement) for statements in tables.values() for statement in statements]
        return [*created, f"{first_note(self)} ON CONFLICT (name) DO NOTHING"]

    def create(self) -> Sequence[str]:
        """Creates what does not exist of the outbox, and notes its version."""
        with closing(self.session()) as session:
            # An index of a large table may take its time, but nobody waits for a lock for long.
            session.connection.patience = None
            with session.translated("set up the session"):
                session.connection.execute(f"SET statement_timeout = 0; {self.idiom.brief_locks}")
            return create(self, session)

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side."""
        from outbox_postgres.check import check

        return check(self, self.plain_session)
