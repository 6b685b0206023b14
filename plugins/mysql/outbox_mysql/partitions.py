"""The partitions of kept records: one for each UTC day, and a last one for all later ones."""
# ruff: noqa: S608 - names come quoted, and numbers are ours

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from typing import ClassVar, Final

from outbox_api.base.errors import AccessDenied, DriverError
from outbox_api.portable.partitions import Partitions, Session
from outbox_api.portable.table_idiom import TableName

REST: Final = "rest"
"""The partition of all days that have none."""

COPIED: Final = 10_000
"""How many records the last partition may have when it is divided: purges wait while they are copied."""

_PARTITIONS = (
    "SELECT partition_name FROM information_schema.partitions"
    " WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}"
)


class MySqlPartitions(Partitions):
    """Each partition ends with its day, and begins where the one before it ends.

    ALTER TABLE waits until no transaction uses the table, and new ones wait behind it. The servers take whole
    seconds as limit. REORGANIZE copies the rows of the partition that it divides.
    """

    clause: ClassVar[str] = (
        f" PARTITION BY RANGE COLUMNS (delivered_at) (PARTITION {REST} VALUES LESS THAN (MAXVALUE))"
    )
    brief: ClassVar[str] = (
        "SET @outbox_lock_wait = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1"
    )
    usual: ClassVar[str] = "SET SESSION lock_wait_timeout = @outbox_lock_wait"

    def days(self, session: Session, kept: TableName) -> Collection[date] | None:
        """Returns the days that have a partition of the name that is made here."""
        rows = session.query("list the partitions", _PARTITIONS, schema=kept.schema, table=kept.table)
        names = [str(row[0]) for row in rows if row[0]]
        if REST not in names:
            return None
        found = (name.removeprefix("p") for name in names)
        return {datetime.strptime(text, "%Y%m%d").date() for text in found if text.isdigit()}  # noqa: DTZ007 - a date

    def missing(self, days: Collection[date], wanted: Sequence[date]) -> list[date]:
        """Returns the days behind all partitions; an earlier one is part of the next partition."""
        return [day for day in wanted if day > max(days, default=date.min)]

    def add(self, kept: TableName, days: Sequence[date]) -> Sequence[Sequence[str]]:
        """Returns the statement that divides the last partition."""
        made = [
            *(f"PARTITION {_name(day)} VALUES LESS THAN ('{day + timedelta(days=1)}')" for day in days),
            f"PARTITION {REST} VALUES LESS THAN (MAXVALUE)",
        ]
        return [[f"ALTER TABLE {_quoted(kept)} REORGANIZE PARTITION {REST} INTO ({', '.join(made)})"]]

    def drop(self, kept: TableName, day: date) -> Sequence[str]:
        """Returns the statement that drops a day's partition."""
        return [f"ALTER TABLE {_quoted(kept)} DROP PARTITION {_name(day)}"]

    def obstacle(self, session: Session, kept: TableName) -> str:
        """Says that the last partition has too many records to be divided while harvesters run."""
        some = f"SELECT 1 FROM {_quoted(kept)} PARTITION ({REST}) LIMIT {COPIED + 1}"
        [(count,)] = session.query("look at the last partition", f"SELECT COUNT(*) FROM ({some}) AS waiting")
        if int(count) <= COPIED:
            return ""
        return (
            f"partition '{REST}' of {kept} has more than {COPIED} records, which are copied when it is "
            "divided into days: stop the harvesters for as long as 'outbox init' does so"
        )

    def refusal(self, session: Session, kept: TableName) -> str:
        """Returns the grant without which partitions cannot be changed.

        Tries to drop one that does not exist: the server looks at the privileges first.
        """
        try:
            with session.transaction("try what is permitted"):
                session.execute_ddl(f"ALTER TABLE {_quoted(kept)} DROP PARTITION outbox_none")
        except AccessDenied:
            return f"GRANT SELECT, INSERT, DELETE, CREATE, ALTER, DROP ON {_quoted(kept)} TO this user"
        except DriverError as error:
            if error.retryable:
                raise
        return ""


def _name(day: date) -> str:
    return f"p{day:%Y%m%d}"


def _quoted(table: TableName) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in table if part)
