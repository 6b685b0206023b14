"""Partitions by day: a table for each UTC day, and one for what has none."""
# ruff: noqa: S608 - names come quoted, and every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import ClassVar

from outbox_api.portable import TableName
from outbox_api.portable.partitions import Divided, Partitions, Session
from outbox_api.portable.table_idiom import bounded

from outbox_postgres.options import LONGEST_NAME, QuotedName, quoted

# A table that somebody divided otherwise is left as it is.
_PARTITIONS = """
SELECT part.relname::text
FROM pg_partitioned_table AS p
JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] AND a.attname = {column}
JOIN pg_inherits AS i ON i.inhparent = p.partrelid JOIN pg_class AS part ON part.oid = i.inhrelid
WHERE p.partrelid = to_regclass({table})::oid AND p.partstrat = 'r' AND p.partnatts = 1
"""
_LIKE_REST = """
SELECT coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', ''), relreplident = 'f',
       nullif(pg_get_userbyid(relowner), current_user)::text
FROM pg_class WHERE oid = to_regclass({rest})::oid
"""
_REFUSED = """
SELECT current_user::text, pg_get_userbyid(relowner)::text,
       has_schema_privilege(relnamespace, 'CREATE')
FROM pg_class
WHERE oid = to_regclass({table})::oid
  AND NOT (pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE'))
"""


# One statement, so that no process that stands still in its middle holds the locks; each statement in it sees
# what is committed by then, which a snapshot of an earlier moment would not. DROP locks what is locked here,
# and the partition for the rest, which nobody reaches but through the table.
_DROP_EMPTY = """DO $outbox$ BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE 'this needs the isolation READ COMMITTED';
    END IF;
    LOCK TABLE ONLY {table}, ONLY {part} IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM ONLY {part}) THEN
        DROP TABLE {part};
    END IF;
END $outbox$"""


