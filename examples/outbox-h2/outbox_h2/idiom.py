"""How H2 writes what the SQL standard leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from outbox_api.portable import ErrorKind, Idiom, TableName
from outbox_api.support.statement import Style

# H2's error codes: https://h2database.com/javadoc/org/h2/api/ErrorCode.html
_CODES = {
    ErrorKind.NO_TABLE: (42102, 42103, 42104),
    ErrorKind.EXISTS: (42101, 23505),
    ErrorKind.ACCESS_DENIED: (28000, 90040, 90096),
    ErrorKind.LOCK_TIMEOUT: (50200,),
    # A deadlock, a statement that was cut off; a connection or a database that is closed.
    ErrorKind.TRANSIENT: (40001, 57014, 90131, 90007, 90020, 90067, 90098, 90121),
}


class H2Idiom(Idiom):
    """What is not written here is as the base class has it: the SQL standard, with LIMIT and FOR UPDATE."""

    style: ClassVar[Style] = Style.QMARK  # the paramstyle of the driver
    skip_locked: ClassVar[str] = " FOR UPDATE SKIP LOCKED"
    brief_locks: ClassVar[str] = "SET LOCK_TIMEOUT 1000"

    indexes: ClassVar[str] = """
        SELECT INDEX_NAME, COLUMN_NAME FROM INFORMATION_SCHEMA.INDEX_COLUMNS
        WHERE TABLE_SCHEMA = COALESCE(NULLIF({schema}, ''), CURRENT_SCHEMA) AND TABLE_NAME = {table}
        ORDER BY INDEX_NAME, ORDINAL_POSITION"""
    last_id: ClassVar[str] = """
        SELECT IDENTITY_BASE - 1 FROM INFORMATION_SCHEMA.COLUMNS
        WHERE TABLE_SCHEMA = COALESCE(NULLIF({schema}, ''), CURRENT_SCHEMA) AND TABLE_NAME = {table}
        AND COLUMN_NAME = 'ID'"""
    last_id_cure: ClassVar[str] = (
        "ALTER TABLE {table} ALTER COLUMN ID RESTART WITH (SELECT MAX(ID) + 1 FROM {table})"
    )

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors; imports the driver."""
        from jpype import dbapi2  # noqa: PLC0415 - only who connects needs Java

        error: type[Exception] = dbapi2.Error
        return error

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by H2's code for it."""
        origin: Any = error if hasattr(error, "getErrorCode") else error.__cause__
        if origin is None:  # the driver's own: the connection is closed
            return ErrorKind.TRANSIENT
        code = int(origin.getErrorCode()) if hasattr(origin, "getErrorCode") else 0
        return next(
            (error_kind for error_kind, codes in _CODES.items() if code in codes), ErrorKind.PERMANENT
        )

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp, with fractions, by the database's clock."""
        return f"EXTRACT(EPOCH FROM CURRENT_TIMESTAMP - {timestamp})"

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key, an expression that is never null: its hash modulo ``{lanes}``."""
        return f"ORA_HASH({key}, CAST({{lanes}} AS BIGINT) - 1)"

    def quote(self, name: str) -> str:
        """Quotes an identifier as H2 reads one without quotes: in capital letters."""
        return super().quote(name.upper())

    def place(self, table: TableName) -> Mapping[str, object]:
        """Makes the parameters by which H2's catalogue knows a table: in capital letters."""
        return {"schema": table.schema.upper(), "table": table.table.upper()}

    def read_timestamp(self, value: Any) -> datetime:
        """Reads a timestamp, which is one of Java's."""
        return datetime.fromisoformat(str(value))
