"""How PostgreSQL writes what is not harvesting: the tables, and what is looked at or operated."""

from __future__ import annotations

from typing import ClassVar

from outbox_sdk.portable import ErrorKind, Idiom, TableName
from outbox_sdk.statement import Style


class PostgresIdiom(Idiom):
    """PostgreSQL's. What harvests is written elsewhere, with numbered parameters."""

    style: ClassVar[Style] = Style.PYFORMAT
    # Not that of the transaction, and the same type whatever others define.
    now: ClassVar[str] = "clock_timestamp()"
    brief_locks: ClassVar[str] = "SET lock_timeout = '1s'"
    short_text_type: ClassVar[str] = "TEXT"
    long_text_type: ClassVar[str] = "TEXT"
    bytes_type: ClassVar[str] = "BYTEA"
    key_type: ClassVar[str] = "TEXT"
    current_schema: ClassVar[str] = "current_schema()::text"
    user: ClassVar[str] = "session_user"

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        import psycopg  # noqa: PLC0415 - only who connects needs it

        return psycopg.Error

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by its SQLSTATE."""
        from outbox_postgres.errors import error_kind  # noqa: PLC0415 - as above

        return error_kind(error)

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp."""
        return f"extract(epoch FROM clock_timestamp() - {timestamp})::float8"

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key."""
        return f"(hashtext({key}) & 2147483647) % {{lanes}}"

    def comparable(self, text: str) -> str:
        """Writes a text so that two are equal only if all bytes are, whatever the collation of a column."""
        return f'{text}::text COLLATE "C"'

    def to_utf8(self, column: str) -> str:
        """Writes a value, of whatever type, as bytes; a key is text in both tables."""
        if column != "kafka_value":
            return column
        text = f"convert_to({column}::text, 'UTF8')"
        return f"CASE WHEN pg_typeof({column}) = 'bytea'::regtype THEN {column}::bytea ELSE {text} END"

    def from_utf8(self, column: str, *, binary: bool) -> str:
        """Writes bytes as a value of the outbox again."""
        return column if binary else f"convert_from({column}, 'UTF8')"

    def text_type(self, octets: int) -> str:  # noqa: ARG002 - the idiom's
        """Writes the type of a column for any text."""
        return "TEXT"

    def known_as(self, table: TableName) -> str:
        """Writes a text: a table's name with its schema, which may be the one where this session creates."""
        if table.schema:
            return f"{self.literal(f'{table.schema}.{table.table}')}::text"
        return f"{self.current_schema} || {self.literal(f'.{table.table}')}::text"
