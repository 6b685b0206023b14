"""How SQLite writes what the SQL standard leaves open."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar
from urllib.request import url2pathname
from zlib import crc32

from outbox_api.portable import ErrorKind, Idiom, TableName
from outbox_api.portable.rows import spellings
from outbox_api.support.statement import Style


class Replaced(sqlite3.OperationalError):
    """The file of a connection has been replaced or removed."""


class FileConnection(sqlite3.Connection):
    """A connection to a database's file, by its URI.

    SQLite goes on with a file that has been removed, for example when a backup or a compacted copy was moved
    to its place: changes would be lost, and new rows never seen. Each new cursor looks at the file's name.
    """

    def __init__(self, database: str, *arguments: Any, **settings: Any) -> None:
        self._path = url2pathname(database.removeprefix("file://").partition("?")[0])
        self._file = _identity(self._path)  # before it is opened, so that no replacement is missed
        super().__init__(database, *arguments, **settings)

    def cursor(self, *arguments: Any, **settings: Any) -> Any:
        """Returns a cursor.

        Raises:
            Replaced: Its changes would go to a file that has no name any more.
        """
        if _identity(self._path) != self._file:
            raise Replaced("the file was replaced or removed; the next connection opens the present one")
        return super().cursor(*arguments, **settings)


def _identity(path: str) -> tuple[int, int] | None:
    """Returns what tells a file from others; ``None`` if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_SHORT = 64
"""Bytes of a text that is compared as it is."""

_TRANSIENT = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_INTERRUPT",
    "SQLITE_NOMEM",
    "SQLITE_PROTOCOL",  # others lock the file for too long
    "SQLITE_SCHEMA",
)
_ACCESS_DENIED = ("SQLITE_PERM", "SQLITE_READONLY", "SQLITE_AUTH", "SQLITE_CANTOPEN")


