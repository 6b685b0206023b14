"""The Oracle dialect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from outbox_sdk import Capability, Finding, present_text
from outbox_sdk.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session, TableName
from outbox_sdk.portable.tables import Tables

from outbox_oracle.check import findings
from outbox_oracle.ddl import outbox_statements
from outbox_oracle.idiom import OracleIdiom
from outbox_oracle.names import canonical
from outbox_oracle.options import OracleOptions
from outbox_oracle.session import OracleSession


class OracleDialect(PortableDialect):
    """An outbox in an Oracle database."""

    idiom: ClassVar[Idiom] = OracleIdiom()
    capabilities: ClassVar[frozenset[Capability]] = SERVER_CAPABILITIES
    session_type: ClassVar[type[Session]] = OracleSession
    options: OracleOptions

    @property
    def address(self) -> str:
        """The database in words, without secrets."""
        return f"Oracle database at {self.options.source.address}"

    @property
    def secrets(self) -> Sequence[str]:
        """The passwords."""
        secrets = (self.options.source.password, present_text(self.options.wallet_password))
        return [secret for secret in secrets if secret]

    def open(self) -> Any:
        """Opens a connection whose commits wait for the disk, and which reads what is committed."""
        from outbox_oracle.connection import connect  # noqa: PLC0415 - loads the driver only when needed

        return connect(self.options)

    def open_as_application(self) -> Any:
        """Opens a connection as an application would have."""
        from outbox_oracle.connection import connect_plain  # noqa: PLC0415 - as above

        return connect_plain(self.options)

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statements that create the outbox."""
        return outbox_statements(table, binary=self.options.binary)

    def names(self, session: Session) -> Tables:
        """Returns the tables' names; that of the outbox with its schema."""
        table = self.options.outbox
        schema = "SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM SYS.dual"
        rows = session.query("ask for the schema", schema)
        named = table.within(f'"{rows[0][0]}"') if rows else table
        outbox = TableName(*(canonical(part) if part else "" for part in named))
        return self.options.tables._replace(outbox=outbox)

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks version, character set, durability, privileges, index and ids."""
        return findings(session, self.options)
