"""Reads the tables of an outbox from the catalogue, and checks that it can be harvested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from outbox_sdk import AccessDenied, Condition, DriverError, Fence
from outbox_sdk.portable import TableName
from outbox_sdk.portable.columns import EXTRAS

from outbox_postgres.auxiliary_tables import AuxiliaryTable, auxiliary_tables, grant
from outbox_postgres.errors import ALREADY_THERE
from outbox_postgres.fault import Fault
from outbox_postgres.names import QuotedName
from outbox_postgres.options import PostgresOptions
from outbox_postgres.origin_columns import Column, affinity_faults, due_columns, index_ddl
from outbox_postgres.search_path import Connection
from outbox_postgres.sql_ascii import is_raw

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       coalesce(nullif(b.typname, ''), t.typname), a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_type AS b ON b.oid = nullif(t.typbasetype, 0)
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
_TABLE = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text
FROM unnest($1::text[]) WITH ORDINALITY AS candidate (name, place)
JOIN pg_class AS c ON c.oid = to_regclass(candidate.name) JOIN pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY candidate.place LIMIT 1
"""
_PRIVILEGES = """
SELECT wanted FROM unnest($2::text[]) AS wanted
WHERE NOT CASE WHEN wanted = 'UPDATE' THEN has_any_column_privilege($1::oid, wanted)
               ELSE has_table_privilege($1::oid, wanted) END
"""
_OWNS = """
SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::oid
"""
_SEQUENCE = """
SELECT s.seqrelid::bigint
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind = 'r'
JOIN pg_depend AS o ON o.refclassid = 'pg_class'::regclass AND o.refobjid = a.attrelid
                   AND o.refobjsubid = a.attnum AND o.classid = 'pg_class'::regclass
                   AND o.deptype IN ('a', 'i')
JOIN pg_sequence AS s ON s.seqrelid = o.objid
WHERE a.attrelid = $1 AND a.attname = 'id'
  AND s.seqcache = 1 AND s.seqincrement > 0 AND NOT s.seqcycle
  AND (a.attidentity <> '' OR EXISTS (
      SELECT FROM pg_attrdef AS f
      JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
      WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND d.refobjid = s.seqrelid))
"""
_REPLICATED = "SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = $1::oid)"
_INDEXED = """
SELECT a.attname
FROM pg_index AS i
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
JOIN pg_attribute AS d ON d.attrelid = i.indrelid AND d.attnum = i.indkey[1]
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_am AS m ON m.oid = c.relam AND m.amname = 'btree'
WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND d.attname = 'id'
  AND i.indnkeyatts >= 2 AND i.indoption[0] = 0 AND i.indoption[1] = 0
"""
_SERVER = """
SELECT current_database(), current_user, pg_is_in_recovery(), current_setting('transaction_read_only')
"""

_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
_TEXT_ARRAYS = frozenset({f"_{text}" for text in _TEXTS})
WANTED: dict[str, tuple[frozenset[str], str, str]] = {
    "id": (frozenset({"int8", "int4"}), "bigint", "bigint"),
    "create_time": (frozenset({"timestamptz", "timestamp"}), "timestamp with time zone", "timestamptz"),
    "kafka_topic": (_TEXTS, "varchar or text", "text"),
    "kafka_key": (_TEXTS, "varchar or text", "text"),
    "kafka_value": (_TEXTS | {"bytea"}, "varchar, text or bytea", "text"),
    "kafka_header_keys": (_TEXT_ARRAYS, "text[]", "text[]"),
    "kafka_header_values": (_TEXT_ARRAYS, "text[]", "text[]"),
    "leader_id": (frozenset({"uuid"}), "uuid", "uuid"),
}
"""Column → the types that it can have, their name in messages, and the type to recommend."""

OUTBOX_PRIVILEGES = ("SELECT", "UPDATE", "DELETE")
UPGRADE_PATIENCE = "1s"
"""How long ALTER TABLE waits for its lock."""

TABLE_KINDS = {"r": "table", "p": "partitioned table"}
OTHER_KINDS = {"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence", "i": "index"}