class SqliteIdiom(Idiom):
    """SQLite's: only one transaction at a time changes rows, so that no row needs a lock."""

    style: ClassVar[Style] = Style.QMARK
    begin: ClassVar[str] = "BEGIN IMMEDIATE"
    now: ClassVar[str] = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    short_text_type: ClassVar[str] = "TEXT"
    brief_locks: ClassVar[str] = "PRAGMA busy_timeout = 1000"
    shared_lock: ClassVar[str] = ""
    exclusive_lock: ClassVar[str] = ""
    # The column holds anything, also texts that are not UTF-8, and of any length; their bytes have an order.
    time_text: ClassVar[str] = "SUBSTR(HEX(CAST(create_time AS TEXT)), 1, 64)"
    catalogue: ClassVar[str] = """
        SELECT '' AS schema_name, m.name AS table_name, c.name AS column_name
        FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"""
    current_schema: ClassVar[str] = "''"
    moment_type: ClassVar[str] = "TEXT"
    long_text_type: ClassVar[str] = "TEXT"
    numbered_type: ClassVar[str] = "INTEGER PRIMARY KEY AUTOINCREMENT"
    user: ClassVar[str] = ""
    # An index ends with the row's number, which is the id, whether its columns name it or not.
    indexes: ClassVar[str] = (
        "SELECT l.name, c.name FROM pragma_index_list({table}) l JOIN pragma_index_info(l.name) c"
        " ORDER BY l.name, c.seqno"
    )
    view_query: ClassVar[str] = (
        "SELECT name FROM sqlite_master WHERE type = 'view' AND name = {table} COLLATE NOCASE"
    )
    spelling: ClassVar[str] = (
        "SELECT '', name FROM sqlite_master WHERE type = 'table' AND name = {table} COLLATE NOCASE"
    )
    defaults: ClassVar[str] = "SELECT name, dflt_value FROM pragma_table_info({table})"
    types: ClassVar[str] = 'SELECT name, type, NULLIF(pk, 0), "notnull" FROM pragma_table_info({table})'

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        return sqlite3.Error

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by SQLite's name for it."""
        name = str(getattr(error, "sqlite_errorname", ""))
        if "no such table" in str(error):
            return ErrorKind.NO_TABLE
        if isinstance(error, Replaced):
            return ErrorKind.TRANSIENT
        if "closed database" in str(error):  # the harvester closed it, and connects anew
            return ErrorKind.TRANSIENT
        if "already exists" in str(error) or name in (
            "SQLITE_CONSTRAINT_PRIMARYKEY",
            "SQLITE_CONSTRAINT_UNIQUE",
        ):
            return ErrorKind.EXISTS
        if name.startswith(_ACCESS_DENIED):
            return ErrorKind.ACCESS_DENIED
        return ErrorKind.TRANSIENT if name.startswith(_TRANSIENT) else ErrorKind.PERMANENT

    def cure(self, error: Exception) -> str:
        """Returns what a user can do about an error; empty if there is no advice."""
        name = str(getattr(error, "sqlite_errorname", ""))
        if name.startswith("SQLITE_CANTOPEN"):
            return "correct dataSource, or run 'outbox init', which makes the file"
        return "another process writes for too long" if name.startswith("SQLITE_BUSY") else ""

    def read_value(self, value: Any) -> str | bytes | None:
        """Reads a record's value; a column of SQLite may hold anything."""
        if isinstance(value, Garbled):
            raise ValueError("the row's value is a text that is not UTF-8")  # noqa: TRY004 - a fault of the row
        return super().read_value(value)

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp."""
        return f"(julianday('now') - julianday({timestamp})) * 86400.0"

    def remainder(self, dividend: str, divisor: str) -> str:
        """Writes the remainder of a division of whole numbers."""
        return f"{dividend} % {divisor}"

    def comparable(self, text: str) -> str:
        """Writes a text's bytes in UTF-8: what was written as bytes equals the same written as text.

        Of many bytes it writes a digest: each selection compares all keys with all that are parked.
        """
        octets = f"CAST({text} AS BLOB)"
        return f"CASE WHEN LENGTH({octets}) <= {_SHORT} THEN HEX({text}) ELSE outbox_digest({octets}) END"

    def matches(self, column: str, pattern: str) -> str:
        """Writes that a text, perhaps written as bytes, matches; LIKE takes no regard of case."""
        return f"CAST({column} AS TEXT) GLOB {self.literal(pattern.replace('[', '[[]'))}"

    def time_parameter(self, moment: datetime) -> object:
        """Makes the parameter for a time, a text like those of ``now``."""
        return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    def byte_length(self, column: str) -> str:
        """Writes how many bytes a column has, whatever an application wrote into it."""
        return f"LENGTH(CAST({column} AS BLOB))"

    def to_utf8(self, column: str) -> str:
        """Leaves a value as it is: a column holds values of any type."""
        return column

    def from_utf8(self, column: str, *, binary: bool) -> str:
        """Writes a dead letter's value, whose bytes may be those of a text."""
        return column if binary else f"CAST({column} AS TEXT)"

    def set_default(self, table: TableName, column: str, default: str) -> str:  # noqa: ARG002 - the idiom's
        """Writes nothing: SQLite changes no default."""
        return ""

    def add_arrival(self, table: TableName, column: str) -> list[str]:
        """Writes the statements for a column that a trigger fills: a default must be there from the start."""
        outbox, arrived = self.quote_table(table), self.quote(column)
        trigger = self.quote(f"{table.table}_{column}")
        fill = f"UPDATE {outbox} SET {arrived} = {self.now} WHERE id = NEW.id"  # noqa: S608 - quoted
        return [
            self.add_column(table, column, self.moment_type),
            f"CREATE TRIGGER {trigger} AFTER INSERT ON {outbox} WHEN NEW.{arrived} IS NULL BEGIN {fill}; END",
        ]

    def not_in(self, key: str, keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
        """Writes that a key is none of ``keys``, with one parameter, as SQLite limits their number."""
        listed = json.dumps([digest(each) for text in keys for each in spellings(text)])
        chosen = self.comparable(key)
        condition = f"{chosen} NOT IN (SELECT value FROM json_each({{without}}))"  # noqa: S608 - of our own parts
        return condition, {"without": listed}

    def ids_not_in(self, ids: Sequence[int]) -> tuple[str, Mapping[str, object]]:
        """Writes that a row's id is none of ``ids``, as :meth:`not_in` does of keys."""
        return "id NOT IN (SELECT value FROM json_each({ids_without}))", {
            "ids_without": json.dumps(list(ids))
        }

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key, by a function that each connection defines."""
        return f"outbox_lane({key}, {{lanes}})"


def lane(key: str, lanes: int) -> int:
    """Returns the lane of a key: its hash modulo ``lanes``."""
    return crc32(key.encode()) % lanes


def digest(octets: bytes) -> str:
    """Returns the bytes of a text, or what stands for many: no hexadecimal number."""
    return octets.hex().upper() if len(octets) <= _SHORT else f"#{sha256(octets).hexdigest()}"


class Garbled(bytes):
    """The bytes of a text that is not UTF-8."""


def text(raw: bytes) -> str | Garbled:
    """Reads a text of SQLite, which may hold any bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Garbled(raw)