class PostgresPartitions(Partitions):
    """A day's partition is made beside the table and attached, which locks less than ``PARTITION OF``.

    It has the settings of the partition for the rest. ATTACH looks through that one, which is locked
    meanwhile: a day that has records there is refused, and left. A partition cannot be detached concurrently
    where there is one for the rest.
    """

    # An entry in an index of each record would take a third of the time that it takes to keep one.
    key: ClassVar[str] = ""
    window: ClassVar[int] = 20_000
    # Partitions have no index of delivered_at; whole ones are to go, and only the one for the rest has it.
    order: ClassVar[str] = ""
    brief: ClassVar[str] = "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '5s'"

    def clause(self, column: str) -> str:
        """Returns what stands behind the columns."""
        return f" PARTITION BY RANGE ({column})"

    def beside(self, kept: TableName) -> Sequence[str]:
        """Returns the statements that create the index of positions, and the partition for the rest.

        That one has an index of times. Without a key, a table that is published needs a replica identity
        before rows can be deleted.
        """
        whole, rest = QuotedName(*kept), rest_of(kept)
        positions, times = (
            QuotedName("", bounded(f"{table.table}_{column}", LONGEST_NAME))
            for table, column in ((whole, "position"), (rest, "delivered_at"))
        )
        ranges = "WITH (autosummarize = on, pages_per_range = 32)"
        return [
            f"CREATE INDEX {positions} ON {whole} USING brin (position) {ranges}",
            f"CREATE TABLE {rest} PARTITION OF {whole} DEFAULT",
            f"ALTER TABLE {rest} REPLICA IDENTITY FULL",
            f"CREATE INDEX {times} ON {rest} (delivered_at)",
        ]

    def days(self, session: Session, divided: Divided) -> Collection[date] | None:
        """Returns the days that have a partition of the name that is made here."""
        table = divided.table
        place = {"table": str(QuotedName(*table)), "column": divided.column}
        names = [str(row[0]) for row in session.query("list the partitions", _PARTITIONS, **place)]
        if rest_of(table).table not in names:
            return None
        found = (name.removeprefix(f"{table.table}_") for name in names)
        return {datetime.strptime(text, "%Y%m%d").date() for text in found if text.isdigit()}  # noqa: DTZ007 - a date

    def taken(self, session: Session, divided: Divided, days: Sequence[date]) -> Sequence[date]:
        """Returns the days that have records already, which are in the partition for the rest."""
        look = partial(session.query, "look for records of a day", _of_day(divided))
        return [day for day in days if look(**_bounds(day))]

    def add(self, session: Session, divided: Divided, days: Sequence[date]) -> Sequence[Sequence[str]]:
        """Returns the statements that make each day's partition."""
        table, rest = QuotedName(*divided.table), str(rest_of(divided.table))
        rows = session.query("look at the partition for the rest", _LIKE_REST, rest=rest)
        return [_added(table, day, *(rows[0] if rows else ("", False, None))) for day in days]

    def drop(self, divided: Divided, day: date) -> Sequence[str]:
        """Returns the statement that drops a day's partition; its file goes when the locks have gone."""
        part = _partition(divided.table, day)
        if not divided.outbox:
            return [f"DROP TABLE {part}"]
        return [_DROP_EMPTY.format(table=QuotedName(*divided.table), part=part)]

    def is_empty(self, session: Session, divided: Divided, day: date) -> bool:
        """Returns whether a partition has no row; the look lets the next one pass dead rows faster."""
        with session.transaction("look at a partition"):
            session.execute_ddl("SET LOCAL statement_timeout = '200ms'")
            return not session.fetch(_of_day(divided), **_bounds(day))

    def refusal(self, session: Session, divided: Divided) -> str:
        """Returns what makes this user one of the table's owners, who may create in its schema."""
        name = str(QuotedName(*divided.table))
        rows = session.query(f"look who owns {divided.table}", _REFUSED, table=name)
        if not rows:
            return ""
        user, owner, creates = rows[0]
        schema = QuotedName("", divided.table.schema or "public")
        create = "" if creates else f"; GRANT CREATE ON SCHEMA {schema} TO {quoted(user)}"
        return f"GRANT {quoted(owner)} TO {quoted(user)}{create}"


def _added(table: QuotedName, day: date, settings: str, whole_rows: bool, owner: str | None) -> list[str]:
    part, bounds = _partition(table, day), (day, day + timedelta(days=1))
    first, last = (f"'{bound} 00:00:00+00'" for bound in bounds)
    return [
        f"CREATE TABLE {part} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS){settings}",
        *([f"ALTER TABLE {part} REPLICA IDENTITY FULL"] if whole_rows else []),
        # Another member of the role that owns the table must be able to drop it.
        *([f"ALTER TABLE {part} OWNER TO {quoted(owner)}"] if owner else []),
        f"ALTER TABLE {table} ATTACH PARTITION {part} FOR VALUES FROM ({first}) TO ({last})",
    ]


def rest_of(table: TableName) -> QuotedName:
    """Returns the name of a table's partition for the rest."""
    return QuotedName(*table.suffixed("_default"))


def _of_day(divided: Divided) -> str:
    """Returns the query for a row of a day, wherever it is: who looks has no right to a partition itself."""
    begin = "{first}::date::timestamp AT TIME ZONE 'UTC'"
    within = f"{divided.column} >= {begin} AND {divided.column} < {begin.replace('first', 'last')}"
    return f"SELECT 1 FROM {_escaped(divided.table)} WHERE {within} LIMIT 1"


def _bounds(day: date) -> dict[str, date]:
    return {"first": day, "last": day + timedelta(days=1)}


def _escaped(table: TableName) -> str:
    return str(QuotedName(*table)).replace("{", "{{").replace("}", "}}")


def _partition(kept: TableName, day: date) -> QuotedName:
    return QuotedName(*kept.suffixed(f"_{day:%Y%m%d}"))