@dataclass(frozen=True, slots=True)
class Layout:
    """An outbox as it is in the database.

    Attributes:
        outbox: The table with its schema.
        fence: The fence table with its schema.
        dead_letters: The table of dead letters with its schema.
        binary: Whether values are bytes.
        raw: Whether the database has no encoding, see ``sql_ascii``.
        time: The base type of ``create_time``.
        extras: Whether the outbox has columns for partition and timestamp.
        oid: The outbox table's object id.
        sequence: The object id of the sequence that generates all ids that are given out here, in order, or
            ``None`` if they may come from elsewhere: a cache, the application.
        replicated: Whether a subscription writes the outbox, with ids of other databases.
        indexed: The columns that an index begins with, before ``id``.
        database: The database's name.
        user: The connection's current user.
    """

    outbox: TableName
    fence: TableName
    dead_letters: TableName
    binary: bool
    raw: bool
    time: str
    extras: bool
    oid: int
    sequence: int | None
    replicated: bool
    indexed: frozenset[str]
    database: str
    user: str

    @property
    def name(self) -> str:
        """The outbox's name in its auxiliary tables, however the configuration spells the table."""
        return f"{self.outbox.schema}.{self.outbox.table}"

    def held(self, fence: Fence) -> tuple[str, int, int, int, int]:
        """Returns a fence as statements compare it."""
        return (self.name, fence.lane, fence.lanes, fence.token, fence.epoch)


