"""The MySQL dialect: an outbox in MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

from outbox_sdk import Capability, Finding
from outbox_sdk.portable import (
    SERVER_CAPABILITIES,
    Idiom,
    PortableDialect,
    PortableIntake,
    Session,
    TableName,
)
from outbox_sdk.portable.tables import Tables

from outbox_mysql import ddl
from outbox_mysql.idiom import MySqlIdiom
from outbox_mysql.intake import MySqlIntake
from outbox_mysql.options import MySqlOptions

_KNOWN = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}
"""


class MySqlDialect(PortableDialect):
    """An outbox in a MySQL or MariaDB database."""

    idiom: ClassVar[Idiom] = MySqlIdiom()
    capabilities: ClassVar[frozenset[Capability]] = SERVER_CAPABILITIES | {Capability.SKIP_LOCKED}
    intake_type: ClassVar[type[PortableIntake]] = MySqlIntake
    options: MySqlOptions

    @property
    def address(self) -> str:
        """The server and the database in words, without secrets."""
        return self.options.source.address

    @property
    def secrets(self) -> Sequence[str]:
        """The password."""
        password = self.options.source.password
        return (password,) if password else ()

    def open(self) -> Any:
        """Opens a session for the harvester."""
        from outbox_mysql.connection import HarvestConnection  # noqa: PLC0415 - loads PyMySQL only when needed

        return HarvestConnection(self.options)

    def open_as_application(self) -> Any:
        """Opens a connection as an application would."""
        from outbox_mysql.connection import open_plain  # noqa: PLC0415 - loads PyMySQL only when needed

        return open_plain(self.options)

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statement that creates the outbox."""
        return [ddl.outbox(table, binary=self.options.binary)]

    def names(self, session: Session) -> Tables:
        """Returns the tables' names; the outbox's with its database, in the case that the server stores."""
        tables, table = self.options.tables, self.options.outbox
        place = {"schema": table.schema, "table": table.table}
        rows = session.query("ask for the outbox's name", _KNOWN, **place)
        return tables._replace(outbox=TableName(*rows[0])) if rows else tables

    def free_connections(self) -> int:
        """Returns how many more connections the server and the account permit."""
        from outbox_mysql.check import free_connections  # noqa: PLC0415 - for a check only

        with closing(self.session(watches=True)) as session:
            return free_connections(session)

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks the server's version and settings, the tables' types and the account's privileges."""
        from outbox_mysql.check import findings  # noqa: PLC0415 - for a check only

        yield from findings(session, self.options)
