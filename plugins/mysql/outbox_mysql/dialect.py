"""The MySQL dialect: an outbox in MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

from outbox_mysql import ddl
from outbox_mysql.idiom import MySqlIdiom
from outbox_mysql.intake import MySqlIntake
from outbox_mysql.options import MySqlOptions

_KNOWN = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}
"""

_KEY = """
SELECT data_type FROM information_schema.columns
WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}
    AND column_name = 'kafka_key'
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

    def create_statements(self) -> Mapping[TableName, Sequence[str]]:
        """Returns the statements that create outbox, fence and dead letters, by table."""
        options, quoted = self.options, self.idiom.quote_table
        return {
            options.outbox: [ddl.outbox(quoted(options.outbox), binary=options.binary)],
            options.fence: [ddl.fence(quoted(options.fence))],
            options.dead_letters: [ddl.find(quoted(options.dead_letters))],
        }

    def canonical_name(self, session: Session) -> TableName:
        """Returns the outbox's name with its database, in the case that the server stores."""
        table = self.options.outbox
        place = {"schema": table.schema, "table": table.table}
        rows = session.query("ask for the outbox's name", _KNOWN, **place)
        return TableName(*rows[0]) if rows else table

    def alterations(self, session: Session) -> Sequence[str]:
        """Adds that the key of a dead letter is of bytes if the outbox's is."""
        options = self.options
        with session.transaction("look at the columns of keys", reads=True):
            types = [
                [str(row[0]).lower() for row in session.fetch(_KEY, schema=table.schema, table=table.table)]
                for table in (options.outbox, options.dead_letters)
            ]
        binary = types[0] and types[0][0].endswith(("blob", "binary"))
        text = types[1] and not types[1][0].endswith("blob")
        wider = f"ALTER TABLE {self.idiom.quote_table(options.dead_letters)} MODIFY kafka_key LONGBLOB"
        return [*super().alterations(session), *([wider] if binary and text else [])]

    def free_connections(self) -> int:
        """Returns how many more connections the server and the account permit."""
        from outbox_mysql.check import free_connections  # noqa: PLC0415 - for a check only

        with closing(self.session(watches=True)) as session:
            return free_connections(session)

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks the server's version and settings, the tables' types and the account's privileges."""
        from outbox_mysql.check import findings  # noqa: PLC0415 - for a check only

        yield from findings(session, self.options)
