"""The SQL Server dialect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from outbox_sdk import Capability, Finding
from outbox_sdk.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session, TableName
from outbox_sdk.portable.creation import first_note
from outbox_sdk.portable.tables import Tables

from outbox_sqlserver.check import findings
from outbox_sqlserver.ddl import guarded, noted_once, outbox_statements
from outbox_sqlserver.idiom import SqlServerIdiom
from outbox_sqlserver.options import SqlServerOptions
from outbox_sqlserver.session import SqlServerSession

_KNOWN = "SELECT OBJECT_SCHEMA_NAME(OBJECT_ID({table})), OBJECT_NAME(OBJECT_ID({table}))"


class SqlServerDialect(PortableDialect):
    """An outbox in a SQL Server database."""

    idiom: ClassVar[Idiom] = SqlServerIdiom()
    capabilities: ClassVar[frozenset[Capability]] = SERVER_CAPABILITIES
    session_type: ClassVar[type[Session]] = SqlServerSession
    options: SqlServerOptions

    @property
    def address(self) -> str:
        """The database in words, without secrets."""
        return self.options.source.address

    @property
    def secrets(self) -> Sequence[str]:
        """The password."""
        return [secret for secret in (self.options.source.password,) if secret]

    def open(self) -> Any:
        """Opens a connection whose transactions end with their first error."""
        from outbox_sqlserver.connection import connect  # noqa: PLC0415 - loads the driver only when needed

        return connect(self.options)

    def open_as_application(self) -> Any:
        """Opens a connection as an application would have."""
        from outbox_sqlserver.connection import connect_plain  # noqa: PLC0415 - as above

        return connect_plain(self.options)

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create the tables that do not exist, and note their version."""
        quoted, names = self.idiom.quote_table, self.options.tables
        tables = [guarded(quoted(table), "\n".join(each)) for table, each in self.tables(names).items()]
        notes, name = quoted(names.notes), self.idiom.known_as(names.outbox)
        return [*tables, noted_once(notes, name, first_note(self))]

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statements that create the outbox."""
        return outbox_statements(table, binary=self.options.binary)

    def names(self, session: Session) -> Tables:
        """Returns the tables' names; the outbox's with its schema, in the case that it was created with."""
        tables, table = self.options.tables, self.options.outbox
        rows = session.query("ask for the outbox's name", _KNOWN, table=self.idiom.quote_table(table))
        return tables._replace(outbox=TableName(*rows[0])) if rows and rows[0][0] else tables

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks version, encryption, isolation, durability, privileges and index."""
        return findings(session, self.options)
