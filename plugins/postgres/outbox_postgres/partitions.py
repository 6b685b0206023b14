"""The partitions of kept records: a table for each UTC day, and one for what has none."""
# ruff: noqa: S608 - names come quoted, and every value is a parameter

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import ClassVar

from outbox_api.portable import TableName
from outbox_api.portable.partitions import Partitions, Session
from outbox_api.portable.table_idiom import bounded

from outbox_postgres.options import LONGEST_NAME, QuotedName, quoted

_PARTITIONS = """
SELECT kept.relkind = 'p', part.relname::text
FROM pg_class AS kept
LEFT JOIN pg_inherits AS i ON i.inhparent = kept.oid LEFT JOIN pg_class AS part ON part.oid = i.inhrelid
WHERE kept.oid = to_regclass({table})::oid
"""
_REFUSED = """
SELECT current_user::text, pg_get_userbyid(relowner)::text,
       has_schema_privilege(relnamespace, 'CREATE')
FROM pg_class
WHERE oid = to_regclass({table})::oid
  AND NOT (pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE'))
"""


class PostgresPartitions(Partitions):
    """A day's partition is made beside the table and attached, which locks less than ``PARTITION OF``.

    ATTACH looks through the partition for the rest, which is locked meanwhile: a day that has records there
    is refused, and left. A partition cannot be detached concurrently where there is one for the rest.
    """

    clause: ClassVar[str] = " PARTITION BY RANGE (delivered_at)"
    # An entry in an index of each record would take a third of the time that it takes to keep one.
    key: ClassVar[str] = ""
    window: ClassVar[int] = 20_000
    # Partitions have no index of delivered_at; whole ones are to go, and only the one for the rest has it.
    order: ClassVar[str] = ""
    brief: ClassVar[str] = "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '5s'"

    def beside(self, kept: TableName) -> Sequence[str]:
        """Returns the statements that create the index of positions, and the partition for the rest.

        That one has an index of times. Without a key, a table that is published needs a replica identity
        before rows can be deleted.
        """
        whole, rest = QuotedName(*kept), QuotedName(*kept.suffixed("_default"))
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

    def days(self, session: Session, kept: TableName) -> Collection[date] | None:
        """Returns the days that have a partition of the name that is made here."""
        rows = session.query("list the partitions", _PARTITIONS, table=str(QuotedName(*kept)))
        if not rows or not rows[0][0]:
            return None
        found = (str(name).removeprefix(f"{kept.table}_") for _, name in rows)
        return {datetime.strptime(text, "%Y%m%d").date() for text in found if text.isdigit()}  # noqa: DTZ007 - a date

    def taken(self, session: Session, kept: TableName, days: Sequence[date]) -> Sequence[date]:
        """Returns the days that have records already, which are in the partition for the rest."""
        begin = "{first}::date::timestamp AT TIME ZONE 'UTC'"
        end = begin.replace("first", "last")
        within = f"delivered_at >= {begin} AND delivered_at < {end}"
        query = f"SELECT 1 FROM {_escaped(kept)} WHERE {within} LIMIT 1"
        look = partial(session.query, "look at the partition for the rest", query)
        return [day for day in days if look(first=day, last=day + timedelta(days=1))]

    def add(self, kept: TableName, days: Sequence[date]) -> Sequence[Sequence[str]]:
        """Returns the statements that make each day's partition."""
        return [self._added(QuotedName(*kept), day) for day in days]

    def drop(self, kept: TableName, day: date) -> Sequence[str]:
        """Returns the statement that drops a day's partition; its file goes when the locks have gone."""
        return [f"DROP TABLE {_partition(kept, day)}"]

    def obstacle(self, session: Session, kept: TableName) -> str:  # noqa: ARG002 - the contract's
        """Returns nothing: each day stands alone."""
        return ""

    def refusal(self, session: Session, kept: TableName) -> str:
        """Returns what makes this user one of the table's owners, who may create in its schema."""
        name = str(QuotedName(*kept))
        rows = session.query("look who owns the table of kept records", _REFUSED, table=name)
        if not rows:
            return ""
        user, owner, creates = rows[0]
        schema = QuotedName("", kept.schema or "public")
        create = "" if creates else f"; GRANT CREATE ON SCHEMA {schema} TO {quoted(user)}"
        return f"GRANT {quoted(owner)} TO {quoted(user)}{create}"

    def _added(self, kept: QuotedName, day: date) -> list[str]:
        part, bounds = _partition(kept, day), (day, day + timedelta(days=1))
        first, last = (f"'{bound} 00:00:00+00'" for bound in bounds)
        return [
            f"CREATE TABLE {part} (LIKE {kept} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)",
            f"ALTER TABLE {part} REPLICA IDENTITY FULL",
            f"ALTER TABLE {kept} ATTACH PARTITION {part} FOR VALUES FROM ({first}) TO ({last})",
        ]


def _escaped(table: TableName) -> str:
    return str(QuotedName(*table)).replace("{", "{{").replace("}", "}}")


def _partition(kept: TableName, day: date) -> QuotedName:
    return QuotedName(*kept.suffixed(f"_{day:%Y%m%d}"))
