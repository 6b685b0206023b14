"""How one database writes what the SQL standard leaves open."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

from outbox_api.base.record import Record
from outbox_api.portable.by_ids import ChangeByIds, within_runs
from outbox_api.portable.partitions import Partitions
from outbox_api.portable.table_idiom import TableIdiom
from outbox_api.support.statement import Style

_STEPS = (1, 10, 100, 1_000)
"""How many members one list has; a thousand is what every database takes."""


class ErrorKind(Enum):
    """What an error of the driver means."""

    TRANSIENT = (
        "the same call may succeed later: connection lost, deadlock, lock time-out, shutdown, read-only"
    )
    ROLLED_BACK = "the server has told that it has undone the transaction, which may succeed later"
    LOCK_TIMEOUT = "another transaction has locked a row for longer than the session waits"
    PERMANENT = "the call fails until somebody changes something"
    ACCESS_DENIED = "the user may not do this, or may not log in"
    FULL = "the server has no connection left"
    NO_TABLE = "a table does not exist"
    EXISTS = "a table, or a row with this key, exists already"


class Idiom(TableIdiom, ABC):
    """One database's way to write SQL. Stateless; the defaults are those of the SQL standard.

    In all SQL, parameters are written ``{name}``, and literal braces twice, as in ``str.format``.

    Attributes:
        errors: The driver's base class of errors.
        style: The driver's ``paramstyle``.
        begin: The statement that begins a transaction which changes rows; empty if the driver sends one.
        begin_watching: The statement that begins a transaction in a session that only looks, by which the
            database refuses changes; empty if it has none, or if the connection itself refuses them.
        max_ids: How many ids one statement may list.
        shared_lock: The end of a SELECT that locks its rows against changes; empty if transactions that
            change rows run one at a time.
        exclusive_lock: The end of a SELECT that locks its rows against shared and exclusive locks.
        skip_locked: The end of a SELECT that locks and returns only rows that nobody else has locked; empty
            if the database has none.
        id_index: The name of an outbox's index of ids, for a database that must be told to use it when it
            changes rows by their ids; empty for others.
        time_text: ``create_time`` as a text which is greater for a later time; empty if there is no such text
            that the database compares exactly. Then an outbox must not give out an id a second time.
        insert_new: Beginning and end of an INSERT that waits for others who insert its key, and leaves a row
            out if the key is there, for whatever fits the columns; empty if the database has none.
        last_id: The query for the greatest id that was given out, with the parameters of :meth:`place`; empty
            if the database keeps its counter ahead of all ids, as MySQL and SQLite do.
        last_id_cure: What moves the counter of ``{table}`` ahead.
        partitions: How a table of kept records has a partition for each day; ``None`` if it has none.
        will_change: What is behind a condition, and makes no difference to it, in the first query of a
            transaction that will change rows of ``{table}``: by it the transaction gets the lock on the table
            before it reads any, where one that got a greater lock later could meet who waits for it to end.
        unmarked: The condition that a row carries no leader id.
        fills_create_time: Whether the outbox fills ``create_time`` itself, so that an INSERT leaves it out.
    """

    style: ClassVar[Style]
    begin: ClassVar[str] = ""
    begin_watching: ClassVar[str] = ""
    max_ids: ClassVar[int] = 10_000
    shared_lock: ClassVar[str] = " FOR UPDATE"
    exclusive_lock: ClassVar[str] = " FOR UPDATE"
    skip_locked: ClassVar[str] = ""
    id_index: ClassVar[str] = ""
    time_text: ClassVar[str] = ""
    insert_new: ClassVar[tuple[str, str]] = ("", "")
    last_id: ClassVar[str] = ""
    last_id_cure: ClassVar[str] = ""
    partitions: ClassVar[Partitions | None] = None
    will_change: ClassVar[str] = ""
    unmarked: ClassVar[str] = "leader_id IS NULL"
    fills_create_time: ClassVar[bool] = False

    @property
    @abstractmethod
    def errors(self) -> type[Exception]:
        """The driver's base class of errors. Imports the driver."""

    @abstractmethod
    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error of the driver means."""

    @abstractmethod
    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp, with fractions, by the database's clock."""

    @abstractmethod
    def lane_of(self, key: str) -> str:
        """Writes the lane of a key, an expression that is never null: its hash modulo ``{lanes}``."""

    def remainder(self, dividend: str, divisor: str) -> str:
        """Writes the remainder of a division of whole numbers."""
        return f"MOD({dividend}, {divisor})"

    def words(self, error: Exception) -> str:
        """Returns the text of an error of the driver, without what it quotes of a row."""
        return str(error)

    def cure(self, error: Exception) -> str:  # noqa: ARG002 - for subclasses
        """Returns what a user can do about an error, in a few words; empty if there is no advice."""
        return ""

    def comparable(self, text: str) -> str:
        """Writes a text so that two are equal only if all bytes are, whatever the collation of a column."""
        return text

    def limit(self, select: str, count: str) -> str:
        """Limits an ordered SELECT to its first ``count`` rows, a number or a parameter."""
        return f"{select} LIMIT {count}"

    def locking_select(self, columns: str, table: str, condition: str, lock: str) -> str:
        """Writes a SELECT that locks its rows until the transaction ends.

        ``lock`` is ``shared_lock`` or ``exclusive_lock``.
        """
        return f"SELECT {columns} FROM {table} WHERE {condition}{lock}"  # noqa: S608 - made of our own parts

    def snapshot_read(self, table: str) -> str:
        """Writes a table in FROM so that a SELECT neither returns uncommitted rows nor waits for them."""
        return table

    def snapshot_by_id(self, table: str) -> str:
        """Writes an outbox as :meth:`snapshot_read` does, with the hint to read it in the order of ids."""
        return self.snapshot_read(table)

    def equals_by_index(self, column: str, value: str) -> str:
        """Writes that a column has a value, for a SELECT in the order of an index of it and ``id``."""
        return f"{column} = {value}"

    def snapshot_by_index(self, table: str, index: str) -> str:  # noqa: ARG002 - for subclasses
        """Writes an outbox as :meth:`snapshot_read` does, with the hint to read it by an index."""
        return self.snapshot_read(table)

    def change_by_ids(self, change: ChangeByIds, ids: str) -> str:
        """Writes an UPDATE or a DELETE of rows by their ids, which locks no other rows.

        Args:
            change: The statement.
            ids: The list of ids as the session writes it.
        """
        return change.sql(ids)

    def change_runs(self, change: ChangeByIds, runs: int) -> str:
        """Writes an UPDATE or a DELETE by runs of consecutive ids, which waits for no row outside of them.

        The runs are ``{first0}`` to ``{last0}``, ``{first1}`` to ``{last1}``, and so on. Empty if the
        database cannot: it locks the row behind a range, too. Rows are changed by lists of ids then.

        Args:
            change: The statement.
            runs: How many runs, one at least.
        """
        return change.sql_of(within_runs(runs))

    def delete_listed(self, table: str, of: str, key: str, query: str) -> str:
        """Writes a DELETE of the rows whose key a query returns, which reads no others.

        Args:
            table: The table.
            of: The column that equals the parameter of its name in all rows that are deleted.
            key: The column that tells them apart.
            query: A SELECT of this column.
        """
        return f"DELETE FROM {table} WHERE {of} = {{{of}}} AND {key} IN ({query})"  # noqa: S608 - quoted, with parameters

    def matches(self, column: str, pattern: str) -> str:
        """Writes that a text matches a pattern with ``*`` and ``?``, in which case matters."""
        escaped = re.sub(r"([!%_])", r"!\1", pattern).replace("*", "%").replace("?", "_")
        return f"{column} LIKE {self.literal(escaped)} ESCAPE '!'"

    def byte_length(self, column: str) -> str:
        """Writes the length in bytes of a row's key, value or headers; null for null."""
        return f"OCTET_LENGTH({column})"

    def size_of(self, column: str) -> str:
        """Writes how many bytes or characters a column of any type has, about; null for null."""
        return self.byte_length(column)

    def as_text(self, column: str) -> str:
        """Writes a column of any type as what :meth:`comparable` and :meth:`beginning` take."""
        return column

    def truth(self, value: bool) -> object:
        """Makes the parameter for a column that is true or false."""
        return value

    @property
    def free_rows(self) -> tuple[str, str]:
        """How a SELECT locks the rows that nobody else has locked: behind its table, and at its end.

        Where the database cannot tell them, it waits for the others.
        """
        return "", self.skip_locked or self.exclusive_lock

    def beginning(self, column: str, length: int) -> str:
        """Writes the first characters of a text."""
        return f"SUBSTRING({column}, 1, {length})"

    def to_utf8(self, column: str) -> str:  # noqa: ARG002 - for subclasses
        """Writes a text or bytes as bytes, text in UTF-8; empty if the database cannot.

        If it can, dead letters are copied within the database; if not, they pass through the client. Keys are
        copied by it, too, into a column of ``key_type``: ``comparable`` has to find them equal.
        """
        return ""

    def from_utf8(self, column: str, *, binary: bool) -> str:  # noqa: ARG002 - for subclasses
        """Writes the result of :meth:`to_utf8` as a value of the outbox again, bytes if ``binary``."""
        return ""

    def not_in(self, key: str, keys: Sequence[str]) -> tuple[str, Mapping[str, object]]:
        """Writes that a key is none of ``keys``, byte for byte; returns the values of the parameters, too.

        Args:
            key: The key, which is never null.
            keys: The keys, one at least.
        """
        return _not_in(self.comparable(key), keys, lambda name: self.comparable(f"{{{name}}}"))

    def not_in_query(self, key: str, query: str) -> str:
        """Writes that a key is none of those that a query returns, which are few and often none.

        Args:
            key: The key as :meth:`comparable` writes it.
            query: A SELECT of such keys.
        """
        return f"{key} NOT IN ({query})"

    def ids_not_in(self, ids: Sequence[int]) -> tuple[str, Mapping[str, object]]:
        """Writes that a row's id is none of ``ids``, one at least; returns the values of parameters, too."""
        return _not_in("id", ids, lambda name: f"{{{name}}}")

    def refusal(self, record: Record) -> str:  # noqa: ARG002 - for subclasses
        """Returns why an outbox of our layout cannot hold a record; empty if it can."""
        return ""

    def value_parameter(self, value: str | bytes | None) -> object:
        """Makes the parameter for a record's value that goes into an outbox."""
        return value

    def header_parameter(self, texts: Sequence[str | None]) -> object:
        """Makes the parameter for names or values of headers: a JSON array, or nothing for none."""
        return json.dumps(texts, ensure_ascii=False) if texts else None

    def bytes_parameter(self, value: str | bytes | None) -> object:
        """Makes the parameter for a record's value that goes into a column of bytes; text becomes UTF-8."""
        return value.encode() if isinstance(value, str) else value

    def older_than(self, column: str) -> str:
        """Writes that a timestamp is more than ``{seconds}`` ago."""
        return f"{self.age_seconds(column)} > {{seconds}}"

    def uuid_parameter(self, leader_id: UUID) -> object:
        """Makes the parameter for a leader id."""
        return str(leader_id)

    def time_parameter(self, moment: datetime) -> object:
        """Makes the parameter for a time, given with its zone, that is compared with ``moment_type``."""
        return moment if "ZONE" in self.moment_type else moment.astimezone(UTC).replace(tzinfo=None)

    def read_timestamp(self, value: Any) -> datetime:
        """Reads a timestamp as the driver returns it; without a time zone it is UTC."""
        read = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return read if read.tzinfo else read.replace(tzinfo=UTC)

    def read_text(self, value: Any) -> str | None:
        """Reads a text as the driver returns it."""
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value).decode(errors="backslashreplace")
        return None if value is None else str(value)

    def read_value(self, value: Any) -> str | bytes | None:
        """Reads a record's value as the driver returns it.

        Raises:
            ValueError: It is neither text nor bytes; the row's key is parked with the message.
        """
        if value is None or isinstance(value, str | bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise ValueError(f"the row's value is neither text nor bytes but {type(value).__name__}")

    def fetch_rows(self, cursor: Any) -> Sequence[Sequence[Any]]:
        """Fetches all rows that a statement returned."""
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows


def _not_in(
    column: str, members: Sequence[object], written: Callable[[str], str]
) -> tuple[str, Mapping[str, object]]:
    # Lists of few lengths make few statements to prepare; a member that is listed twice does no harm.
    step = next((step for step in _STEPS if step >= len(members)), _STEPS[-1])
    listed = [*members, *[members[-1]] * (-len(members) % step)]
    values = {f"without{number}": each for number, each in enumerate(listed)}
    names = [written(name) for name in values]
    lists = [", ".join(names[start : start + step]) for start in range(0, len(names), step)]
    return " AND ".join(f"{column} NOT IN ({each})" for each in lists), values
