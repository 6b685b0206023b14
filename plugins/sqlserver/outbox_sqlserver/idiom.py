"""How SQL Server writes what the SQL standard leaves open, and what its error numbers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from outbox_api.base.record import Record
from outbox_api.portable import ErrorKind, Idiom, TableName
from outbox_api.portable.by_ids import ChangeByIds
from outbox_api.support.statement import Style
from outbox_api.support.tls import cure_of, verification_error

# Deadlocks and lock time-outs, shutdowns, connections, memory and space, databases that are starting, moving
# or read-only for now, limits of a resource pool, and what Azure asks to be tried again or has ended.
_TRANSIENT = (
    64, 121, 233, 596, 601, 617, 669, 701, 802, 921, 922, 927, 976, 978, 979, 981, 982, 983, 1105, 1204,
    1205, 1222, 3906, 3930, 3935, 3960, 3966, 3971, 4221, 6005, 8645, 8651, 9001, 9002, 10053, 10054, 10060,
    10061, 10922, 10928, 10929, 10936, 10961, 17142, 17143, 17187, 17197, 18401, 35202, 40143, 40197, 40501,
    40540, 40549, 40550, 40551, 40552, 40553, 40613, 41305, 41325, 41839, 49918, 49919, 49920,
)  # fmt: skip
_ACCESS_DENIED = (
    229, 230, 262, 297, 300, 916, 4060, 4064, 15247, 18452, 18456, 18470, 18486, 18487, 18488,
)  # fmt: skip

ERROR_KINDS = {
    **dict.fromkeys(_TRANSIENT, ErrorKind.TRANSIENT),
    **dict.fromkeys(_ACCESS_DENIED, ErrorKind.ACCESS_DENIED),
    208: ErrorKind.NO_TABLE,
    2601: ErrorKind.EXISTS,
    2627: ErrorKind.EXISTS,
    2714: ErrorKind.EXISTS,
}
"""By the number; what is not listed lasts, unless it is severe."""

_SEVERE = 17
"""The severity from which on an error is of the server: resources, its own faults, a connection that ends."""

CURES = {
    916: "make the login a user of the database",
    1222: "somebody's forgotten transaction holds the row",
    3906: "connect to the primary, through a listener that moves with it",
    4060: "correct the database in dataSource, or let this user in",
    18456: "correct Uid in dataSource, or the password",
    18487: "change the user's password",
    18488: "change the user's password",
}
"""What a user can do, by the number."""


def number(error: Exception) -> int:
    """Returns the server's number of an error; 0 for one of the driver or the network."""
    found: Any = getattr(error, "number", 0)
    return int(found or 0)


def error_kind(error: Exception) -> ErrorKind:
    """Says what an error of the driver means."""
    import pytds  # noqa: PLC0415 - only who connects needs it

    found = number(error)
    if found:
        severe = int(getattr(error, "severity", 0)) >= _SEVERE
        return ERROR_KINDS.get(found, ErrorKind.TRANSIENT if severe else ErrorKind.PERMANENT)
    if isinstance(error.__cause__, FileNotFoundError) or verification_error(error):
        return ErrorKind.PERMANENT
    # Without a number it is about the connection, which is lost or closed.
    return ErrorKind.TRANSIENT if isinstance(error, pytds.InterfaceError) else ErrorKind.PERMANENT


BINARY = "Latin1_General_100_BIN2"
"""The collation of names and keys in tables of ours."""


KEY_LENGTH = 2_000
"""Of a key, in UTF-16 code units; a comparison adds one, and 4,000 is the end of what is not large."""

LISTED_IDS = "SELECT DISTINCT CAST(value AS BIGINT) AS listed_id FROM OPENJSON({ids})"
"""A list of ids: one parameter however many there are, and therefore one plan."""