class Inspector:
    """Reads the layout over one connection; psycopg's errors pass through."""

    def __init__(self, connection: Connection, options: PostgresOptions) -> None:
        self._connection = connection
        self._options = options

    def layout(self) -> Layout:
        """Finds the outbox table, and the names of its auxiliary tables.

        Raises:
            DriverError: The server is read-only (retryable: a failover may be going on), or there is no
                such table.
        """
        database, user, in_recovery, read_only = self._rows(_SERVER)[0]
        if in_recovery or read_only == "on":
            state = "a standby" if in_recovery else "read-only"
            raise DriverError(
                f"the server of database '{database}' is {state}; name the primary in dataSource, or several "
                "hosts with target_session_attrs=read-write",
                retryable=True,
            )
        wanted = self._options.outbox
        found = self._rows(_TABLE, self._connection.candidates(wanted))
        if not found:
            path = f"the search path ({', '.join(self._connection.schemas)})"
            where = f"schema '{wanted.schema}'" if wanted.schema else path
            raise DriverError(
                f"user '{user}' sees no table '{wanted.table}' in {where} of database '{database}'; "
                "run 'outbox init', correct outboxTable, or grant USAGE on its schema",
                retryable=False,
            )
        oid, schema, table, kind = found[0]
        if kind not in TABLE_KINDS:
            kind = OTHER_KINDS.get(kind, "something else")
            raise DriverError(
                f"'{schema}.{table}' is not a table but a {kind}; name the table itself", retryable=False
            )
        sequence = self._rows(_SEQUENCE, oid)
        columns = self.columns(oid)
        value, time = columns.get("kafka_value"), columns.get("create_time")
        return Layout(
            outbox=QuotedName(schema, table),
            fence=self._options.fence.within(schema),
            dead_letters=self._options.dead_letters.within(schema),
            binary=value is not None and value.base == "bytea",
            raw=is_raw(self._connection),
            time=time.base if time else "timestamptz",
            extras=columns.keys() >= set(EXTRAS),
            oid=oid,
            sequence=sequence[0][0] if sequence else None,
            replicated=self._rows(_REPLICATED, oid)[0][0],
            indexed=frozenset(row[0] for row in self._rows(_INDEXED, oid)),
            database=database,
            user=user,
        )

    def require(self, layout: Layout, eligible: Sequence[Condition]) -> None:
        """Checks that the outbox can be harvested, and creates its auxiliary tables if they do not exist.

        Raises:
            DriverError: It cannot be harvested (not retryable); the message says why and what to do.
        """
        faults = list(self.faults(layout, eligible))
        beside = auxiliary_tables(layout.fence, layout.dead_letters)
        if not faults:
            for table in beside:
                self.upgrade(table)
            faults = [fault for table in beside for fault in self.auxiliary_faults(layout, table)]
        if not faults:
            faults = [fault for table in beside for fault in self._make(layout, table)]
        if faults:
            reasons = "; ".join(f"{fault.message}: {fault.cure}" for fault in faults)
            message = f"outbox {layout.outbox} in database '{layout.database}' cannot be harvested: {reasons}"
            if all(fault.refusal for fault in faults):
                raise AccessDenied(message)
            raise DriverError(message, retryable=False)

    def faults(self, layout: Layout, eligible: Sequence[Condition] = ()) -> Iterator[Fault]:
        """Returns what is wrong with the outbox table."""
        columns = self.columns(layout.oid)
        for name, (bases, wanted, type_) in WANTED.items():
            alter = f"ALTER TABLE {layout.outbox}"
            column = columns.get(name)
            if column is None:
                yield Fault(f"column '{name}' is missing", f"{alter} ADD COLUMN {name} {type_}")
            elif column.base not in bases:
                yield Fault(
                    f"column '{name}' has type {column.type} and must be {wanted}",
                    f"{alter} ALTER COLUMN {name} TYPE {type_} USING {name}::{type_}",
                )
        yield from affinity_faults(layout.outbox, eligible, self._options.origin, columns)
        yield from self._privilege_faults(layout, layout.oid, layout.outbox, OUTBOX_PRIVILEGES)

    def add_origin(self, layout: Layout) -> None:
        """Adds the columns and the index that the affinity asks for, where an existing table lacks them.

        Idempotent; writes no row.
        """
        origin = self._options.origin
        if origin is None:
            return
        if due := due_columns(layout.outbox, origin, self.columns(layout.oid)):
            self._alter(*due)
        if origin.column not in layout.indexed:
            self._connection.execute(index_ddl(layout.outbox, origin, anew=True))

    def auxiliary_faults(self, layout: Layout, table: AuxiliaryTable) -> Iterator[Fault]:
        """Says what is wrong with a table of the outbox; nothing where there is none."""
        oid = self.auxiliary_oid(table)
        if oid is not None:
            yield from table.column_faults(self.columns(oid))
            yield from self._privilege_faults(layout, oid, table.name, table.privileges)

    def upgrade(self, table: AuxiliaryTable) -> None:
        """Adds the columns that a table made by an earlier version lacks, where the user may."""
        if statement := self.due_upgrade(table):
            self._alter(statement)

    def due_upgrade(self, table: AuxiliaryTable) -> str | None:
        """Returns what :meth:`upgrade` would run; ``None`` also where the user may not."""
        oid = self.auxiliary_oid(table) if table.additions else None
        statement = table.upgrade(self.columns(oid)) if oid is not None else None
        return statement if statement and self._rows(_OWNS, oid)[0][0] else None

    def columns(self, oid: int) -> dict[str, Column]:
        """Returns a table's columns by name."""
        return {row[0]: Column(*row) for row in self._rows(_COLUMNS, oid)}

    def auxiliary_oid(self, table: AuxiliaryTable) -> int | None:
        """Returns the object id of a table's table, or ``None`` where there is none."""
        found = self.find(table.name)
        return found[0] if found else None

    def find(self, table: TableName) -> tuple[int, TableName] | None:
        """Returns the object id of a table and its name with its schema, or ``None`` if there is none."""
        found = self._rows(_TABLE, self._connection.candidates(table))
        return (found[0][0], QuotedName(found[0][1], found[0][2])) if found else None

    def missing_privileges(self, oid: int, wanted: Sequence[str]) -> list[str]:
        """Returns those of the wanted privileges that the user lacks on a table."""
        return [row[0] for row in self._rows(_PRIVILEGES, oid, list(wanted))]

    def _privilege_faults(
        self, layout: Layout, oid: int, table: TableName, wanted: Sequence[str]
    ) -> Iterator[Fault]:
        if missing := self.missing_privileges(oid, wanted):
            yield Fault(
                f"user '{layout.user}' lacks the privileges {', '.join(missing)} on {table}",
                grant(missing, table, layout.user),
                refusal=True,
            )

    def _alter(self, *statements: str) -> None:
        with self._connection.transaction():
            # Every later statement on the table waits behind this one, the leader's too.
            self._connection.execute(f"SET LOCAL lock_timeout = '{UPGRADE_PATIENCE}'")
            for statement in statements:
                self._connection.execute(statement)

    def _make(self, layout: Layout, table: AuxiliaryTable) -> Iterator[Fault]:
        if self.auxiliary_oid(table) is not None:
            return
        try:
            self._connection.execute(table.ddl)
        except ALREADY_THERE:
            # Another process created it at the same time.
            yield from self.auxiliary_faults(layout, table)
        except psycopg.errors.InsufficientPrivilege:
            yield table.absent(layout.user)

    def _rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()
