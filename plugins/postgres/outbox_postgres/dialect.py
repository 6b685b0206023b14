"""The PostgreSQL dialect: options, and connections made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, cast

from outbox_api import Capability, ColumnIs, Finding
from outbox_api.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session, TableName
from outbox_api.portable.creation import create, first_note
from outbox_api.portable.intakes import Connected
from outbox_api.portable.tables import Tables

from outbox_postgres.ddl import PostgresIdiom, once, outbox_ddl, tables_ddl
from outbox_postgres.options import PostgresOptions, QuotedName

if TYPE_CHECKING:
    from outbox_postgres.lease import PostgresLease
    from outbox_postgres.rows import PostgresDeadLetters
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

    def open(self) -> Any:
        """Opens a connection for the harvester."""
        return self.session().connection

    def open_as_application(self) -> Any:
        """Opens a psycopg connection as an application would have."""
        from outbox_postgres.connection import connect_as_application

        return connect_as_application(self.options)

    def stash_connection(self) -> Any:
        """Opens a psycopg connection with transactions on, as an application would have."""
        return self.open_as_application()

    def session(self, *, watches: bool = False) -> Session:
        """Connects, without a look at the tables."""
        from outbox_postgres.connection import open_session

        return open_session(self.options, watches=watches)

    def connect(self, eligible: Sequence[ColumnIs] = ()) -> PostgresTable:
        """Connects to the outbox and makes sure that it can be harvested."""
        from outbox_postgres.connection import open_table

        return open_table(self.options, eligible)

    def connect_intakes(self) -> Connected:
        """Connects to move rows of other tables into the outbox."""
        from outbox_postgres.connection import open_intakes

        return open_intakes(self.options)

    def watch(self) -> PostgresView:
        """Connects to the outbox to look at it."""
        from outbox_postgres.connection import open_view

        return open_view(self.options)

    def dead_letters(self, *, read_only: bool = False) -> PostgresDeadLetters:
        """Connects to the dead letters of the outbox, for an operator."""
        from outbox_postgres.connection import open_outbox
        from outbox_postgres.rows import PostgresDeadLetters

        session, _, layout = open_outbox(self.options, watches=read_only)
        return PostgresDeadLetters(session, layout)

    def lease(self) -> PostgresLease:
        """Connects to the outbox's lease."""
        from outbox_postgres.connection import open_lease

        return open_lease(self.options)

    def _required(self, session: Session, more: str = "") -> Tables:
        from outbox_postgres.connection import require

        return require(cast("PostgresSession", session), self.options, more=more)[1].known

    def free_connections(self) -> int:
        """Returns how many more connections the server, the database and the role permit."""
        from outbox_postgres.check import free_connections

        return free_connections(self.options)

    def find_outboxes(self, pattern: str) -> Sequence[str]:
        """Returns the names of the outboxes in the database that match a pattern, as names fold in SQL."""
        from outbox_postgres.connection import find_outboxes

        return find_outboxes(self.options, pattern)

    def names(self, session: Session) -> Tables:
        """Returns the tables' names with their schemas."""
        from outbox_postgres.creation import placed

        return placed(cast("PostgresSession", session), self.options)

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statements that create the outbox."""
        return outbox_ddl(self.options, QuotedName.parse(table))

    def tables(self, names: Tables) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create the tables, by table."""
        return tables_ddl(self.options, names)

    def additions(self, session: Session) -> Sequence[Sequence[str]]:
        """Returns what ``outbox init`` adds to tables that exist."""
        from outbox_postgres.creation import additions

        return additions(cast("PostgresSession", session), self.options, self.names(session))

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create what does not exist of the outbox."""
        tables = self.tables(self.options.tables)
        created = [once(statement) for statements in tables.values() for statement in statements]
        return [*created, f"{first_note(self)} ON CONFLICT (name) DO NOTHING"]

    def create(self) -> Sequence[str]:
        """Creates what does not exist of the outbox, and notes its version."""
        from outbox_postgres.creation import without_time_outs

        with closing(self.session()) as session:
            return create(self, without_time_outs(cast("PostgresSession", session)))

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side."""
        from outbox_postgres.check import check

        return check(self)
