"""The SQL Server dialect: its tables, and its transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from outbox_api import Capability, Finding
from outbox_api.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds
from outbox_api.portable.creation import first_note

from outbox_sqlserver.check import findings
from outbox_sqlserver.idiom import BINARY, KEY_LENGTH, LISTED_IDS, SqlServerIdiom, octets
from outbox_sqlserver.options import SqlServerOptions

SHORT = 4_000
"""UTF-16 code units beyond which a text is sent as NVARCHAR(MAX), which no index is made for."""


class SqlServerSession(Session):
    """A connection as the dialect uses it."""

    def fetch(self, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """Executes a query in the transaction and returns its rows."""
        rows = super().fetch(sql, **values)
        self._finish()
        return rows

    def execute(self, sql: str, **values: object) -> int:
        """Executes a change in the transaction and returns how many rows it touched."""
        touched = super().execute(sql, **values)
        self._finish()
        return touched

    def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Executes a change for each of the rows, in order; so does the driver."""
        return sum(self.execute(sql, **row) for row in rows)

    def execute_by_ids(self, change: ChangeByIds, ids: Sequence[int], **values: object) -> int:
        """Executes a change of rows by their ids; returns how many it touched."""
        sql = self.idiom.change_by_ids(change, LISTED_IDS)
        return self.execute(sql, ids=json.dumps(list(ids)), **values) if ids else 0

    def fetch_by_ids(self, query: SelectByIds, ids: Sequence[int], **values: object) -> list[Sequence[Any]]:
        """Executes a query about ids."""
        return list(self.fetch(query.sql(LISTED_IDS), ids=json.dumps(list(ids)), **values)) if ids else []

    def execute_ddl(self, ddl: str) -> None:
        """Executes a statement that is sent as it stands."""
        super().execute_ddl(ddl)
        self._finish()

    def _described(self, sql: str) -> list[str]:
        names = super()._described(sql)
        self._finish()
        return names

    def _execute(self, sql: str, values: Mapping[str, object], ids: str = "") -> Any:
        return super()._execute(sql, {name: _typed(value) for name, value in values.items()}, ids)

    def _finish(self) -> None:
        """Reads a reply to its end. Otherwise the driver would cancel it before its next statement.

        With XACT_ABORT, a cancel may end the transaction.
        """
        while self._cursor.nextset():
            pass


def _typed(value: object) -> object:
    if not isinstance(value, str) or len(value.encode("utf-16-le", "surrogatepass")) > 2 * SHORT:
        return octets(value)
    from pytds.tds_base import Param  # noqa: PLC0415 - only who connects needs it
    from pytds.tds_types import NVarCharType  # noqa: PLC0415 - as above

    return Param(type=NVarCharType(size=SHORT), value=value)


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
    def dataset(self) -> tuple[str, str]:
        """The outbox as catalogs of data name it."""
        source = self.options.source
        names = (source.database or "master", *self.options.outbox.within("dbo"))
        return f"mssql://{source.host}:{source.port or 1433}", ".".join(names)

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
        names, created = self.options.tables, list[str]()
        for table, statements in self.tables(names).items():
            found = f"OBJECT_ID({self.idiom.literal(self.idiom.quote_table(table))}, N'U')"
            created.append("\n".join((f"IF {found} IS NULL\nBEGIN", *statements, "END")))
        notes, name = self.idiom.quote_table(names.notes), self.idiom.known_as(names.outbox)
        there = f"SELECT 1 FROM {notes} WHERE name = {name}"  # noqa: S608 - quoted
        return [*created, f"IF NOT EXISTS ({there})\n{first_note(self)}"]

    def outbox_statements(self, table: str) -> Sequence[str]:
        """Returns the statements that create the outbox."""
        value = "VARBINARY(MAX)" if self.options.binary else "NVARCHAR(MAX)"
        # Without lock escalation, no INSERT waits for a large change.
        outbox = f"""CREATE TABLE {table} (
    id BIGINT IDENTITY(1, 1) NOT NULL,
    create_time DATETIME2(6) NOT NULL DEFAULT SYSUTCDATETIME(),
    kafka_topic NVARCHAR(249) NOT NULL,
    kafka_key NVARCHAR({KEY_LENGTH}) COLLATE {BINARY} NOT NULL,
    kafka_value {value},
    kafka_header_keys NVARCHAR(MAX),
    kafka_header_values NVARCHAR(MAX),
    leader_id UNIQUEIDENTIFIER,
    PRIMARY KEY (id)
);
ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)"""
        return [outbox]

    def findings(self, session: Session) -> Iterator[Finding]:
        """Checks version, encryption, isolation, durability, privileges and index."""
        return findings(session, self.options)