class SqlServerIdiom(Idiom):
    """SQL Server's, from 2016.

    Where READ_COMMITTED_SNAPSHOT is on, a plain SELECT sees what is committed and waits for nobody. Whatever
    changes rows takes update locks on each row that it passes, so ``change_by_ids`` passes no others.
    """

    style: ClassVar[Style] = Style.PYFORMAT
    current_schema: ClassVar[str] = "SCHEMA_NAME()"
    user: ClassVar[str] = "SUSER_SNAME()"
    short_text_type: ClassVar[str] = "NVARCHAR(4000)"
    long_text_type: ClassVar[str] = "NVARCHAR(MAX)"
    bytes_type: ClassVar[str] = "VARBINARY(MAX)"
    key_type: ClassVar[str] = f"NVARCHAR({KEY_LENGTH}) COLLATE {BINARY}"
    moment_type: ClassVar[str] = "DATETIME2(6)"
    kept_types: ClassVar[Mapping[str, str]] = {"kafka_key": key_type}
    numbered_type: ClassVar[str] = "BIGINT IDENTITY(1, 1) NOT NULL"
    indexes: ClassVar[str] = (
        "SELECT named.name, COL_NAME(indexed.object_id, indexed.column_id) FROM sys.index_columns AS indexed"
        " JOIN sys.indexes AS named"
        " ON named.object_id = indexed.object_id AND named.index_id = indexed.index_id"
        " WHERE indexed.object_id = OBJECT_ID({outbox}) AND indexed.key_ordinal > 0"
        " ORDER BY named.name, indexed.key_ordinal"
    )
    defaults: ClassVar[str] = (
        "SELECT COL_NAME(parent_object_id, parent_column_id), definition FROM sys.default_constraints"
        " WHERE parent_object_id = OBJECT_ID({outbox})"
    )
    types: ClassVar[str] = (
        "SELECT found.name, CASE WHEN named.name IN ('time', 'datetime2', 'datetimeoffset')"
        " THEN CONCAT(named.name, '(', found.scale, ')') WHEN named.name = 'binary'"
        " THEN CONCAT(named.name, '(', found.max_length, ')') ELSE named.name END,"
        " CASE WHEN found.is_identity = 1 OR found.default_object_id = 0 THEN found.is_identity END,"
        " 1 - found.is_nullable"
        " FROM sys.columns AS found JOIN sys.types AS named ON named.user_type_id = found.user_type_id"
        " WHERE found.object_id = OBJECT_ID({outbox})"
    )
    view_query: ClassVar[str] = "SELECT name FROM sys.views WHERE object_id = OBJECT_ID({outbox})"
    spelling: ClassVar[str] = (
        "SELECT OBJECT_SCHEMA_NAME(OBJECT_ID({outbox})), OBJECT_NAME(OBJECT_ID({outbox}))"
    )
    now: ClassVar[str] = "SYSUTCDATETIME()"
    last_id: ClassVar[str] = "SELECT IDENT_CURRENT({outbox})"
    last_id_cure: ClassVar[str] = "DBCC CHECKIDENT ('{table}')"
    brief_locks: ClassVar[str] = "SET LOCK_TIMEOUT 1000"
    # Both last until the end of the transaction.
    shared_lock: ClassVar[str] = " WITH (REPEATABLEREAD, ROWLOCK)"
    exclusive_lock: ClassVar[str] = " WITH (XLOCK, HOLDLOCK, ROWLOCK)"

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        import pytds  # noqa: PLC0415 - only who connects needs it

        errors: type[Exception] = pytds.Error
        return errors

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by its number."""
        return error_kind(error)

    def cure(self, error: Exception) -> str:
        """Returns what a user can do about an error; empty if there is no advice."""
        return cure_of(error, "CAFile") or CURES.get(number(error), "")

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp."""
        return f"DATEDIFF_BIG(MICROSECOND, {timestamp}, SYSUTCDATETIME()) / 1000000.0"

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key, by a hash that does not depend on the collation."""
        return f"CAST(SUBSTRING(HASHBYTES('SHA2_256', {key}), 1, 4) AS BIGINT) % {{lanes}}"

    def remainder(self, dividend: str, divisor: str) -> str:
        """Writes the remainder of a division of whole numbers."""
        return f"{dividend} % {divisor}"

    def comparable(self, text: str) -> str:
        """Writes a text so that two are equal only if all characters are, trailing blanks included.

        A comparison pads the shorter side with blanks, hence the additional character.
        """
        return f"({text} + N'.') COLLATE {BINARY}"

    def byte_length(self, column: str) -> str:
        """Writes how many bytes a column has; texts are stored as UTF-16."""
        return f"DATALENGTH({column})"

    def as_text(self, column: str) -> str:
        """Writes a column as text."""
        return f"CAST({column} AS NVARCHAR(MAX))"

    @property
    def free_rows(self) -> tuple[str, str]:
        """How a SELECT locks the rows that nobody else has locked."""
        return " WITH (UPDLOCK, READPAST, ROWLOCK)", ""

    def not_in(self, key: str, keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
        """Writes that a key is none of ``keys``, with one parameter, as SQL Server permits 2,100."""
        value = self.comparable("value")
        return (
            f"{self.comparable(key)} NOT IN (SELECT {value} FROM OPENJSON({{without}}))",  # noqa: S608 - of our own parts
            {"without": json.dumps(list(keys))},
        )

    def ids_not_in(self, ids: Sequence[int]) -> tuple[str, Mapping[str, object]]:
        """Writes that a row's id is none of ``ids``, as :meth:`not_in` does of keys."""
        return (
            "id NOT IN (SELECT CAST(value AS BIGINT) FROM OPENJSON({without}))",
            {"without": json.dumps(list(ids))},
        )

    def change_runs(self, change: ChangeByIds, runs: int) -> str:  # noqa: ARG002 - the idiom's
        """Writes nothing: a range may have to wait for a row behind it."""
        return ""

    def change_by_ids(self, change: ChangeByIds, ids: str) -> str:
        """Writes an UPDATE or a DELETE that looks each row up by its id; ``ids`` is ``LISTED_IDS``."""
        verb = "DELETE target"
        if change.assignments:
            verb = f"UPDATE target SET {change.assignments}"  # noqa: S608 - quoted, with parameters
        condition = f" WHERE {change.condition}" if change.condition else ""
        return (
            f"{verb} FROM ({ids}) AS listed INNER LOOP JOIN {change.table} AS target WITH (ROWLOCK)"
            f" ON target.{change.id_column} = listed.listed_id{condition}"
        )

    def text_type(self, octets: int) -> str:
        """Writes the type of a column for any text of some bytes in UTF-8: at least as many as in UTF-16."""
        return f"NVARCHAR({octets}) COLLATE {BINARY}"

    def quote(self, name: str) -> str:
        """Quotes an identifier."""
        return "[" + name.replace("]", "]]") + "]"

    def snapshot_by_index(self, table: str, index: str) -> str:
        """Writes an outbox, read by an index whichever values a plan was made for."""
        return f"{table} WITH (INDEX({index}))"

    def literal(self, text: str) -> str:
        """Writes a text as a constant, of any characters."""
        return f"N{super().literal(text)}"

    def known_as(self, table: TableName) -> str:
        """Writes a text: a table's name with its schema."""
        if table.schema:
            return super().known_as(table)
        return f"{self.current_schema} + {self.literal('.' + table.table)}"

    def place(self, table: TableName) -> Mapping[str, object]:
        """Makes the parameter by which the database knows a table."""
        return {"outbox": self.quote_table(table)}

    def set_default(self, table: TableName, column: str, default: str) -> str:
        """Writes the batch that replaces a column's default, which is a constraint of whatever name."""
        outbox, name = self.quote_table(table), column.replace("'", "''")
        text = outbox.replace("'", "''")
        return (
            "DECLARE @former NVARCHAR(MAX) = (SELECT N'ALTER TABLE "  # noqa: S608 - quoted
            f"{text} DROP CONSTRAINT ' + QUOTENAME(name) FROM sys.default_constraints"
            f" WHERE parent_object_id = OBJECT_ID(N'{text}')"
            f" AND COL_NAME(parent_object_id, parent_column_id) = N'{name}');\n"
            f"EXEC(@former);\nALTER TABLE {outbox} ADD DEFAULT {default} FOR {self.quote(column)}"
        )

    def limit(self, select: str, count: str) -> str:
        """Limits an ordered SELECT to its first rows."""
        return f"SELECT TOP ({count}){select.removeprefix('SELECT')}"

    def locking_select(self, columns: str, table: str, condition: str, lock: str) -> str:
        """Writes a SELECT that locks its rows until the transaction ends."""
        return f"SELECT {columns} FROM {table}{lock} WHERE {condition}"  # noqa: S608 - made of our own parts

    def refusal(self, record: Record) -> str:
        """Returns why the database cannot hold a record; empty if it can."""
        for name, text, limit in (("key", record.key, KEY_LENGTH), ("topic", record.topic, 249)):
            if len(text.encode("utf-16-le", "replace")) > 2 * limit:
                return f"the {name} is longer than {limit:,} UTF-16 code units"
        return ""

    def uuid_parameter(self, leader_id: UUID) -> object:
        """Makes the parameter for a leader id."""
        return leader_id

    def value_parameter(self, value: str | bytes | None) -> object:
        """Makes the parameter for a record's value."""
        return octets(value)

    def bytes_parameter(self, value: str | bytes | None) -> object:
        """Makes the parameter for a value of bytes."""
        return octets(Idiom.bytes_parameter(self, value))


def octets(value: Any) -> Any:
    """Wraps bytes for the driver, which sends plain bytes as text."""
    if not isinstance(value, bytes):
        return value
    import pytds  # noqa: PLC0415 - only who connects needs it

    return pytds.Binary(value)
