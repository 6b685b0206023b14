"""The SQL Server dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from outbox_sdk import Capability, Finding
from outbox_sdk.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session, TableName
from outbox_sdk.portable.creation import first_note, note_name, table_statements

from outbox_sqlserver.check import findings
from outbox_sqlserver.ddl import guarded, noted_once, tables
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
        quoted = self.idiom.quote_table
        tables = [guarded(quoted(table), "\n".join(table_statements(self, table))) for table in self.tables()]
        fence = quoted(self.options.fence)
        return [*tables, noted_once(fence, note_name(self), first_note(self))]

    def create_statements(self) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create outbox, fence and dead letters, by table."""
        return tables(self.options, self.idiom)

    def canonical_name(self, session: Session) -> TableName:
        """Returns the outbox's name with its schema, in the case that it was created with."""
        table = self.options.outbox
        rows = session.query("ask for the outbox's name", _KNOWN, table=self.idiom.quote_table(table))
        return TableName(*rows[0]) if rows and rows[0][0] else table

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks version, encryption, isolation, durability, privileges and index."""
        return findings(session, self.options)
