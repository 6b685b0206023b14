"""Takes rows of a table of another layout into the outbox (see ``outbox_api.intake``)."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from outbox_api import DriverError, Intake, LeadershipLost
from outbox_api.portable import TableName
from outbox_api.portable.intake import PORTION, refusal
from outbox_api.portable.sources import COLUMNS, EXTRAS

from outbox_postgres.catalogue import Catalogue, Relation
from outbox_postgres.data_source import DataSource
from outbox_postgres.ddl import EXTRA_TYPES
from outbox_postgres.errors import translated
from outbox_postgres.insert import bind
from outbox_postgres.layout import Layout
from outbox_postgres.options import QuotedName, quoted
from outbox_postgres.origin_columns import Column
from outbox_postgres.parking_statements import FENCE_MATCHES

PRIVILEGES = ("SELECT", "DELETE")

_MOMENT = "pg_xact_commit_timestamp({0}.xmin)"
# A sub-transaction has the moment of the whole, and commands are counted through it. What was committed
# before the server kept moments comes first, by the age of its transaction.
_COMMITS = (
    f"{_MOMENT} NULLS FIRST, CASE WHEN {_MOMENT} IS NULL THEN age({{0}}.xmin) END DESC,"
    " {0}.cmin::text::bigint, {0}.ctid"
)
# Tells apart whatever a table, or the parts of one, may ever hold.
_VERSION = "(src.tableoid, src.ctid, src.xmin)::text"
_MOMENTS = {"timestamptz": "{}", "timestamp": "({} AT TIME ZONE 'UTC')"}
_NUMBERS = frozenset({"int2", "int4", "int8", "numeric"})


class WaitingIntake:
    """The rows of one table that are still to be taken into an outbox.

    Args:
        connection: The connection.
        source: Where the database is.
        table: The table with its schema.
    """

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, table: TableName) -> None:
        self._connection = connection
        self._source = source
        self._table = table

    @classmethod
    def find(cls, catalogue: Catalogue, source: DataSource, intake: Intake) -> WaitingIntake:
        """Finds the table of an intake.

        Raises:
            DriverError: There is none (not retryable).
        """
        with translated(source, f"look at table {intake.table}"):
            return WaitingIntake(catalogue.connection, source, _find(catalogue, intake).name)

    def waiting(self, most: int) -> int:
        """Returns how many rows are still to be taken in, counted up to ``most``."""
        sample = f"SELECT count(*) FROM (SELECT FROM {self._table} LIMIT $1) AS sample"
        with translated(self._source, f"count rows of table {self._table}"):
            row = self._connection.execute(sample, (most,)).fetchone()
        return int(row[0]) if row else 0


class PostgresIntake(WaitingIntake):
    """Moves the rows of one table into an outbox.

    Args:
        catalogue: Reads over the connection of the table that marks.
        source: Where the database is.
        layout: The outbox.
        intake: What to take in.

    Raises:
        DriverError: It cannot be: no such table or column, no permission, no order (not retryable).
    """

    def __init__(self, catalogue: Catalogue, source: DataSource, layout: Layout, intake: Intake) -> None:
        self._layout = layout
        self._intake = intake
        with translated(source, f"look at table {intake.table}"):
            found = _find(catalogue, intake)
            super().__init__(catalogue.connection, source, found.name)
            columns = self._look(catalogue, found)
            order = self._order(columns)
        self._sql = self._statements(columns, order)

    def take(self, held: Sequence[object], limit: int) -> int:
        """Moves the earliest rows, at most about ``limit``, in one durable transaction that holds the fence.

        Returns:
            How many it moved.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was moved.
        """
        any_rows, earliest, insert, delete = self._sql
        with translated(self._source, f"take in rows of table {self._table}"):
            found = self._connection.execute(any_rows, binary=True).fetchone()
            if not (found and found[0]):
                return 0
            with self._connection.transaction():
                fence = f"SELECT lane FROM {self._layout.fence} WHERE {FENCE_MATCHES} FOR SHARE"
                if not self._connection.execute(fence, tuple(held)).fetchall():
                    raise LeadershipLost("the fence is no longer the caller's: another process leads")
                rows = self._connection.execute(earliest, (min(limit, PORTION),)).fetchall()
                names = self._intake.columns
                taken = [self._values(dict(zip(names, row[2:], strict=True))) for row in rows]
                self._connection.cursor().executemany(insert, taken)
                # At the very end: a deletion that is rolled back leaves rows without their number within
                # the transaction that wrote them.
                places, versions = [row[0] for row in rows], [row[1] for row in rows]
                if self._connection.execute(delete, (places, versions)).rowcount != len(rows):
                    raise DriverError(
                        f"table {self._table} cannot be taken in: somebody else has changed rows meanwhile",
                        retryable=True,
                    )
        return len(rows)

    def _look(self, catalogue: Catalogue, found: Relation) -> dict[str, Column]:
        intake, (oid, table, _) = self._intake, found
        columns = catalogue.columns(oid)
        if missing := [name for name in intake.columns if name not in columns]:
            raise refusal(intake, f"it lacks {', '.join(missing)}", f"it has {', '.join(sorted(columns))}")
        if missing := catalogue.missing_privileges(oid, PRIVILEGES):
            grant = f"GRANT {', '.join(missing)} ON {table} TO {quoted(self._layout.user)}"
            raise refusal(intake, f"user '{self._layout.user}' lacks {', '.join(missing)} on it", grant)
        if columns[intake.value].base == "bytea" and not self._layout.binary:
            raise refusal(intake, f"'{intake.value}' holds bytes, the outbox text", "set valueType: bytea")
        if (intake.partition or intake.timestamp) and not self._layout.extras:
            added = ", ".join(f"ADD COLUMN {name} {type_}" for name, type_ in EXTRA_TYPES.items())
            cure = f"ALTER TABLE {self._layout.outbox} {added}"
            raise refusal(intake, "the outbox has no columns for partition and timestamp", cure)
        return columns

    def _order(self, columns: dict[str, Column]) -> str:
        intake = self._intake
        if intake.order:
            return f"src.{quoted(intake.order)}, src.{quoted(intake.id)}"
        if columns[intake.id].base in _NUMBERS:
            return f"src.{quoted(intake.id)}"
        row = self._connection.execute("SHOW track_commit_timestamp").fetchone()
        if not row or row[0] != "on":
            raise refusal(
                intake,
                f"'{intake.id}' does not tell the order of its rows",
                "name a column that does as intake.order, or set track_commit_timestamp = on in the server, "
                "which then knows it",
            )
        return _COMMITS.format("src")

    def _statements(self, columns: dict[str, Column], order: str) -> tuple[str, str, str, str]:
        read = ", ".join(self._read(columns[name]) for name in self._intake.columns)
        earliest = (
            f"SELECT src.ctid::text, {_VERSION}, {read} FROM {self._table} AS src ORDER BY {order} LIMIT $1"
        )
        delete = (
            f"DELETE FROM {self._table} AS src"
            f" WHERE src.ctid = ANY ($1::text[]::tid[]) AND {_VERSION} = ANY ($2::text[])"
        )
        names = inserted(self._layout)
        places = ", ".join(f"${number}" for number in range(1, len(names)))
        insert = (
            f"INSERT INTO {self._layout.outbox} ({', '.join(names)}) VALUES (clock_timestamp(), {places})"
        )
        return f"SELECT EXISTS (SELECT FROM {self._table})", earliest, insert, delete

    def _read(self, column: Column) -> str:
        name = f"src.{quoted(column.name)}"
        if column.base == "bytea":
            return name
        if column.name == self._intake.timestamp and column.base in _MOMENTS:
            moment = f"(extract(epoch FROM {_MOMENTS[column.base].format(name)}) * 1000)::bigint::text"
            return f"CASE WHEN isfinite({name}) THEN {moment} ELSE {name}::text END"
        return f"{name}::text"

    def _values(self, row: Mapping[str, Any]) -> tuple[object, ...]:
        taken = self._intake.take(row, binary=self._layout.binary, bind=bind)
        values = (taken.topic, taken.key, taken.value, taken.names, taken.values)
        return (*values, taken.partition, taken.timestamp_ms) if self._layout.extras else values


def inserted(layout: Layout) -> tuple[str, ...]:
    """Returns the columns that an intake writes, ``create_time`` first."""
    return ("create_time", *COLUMNS[1:], *(EXTRAS if layout.extras else ()))


def _find(catalogue: Catalogue, intake: Intake) -> Relation:
    found = catalogue.find(QuotedName.parse(intake.table))
    if found is None:
        raise refusal(intake, "there is no such table, or the user does not see it", "correct intake.table")
    return found
