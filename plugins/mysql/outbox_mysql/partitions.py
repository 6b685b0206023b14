"""Partitions by day: one for each UTC day, and a last one for all later ones."""
# ruff: noqa: S608 - names come quoted, and numbers are ours

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from typing import ClassVar, Final

from outbox_api.base.errors import AccessDenied, DriverError
from outbox_api.portable.partitions import Divided, Partitions, Session
from outbox_api.portable.table_idiom import TableName

REST: Final = "rest"
"""The partition of all days that have none."""

COPIED: Final = 10_000
"""How many records the last partition may have when it is divided: others wait while they are copied."""

_PARTITIONS = (
    "SELECT partition_name, REPLACE(partition_expression, '`', '') FROM information_schema.partitions"
    " WHERE table_schema = COALESCE(NULLIF({schema}, ''), DATABASE()) AND table_name = {table}"
)


class MySqlPartitions(Partitions):
    """Each partition ends with its day, and begins where the one before it ends.

    ALTER TABLE waits until no transaction uses the table, and new ones wait behind it. The servers take whole
    seconds as limit. REORGANIZE copies the rows of the partition that it divides.
    """

    brief: ClassVar[str] = (
        "SET @outbox_lock_wait = @@SESSION.lock_wait_timeout, SESSION lock_wait_timeout = 1"
    )
    usual: ClassVar[Sequence[str]] = ("UNLOCK TABLES", "SET SESSION lock_wait_timeout = @outbox_lock_wait")

    def clause(self, column: str) -> str:
        """Returns what stands behind the columns."""
        return f" PARTITION BY RANGE COLUMNS ({column}) (PARTITION {REST} VALUES LESS THAN (MAXVALUE))"

    def days(self, session: Session, divided: Divided) -> Collection[date] | None:
        """Returns the days that have a partition of the name that is made here."""
        place = {"schema": divided.table.schema, "table": divided.table.table}
        rows = session.query("list the partitions", _PARTITIONS, **place)
        names = [str(name) for name, column in rows if str(column).lower() == divided.column]
        if REST not in names:
            return None
        found = (name.removeprefix("p") for name in names)
        return {datetime.strptime(text, "%Y%m%d").date() for text in found if text.isdigit()}  # noqa: DTZ007 - a date

    def missing(self, days: Collection[date], wanted: Sequence[date]) -> list[date]:
        """Returns the days behind all partitions; an earlier one is part of the next partition."""
        return [day for day in wanted if day > max(days, default=date.min)]

    def add(self, session: Session, divided: Divided, days: Sequence[date]) -> Sequence[Sequence[str]]:  # noqa: ARG002 - the contract's
        """Returns the statement that divides the last partition."""
        made = [
            *(f"PARTITION {_name(day)} VALUES LESS THAN ('{day + timedelta(days=1)}')" for day in days),
            f"PARTITION {REST} VALUES LESS THAN (MAXVALUE)",
        ]
        return [
            [f"ALTER TABLE {_quoted(divided.table)} REORGANIZE PARTITION {REST} INTO ({', '.join(made)})"]
        ]

    def drop(self, divided: Divided, day: date) -> Sequence[str]:
        """Returns the statements that drop a day's partition.

        LOCK TABLES waits for the transactions that have written into the table, and ALTER TABLE does not let
        go of the lock. MariaDB forgets the greatest id that was given out with the partition that had it, so
        all partitions are told of it before.
        """
        table = _quoted(divided.table)
        dropped = f"ALTER TABLE {table} DROP PARTITION {_name(day)}"
        if not divided.outbox:
            return [dropped]
        place = "table_schema = DATABASE()"
        if divided.table.schema:
            place = f"table_schema = {_literal(divided.table.schema)}"
        numbered = (
            f"SELECT CONCAT({_literal(f'ALTER TABLE {table} AUTO_INCREMENT = ')}, auto_increment)"
            f" FROM information_schema.tables WHERE {place} AND table_name = {_literal(divided.table.table)}"
        )
        some = f"(SELECT 1 FROM {_rows(divided, day)}) AS some"
        due = f"SELECT IF(COUNT(*) = 0, {_literal(dropped)}, 'DO 0') FROM {some}"
        return [
            f"LOCK TABLES {table} WRITE",
            f"SET @outbox_first = 'DO 0' /*M! , @outbox_first = ({numbered}) */, @outbox_then = ({due})",
            "PREPARE outbox_first FROM @outbox_first",
            "EXECUTE outbox_first",
            "PREPARE outbox_then FROM @outbox_then",
            "EXECUTE outbox_then",
            "UNLOCK TABLES",
        ]

    def is_empty(self, session: Session, divided: Divided, day: date) -> bool:
        """Returns whether a partition has no row; each server limits the time of a query in its own way."""
        briefly = "/*M! SET STATEMENT max_statement_time = 0.2 FOR */ SELECT /*+ MAX_EXECUTION_TIME(200) */ 1"
        return not session.query("look at a partition", f"{briefly} FROM {_rows(divided, day)}")

    def obstacle(self, session: Session, divided: Divided) -> str:
        """Says that the last partition has too many records to be divided while harvesters run."""
        some = f"SELECT 1 FROM {_quoted(divided.table)} PARTITION ({REST}) LIMIT {COPIED + 1}"
        [(count,)] = session.query("look at the last partition", f"SELECT COUNT(*) FROM ({some}) AS waiting")
        if int(count) <= COPIED:
            return ""
        return (
            f"partition '{REST}' of {divided.table} has more than {COPIED} records, which are copied when it "
            "is divided into days: stop the harvesters for as long as 'outbox init' does so"
        )

    def refusal(self, session: Session, divided: Divided) -> str:
        """Returns the grant without which partitions cannot be changed.

        Tries to drop one that does not exist, and to lock a table: the server looks at the privileges first.
        """
        table = _quoted(divided.table)
        grants = list[str]()
        if _denied(session, f"ALTER TABLE {table} DROP PARTITION outbox_none"):
            rights = "SELECT, INSERT, UPDATE, DELETE" if divided.outbox else "SELECT, INSERT, DELETE"
            grants.append(f"GRANT {rights}, CREATE, ALTER, DROP ON {table} TO this user")
        # Who may lock tables, but not read this one, is told another number.
        none = _quoted(divided.table.suffixed("_none"))
        if divided.outbox and "(1044," in _denied(session, f"LOCK TABLES {none} READ"):
            database = ".".join([*(_quoted(TableName("", part)) for part in divided.table[:1] if part), "*"])
            grants.append(f"GRANT LOCK TABLES ON {database} TO this user")
        return "; ".join(grants)


def _denied(session: Session, statement: str) -> str:
    """Returns why this user may not execute a statement, which fails in any case; empty if it may."""
    try:
        with session.transaction("try what is permitted"):
            session.execute_ddl(statement)
    except AccessDenied as error:
        return str(error)
    except DriverError as error:
        if error.retryable:
            raise
    return ""


def _rows(divided: Divided, day: date) -> str:
    return f"{_quoted(divided.table)} PARTITION ({_name(day)}) LIMIT 1"


def _name(day: date) -> str:
    return f"p{day:%Y%m%d}"


def _quoted(table: TableName) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in table if part)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
