"""What an outbox table looks like in the database, and whether it can be harvested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from outbox_postgres.options import PostgresOptions, TableName
from outbox_postgres.sql import fence_ddl
from outbox_sdk import ColumnIs, Condition, DriverError

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       coalesce(nullif(b.typname, ''), t.typname), a.attnotnull
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
LEFT JOIN pg_type AS b ON b.oid = nullif(t.typbasetype, 0)
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
"""
_PRIVILEGES = """
SELECT wanted FROM unnest($2::text[]) AS wanted
WHERE NOT CASE WHEN wanted = 'UPDATE' THEN has_any_column_privilege($1::oid, wanted)
               ELSE has_table_privilege($1::oid, wanted) END
"""
_SERVER = """
SELECT current_database(), current_user, array_to_string(current_schemas(false), ', '), pg_is_in_recovery(),
       current_setting('transaction_read_only')
"""

_TEXTS = frozenset({"text", "varchar", "bpchar", "citext", "name"})
_TEXT_ARRAYS = frozenset({f"_{text}" for text in _TEXTS})
WANTED: dict[str, tuple[frozenset[str], str]] = {
    "id": (frozenset({"int8", "int4"}), "bigint"),
    "create_time": (frozenset({"timestamptz", "timestamp"}), "timestamp with time zone"),
    "kafka_topic": (_TEXTS, "text or varchar"),
    "kafka_key": (_TEXTS, "text or varchar"),
    "kafka_value": (_TEXTS | {"bytea"}, "text, varchar or bytea"),
    "kafka_header_keys": (_TEXT_ARRAYS, "text[]"),
    "kafka_header_values": (_TEXT_ARRAYS, "text[]"),
    "leader_id": (frozenset({"uuid"}), "uuid"),
}
"""Column → the types it can have, and how to call them."""

OUTBOX_PRIVILEGES = ("SELECT", "UPDATE", "DELETE")
FENCE_PRIVILEGES = ("SELECT", "INSERT", "UPDATE")
TABLE_KINDS = {"r": "table", "p": "partitioned table"}
OTHER_KINDS = {"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence", "i": "index"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column as found.

    Attributes:
        name: Its name.
        type: Its type as SQL writes it.
        base: The name of its base type in the catalogue.
        not_null: Whether it refuses nulls.
    """

    name: str
    type: str
    base: str
    not_null: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """An outbox as found in a database.

    Attributes:
        outbox: The table with its schema.
        fence: The fence table with its schema.
        oid: The outbox table's object id.
        database: The database's name.
        user: Whom the database takes the connection for.
    """

    outbox: TableName
    fence: TableName
    oid: int
    database: str
    user: str

    @property
    def name(self) -> str:
        """The outbox's name in the fence: the same however the table was written in the configuration."""
        return f"{self.outbox.schema}.{self.outbox.table}"


class Inspector:
    """Reads the layout over one connection; psycopg's errors pass through."""

    def __init__(self, connection: psycopg.Connection[Any], options: PostgresOptions) -> None:
        self._connection = connection
        self._options = options

    def layout(self) -> Layout:
        """Finds the outbox table and says where its fence belongs.

        Raises:
            DriverError: The server is read-only (retryable: a failover may be going on), or there is no
                such table.
        """
        database, user, path, in_recovery, read_only = self._rows(_SERVER)[0]
        if in_recovery or read_only == "on":
            state = "a standby" if in_recovery else "read-only"
            raise DriverError(
                f"the server of database '{database}' is {state}; name the primary in dataSource, or several "
                "hosts with target_session_attrs=read-write",
                retryable=True,
            )
        found = self._rows(_TABLE, str(self._options.outbox))
        if not found:
            wanted = self._options.outbox
            where = f"schema '{wanted.schema}'" if wanted.schema else f"the search path {path}"
            raise DriverError(
                f"there is no table '{wanted.table}' in {where} of database '{database}' as user '{user}' sees it; "
                "run 'outbox init', correct outboxTable, or grant USAGE on its schema",
                retryable=False,
            )
        oid, schema, table, kind = found[0]
        if kind not in TABLE_KINDS:
            raise DriverError(
                f"'{schema}.{table}' is a {OTHER_KINDS.get(kind, 'relation')}, not a table; name the table itself",
                retryable=False,
            )
        fence = TableName.parse(self._options.fence_table)
        fence = fence if fence.schema else TableName(schema, fence.table)
        return Layout(TableName(schema, table), fence, oid, database, user)

    def faults(self, layout: Layout, eligible: Sequence[Condition] = ()) -> Iterator[str]:
        """Says what keeps the outbox from being harvested, each in a sentence with its cure."""
        columns = self.columns(layout.oid)
        for name, (bases, wanted) in WANTED.items():
            column = columns.get(name)
            if column is None:
                yield f"column '{name}' is missing; add it: ALTER TABLE {layout.outbox} ADD COLUMN {name} {wanted}"
            elif column.base not in bases:
                yield f"column '{name}' has type {column.type}; it must be {wanted}"
        for condition in eligible:
            if isinstance(condition, ColumnIs) and condition.column not in columns:
                yield f"column '{condition.column}', which the affinity asks for, is missing"
        if missing := self.missing_privileges(layout.oid, OUTBOX_PRIVILEGES):
            yield f"user '{layout.user}' may not {_verbs(missing)} on {layout.outbox}; run: {grant(missing, layout.outbox, layout.user)}"

    def columns(self, oid: int) -> dict[str, Column]:
        """Returns a table's columns by name."""
        return {row[0]: Column(*row) for row in self._rows(_COLUMNS, oid)}

    def missing_privileges(self, oid: int, wanted: Sequence[str]) -> list[str]:
        """Returns those of ``wanted`` that the user lacks on a table."""
        return [row[0] for row in self._rows(_PRIVILEGES, oid, list(wanted))]

    def fence_oid(self, layout: Layout) -> int | None:
        """Returns the fence table's object id, or ``None`` where there is no fence."""
        found = self._rows(_TABLE, str(layout.fence))
        return found[0][0] if found else None

    def make_fence(self, layout: Layout) -> bool:
        """Creates the fence where it is missing and looks at the privileges on it.

        Returns:
            Whether it was created.

        Raises:
            DriverError: It may not be created or used (not retryable); the message holds what to run.
        """
        created = False
        oid = self.fence_oid(layout)
        if oid is None:
            try:
                self._connection.execute(fence_ddl(layout.fence))
                created = True
            except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable):
                created = False  # two processes created it at the same moment; the other one was first
            except psycopg.errors.InsufficientPrivilege as error:
                raise DriverError(
                    f"there is no fence table {layout.fence} and user '{layout.user}' may not create it; let its "
                    f"owner run: {fence_ddl(layout.fence)}; "
                    f"{grant(FENCE_PRIVILEGES, layout.fence, layout.user)}",
                    retryable=False,
                ) from error
            oid = self.fence_oid(layout)
        if oid is not None and (missing := self.missing_privileges(oid, FENCE_PRIVILEGES)):
            raise DriverError(
                f"user '{layout.user}' may not {_verbs(missing)} on the fence table {layout.fence}; "
                f"run: {grant(missing, layout.fence, layout.user)}",
                retryable=False,
            )
        return created

    def _rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()


def grant(privileges: Sequence[str], table: TableName, user: str) -> str:
    """Returns the statement that grants ``privileges`` on ``table``."""
    return f"GRANT {', '.join(privileges)} ON {table} TO {TableName('', user)}"


def _verbs(privileges: Sequence[str]) -> str:
    return " or ".join(privileges)
