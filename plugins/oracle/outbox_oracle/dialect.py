"""The Oracle dialect: its tables, and its transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby
from typing import Any, ClassVar

from outbox_api import Capability, Finding, present_text
from outbox_api.portable import SERVER_CAPABILITIES, Idiom, PortableDialect, Session, TableName
from outbox_api.portable.by_ids import ChangeByIds, SelectByIds
from outbox_api.portable.tables import Tables
from outbox_api.support.statement import Statement, Style

from outbox_oracle.check import findings
from outbox_oracle.idiom import OracleIdiom
from outbox_oracle.options import OracleOptions, canonical

IN_ORDER = "(CACHE 1000 ORDER)"
"""Without ORDER, each instance of a cluster takes ids from a range of its own: a later id may be lower."""

ROOM = " PCTFREE 30"
"""A mark makes a row longer; without room in its block, the row would migrate to another."""


FETCHED = 1_000
"""Rows that one round trip fetches."""

LISTED = (1, 10, 100, 1_000)
"""How many ids a query lists: few sizes make few texts to parse. A thousand is Oracle's limit."""

LONG = 4_000
"""Characters or bytes beyond which a value is sent as a large object, outside of arrays."""

_statement = lru_cache(maxsize=256)(Statement)


class OracleSession(Session):
    """A connection as the dialect uses it."""

    @contextmanager
    def transaction(self, doing: str, *, reads: bool = False) -> Iterator[None]:
        """Makes what is executed within durable together."""
        with super().transaction(doing, reads=reads):
            self._cursor.arraysize = FETCHED
            self._cursor.prefetchrows = FETCHED + 1
            yield

    def execute(self, sql: str, **values: object) -> int:
        """Executes a change in the transaction and returns how many rows it touched."""
        return super().execute(sql, **self._bound(values))

    def execute_many(self, sql: str, rows: Sequence[Mapping[str, object]]) -> int:
        """Executes a change for each of the rows, in order: in arrays of one type each, long values alone."""
        statement = _statement(sql, Style.NAMED)
        bound = [statement.arguments(self._bound(row)) for row in rows]
        touched = 0
        for shape, group in groupby(bound, _shape):
            if None in shape:
                for row in group:
                    self._cursor.execute(statement.text, row)
                    touched += int(self._cursor.rowcount)
            else:
                self._cursor.executemany(statement.text, list(group))
                touched += int(self._cursor.rowcount)
        return touched

    def execute_by_ids(self, change: ChangeByIds, ids: Sequence[int], **values: object) -> int:
        """Executes a change for each of the ids, in array binds; returns how many rows it touched."""
        statement = _statement(self.idiom.change_by_ids(change, "{row_id}"), Style.NAMED)
        rows = [statement.arguments({**values, "row_id": number}) for number in ids]
        size, touched = self.idiom.max_ids, 0
        for start in range(0, len(rows), size):
            self._cursor.executemany(statement.text, rows[start : start + size])
            touched += int(self._cursor.rowcount)
        return touched

    def fetch_by_ids(self, query: SelectByIds, ids: Sequence[int], **values: object) -> list[Sequence[Any]]:
        """Executes a query for rows by their ids, which are bound; pads a list with its last id."""
        found: list[Sequence[Any]] = []
        for start in range(0, len(ids), LISTED[-1]):
            part = ids[start : start + LISTED[-1]]
            size = next(size for size in LISTED if size >= len(part))
            padded = [*part, *[part[-1]] * (size - len(part))]
            bound = {f"id{place}": number for place, number in enumerate(padded)}
            listed = ", ".join(f"{{{name}}}" for name in bound)
            found += self.fetch(query.sql(listed), **values, **bound)
        return found

    def _bound(self, values: Mapping[str, Any]) -> dict[str, object]:
        return {
            name: self.idiom.value_parameter(value) if name == "kafka_value" else value
            for name, value in values.items()
        }


def _shape(row: Any) -> tuple[type | None, ...]:
    """Returns the type of each value, or nothing for one that is long."""
    values = row.values()
    return tuple(
        None if isinstance(value, str | bytes) and len(value) > LONG else type(value) for value in values
    )


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
    def dataset(self) -> tuple[str, str]:
        """The outbox as catalogs of data name it; of a name that only the client resolves, that name."""
        source = self.options.source
        server, _, service = source.address.rpartition("://")[2].rpartition("/")
        names = (service if server else "", *self.options.outbox.within(source.user.upper()))
        return f"oracle://{server or service}", ".".join(filter(None, names))

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
        value = "BLOB" if self.options.binary else "CLOB"
        # A column that may hold an empty text is nullable: Oracle stores it as null.
        outbox = f"""CREATE TABLE {table} (
    id NUMBER(19) GENERATED BY DEFAULT ON NULL AS IDENTITY {IN_ORDER} NOT NULL,
    create_time TIMESTAMP(6) WITH TIME ZONE DEFAULT SYSTIMESTAMP NOT NULL,
    kafka_topic VARCHAR2(249 CHAR),
    kafka_key VARCHAR2(4000 BYTE),
    kafka_value {value},
    kafka_header_keys CLOB,
    kafka_header_values CLOB,
    leader_id RAW(16),
    PRIMARY KEY (id)
){ROOM}"""
        return [outbox]

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
