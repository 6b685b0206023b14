"""How one database writes what SQL leaves open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

from outbox_sdk.portable.by_ids import ChangeByIds
from outbox_sdk.portable.names import TableName
from outbox_sdk.record import Record
from outbox_sdk.statement import Style

_STEPS = (1, 10, 100, 1_000)
"""How many keys one list has; a thousand is what every database takes."""


class ErrorKind(Enum):
    """What an error of the driver means."""

    PASSING = "the same call may succeed later: connection lost, deadlock, lock time-out, shutdown, read-only"
    LOCKED = "another transaction has held a row for longer than we wait"
    LASTING = "somebody must change something first"
    REFUSED = "the user may not do this, or is not let in"
    ABSENT = "a table does not exist"
    PRESENT = "a table, or a row with this key, exists already"


class Idiom(ABC):
    """One database's way to write SQL. Stateless; the defaults are the standard's.

    SQL is written with parameters as ``{name}``, as in ``str.format``.

    Attributes:
        errors: The driver's base class of errors.
        style: How the driver wants parameters.
        begin: What begins a transaction that changes something; empty where the driver does it by itself.
        now: The current moment, as it is written into a row: that of the statement, not of the transaction.
        parts: How many ids one statement may list.
        shared: What a SELECT ends with to hold its rows against changes; empty where transactions that change
            something run one by one.
        alone: What a SELECT ends with to hold its rows against everybody who wants them so or so.
        free: What a SELECT ends with to return, and hold, only rows that nobody else holds; or empty.
        id_index: The name of an outbox's index of ids, for a database that must be told to use it when it
            changes rows by their ids; empty elsewhere.
        scans_wait: Whether a DELETE that passes rows of others waits for those that are not committed.
        line: The type of a column that holds a text of up to 4,000 characters.
        fills_create_time: Whether the outbox fills ``create_time`` by itself, so that inserts leave it out.
    """

    style: ClassVar[Style]
    begin: ClassVar[str] = ""
    now: ClassVar[str] = "CURRENT_TIMESTAMP"
    parts: ClassVar[int] = 10_000
    shared: ClassVar[str] = " FOR UPDATE"
    alone: ClassVar[str] = " FOR UPDATE"
    free: ClassVar[str] = ""
    id_index: ClassVar[str] = ""
    scans_wait: ClassVar[bool] = False
    line: ClassVar[str] = "VARCHAR(4000)"
    fills_create_time: ClassVar[bool] = False

    @property
    @abstractmethod
    def errors(self) -> type[Exception]:
        """The driver's base class of errors. Imports the driver."""

    @abstractmethod
    def error_kind(self, error: Exception) -> ErrorKind:
        """Says what an error of the driver means."""

    @abstractmethod
    def age(self, moment: str) -> str:
        """Writes how many seconds ago a moment was, with fractions, by the database's clock."""

    @abstractmethod
    def lane(self, key: str) -> str:
        """Writes the lane of a key, an expression that is never null: its hash modulo ``{lanes}``."""

    def cure(self, error: Exception) -> str:  # noqa: ARG002 - for those that know one
        """Says what a user can do about an error, in a few words, or nothing."""
        return ""

    def exact(self, text: str) -> str:
        """Writes a text so that two are equal only if each byte is, whatever the collation."""
        return text

    def name(self, name: str) -> str:
        """Quotes an identifier."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, table: TableName) -> str:
        """Writes a table's name."""
        return ".".join(self.name(part) for part in table if part)

    def first(self, select: str, count: str) -> str:
        """Limits an ordered SELECT to its first rows; ``count`` is a number or a parameter."""
        return f"{select} LIMIT {count}"

    def held(self, columns: str, table: str, condition: str, hold: str) -> str:
        """Writes a SELECT that holds its rows until the transaction ends; ``hold`` is shared or alone."""
        return f"SELECT {columns} FROM {table} WHERE {condition}{hold}"  # noqa: S608 - made of our own parts

    def seen(self, table: str) -> str:
        """Writes a table to mark from: what is uncommitted must neither be seen nor waited for."""
        return table

    def head(self, table: str) -> str:
        """Writes an outbox to mark from, as :meth:`seen` does, to be read in the order of ids."""
        return self.seen(table)

    def change_by_ids(self, change: ChangeByIds, ids: str) -> str:
        """Writes an UPDATE or a DELETE of rows by their ids, which locks no other rows.

        Args:
            change: The statement.
            ids: The list of ids as the session writes it.
        """
        return change.sql(ids)

    def size(self, column: str) -> str:
        """Writes how many bytes a row's key, value or headers have; null where they are."""
        return f"OCTET_LENGTH({column})"

    def utf8(self, column: str) -> str:  # noqa: ARG002 - for those that can
        """Writes a text or bytes as bytes, text in UTF-8; empty where the database cannot.

        Where it can, letters are copied within the database; where not, their values pass through the client.
        """
        return ""

    def restored(self, column: str, *, binary: bool) -> str:  # noqa: ARG002 - for those that can
        """Writes what :meth:`utf8` has made as a value of the outbox again, bytes if ``binary``; or empty."""
        return ""

    def without(self, key: str, keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
        """Writes that a key is none of ``keys``, of which there are some, and returns the parameters' values.

        ``key`` is written by :meth:`exact`, so what it is compared with must be, too.
        """
        # Of few lengths, so that there are few statements; what is listed twice does no harm.
        step = next((step for step in _STEPS if step >= len(keys)), _STEPS[-1])
        listed = [*keys, *[keys[-1]] * (-len(keys) % step)]
        values = {f"without{number}": each for number, each in enumerate(listed)}
        names = [self.exact(f"{{{name}}}") for name in values]
        lists = [", ".join(names[start : start + step]) for start in range(0, len(names), step)]
        return " AND ".join(f"{key} NOT IN ({each})" for each in lists), values

    def refuse(self, record: Record) -> str:  # noqa: ARG002 - for those that cannot hold all
        """Says why an outbox of ours cannot hold a record, or nothing."""
        return ""

    def stored(self, value: str | bytes | None) -> object:
        """Makes the parameter for a record's value that goes into an outbox."""
        return value

    def octets(self, value: str | bytes | None) -> object:
        """Makes the parameter for a record's value that goes into a column of bytes, text as UTF-8."""
        return value.encode() if isinstance(value, str) else value

    def earlier(self, column: str) -> str:
        """Writes that a moment is more than ``{seconds}`` ago."""
        return f"{self.age(column)} > {{seconds}}"

    def uuid(self, leader_id: UUID) -> object:
        """Makes the parameter for a leader id."""
        return str(leader_id)

    def moment(self, value: Any) -> datetime:
        """Reads a moment as the driver returns it; one without a zone is UTC."""
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def text(self, value: Any) -> str | None:
        """Reads a text as the driver returns it."""
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).decode(errors="backslashreplace")
        return None if value is None else str(value)

    def value(self, value: Any) -> str | bytes | None:
        """Reads a record's value as the driver returns it.

        Raises:
            ValueError: It is neither text nor bytes; the message says so, and the row's key is parked.
        """
        if value is None or isinstance(value, str | bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise ValueError(f"the row's value is neither text nor bytes but {type(value).__name__}")

    def rows(self, cursor: Any) -> Sequence[Sequence[Any]]:
        """Fetches what a statement returned."""
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows
