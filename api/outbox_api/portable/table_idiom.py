"""How one database names, describes and changes tables, and tells what waits to be removed from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar, NamedTuple, Self

from outbox_api.base.errors import ConfigError

_PART = r'"(?:[^"]|"")+"|`(?:[^`]|``)+`|\[[^\]]+\]|[^\W\d][\w$#]*'
_DIGITS = 16
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


class TableName(NamedTuple):
    """A table as the user names it.

    Attributes:
        schema: The schema, or empty for the one that the connection is in.
        table: The table's own name.
    """

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``table`` or ``schema.table``; a part may stand in double quotes, backticks or brackets.

        Raises:
            ConfigError: It is neither.
        """
        found = _NAME.fullmatch(text.strip())
        if not found:
            raise not_a_name(text)
        return cls(_plain(found[1] or ""), _plain(found[2]))

    def within(self, schema: str) -> Self:
        """Returns the name in ``schema``, unless it names a schema of its own."""
        return self if self.schema else type(self)(schema, self.table)

    def suffixed(self, suffix: str) -> Self:
        """Returns the name of a table beside this one: its own with a suffix, within its quotes if any."""
        bare = self.table.removesuffix('"')
        return type(self)(self.schema, f"{bare}{suffix}{self.table[len(bare) :]}")

    def __str__(self) -> str:
        return self.unquoted

    @property
    def unquoted(self) -> str:
        """The parts of the name with a dot between, as the tables beside an outbox know it."""
        return ".".join(part for part in self if part)


def not_a_name(text: str) -> ConfigError:
    """Returns the error for a text that does not name a table."""
    return ConfigError(
        f"'{text}' is not a table name: write table or schema.table; "
        'put a part that holds anything but letters, digits and _ in double quotes, "like-this"'
    )


def bounded(name: str, length: int) -> str:
    """Returns a name of at most ``length`` bytes: a longer one is cut, and ends with its digest."""
    octets = name.encode()
    if len(octets) <= length:
        return name
    return octets[: length - _DIGITS].decode(errors="ignore") + sha256(octets).hexdigest()[:_DIGITS]


def _plain(part: str) -> str:
    mark = part[:1]
    if mark == "[":
        return part[1:-1]
    return part[1:-1].replace(mark * 2, mark) if mark in ('"', "`") else part


@dataclass(frozen=True, slots=True)
class UpkeepQueries:
    """Queries without parameters. A database that refuses one to a user does so for good.

    Attributes:
        unit: What ``dead`` counts, see ``Upkeep``.
        dead: Queries for the number of what waits to be removed, in the first column of the only row. Servers
            differ in what they permit: the next is sent if there is an error or no row.
        snapshot: The query for the oldest snapshot: its owner, and its age in seconds; no row if there is
            none. Only a user who sees everybody's may send it.
    """

    unit: str
    dead: tuple[str, ...]
    snapshot: str


_NAME_LENGTH = 60
"""Bytes of a name that we make; every database takes as many."""


class TableIdiom:
    """One database's way to write about tables; the defaults are those of the SQL standard.

    Attributes:
        now: The current time, as it is written into a row: that of the statement, not of the transaction.
            A default in the catalogue reads like this, so that migrations find no difference.
        stash_now: ``now`` in an application's statement, if a name on its search path can hide ``now``.
        catalogue: A query that returns ``schema_name``, ``table_name`` and ``column_name`` for each column of
            each table, views left out; at least of the tables that the user may harvest.
        current_schema: The schema of tables that are named without one, as ``schema_name`` has it.
        indexes: A query that returns name and column for each column of each index of a table, by name and
            position; its parameters are those of :meth:`place`. Empty if the database cannot tell.
        view_query: A query that returns a row for a view; likewise.
        spelling: A query for schema and name of a table as the database knows them, which may differ from how
            users write them; likewise. Empty if they do not.
        defaults: A query that returns name and default, as text, of each column of a table; likewise.
        types: A query that returns name and type of each column of a table, whether the database gives out
            its numbers (null where it does not tell), and whether it refuses nulls; likewise.
        second_digits: Digits of a second that a type of time has which names none.
        upkeep: Queries for what ``Upkeep`` holds, see :mod:`outbox_api.portable.view`; ``None`` if the
            database does not tell.
        user: The user of the session, and what may have to follow it in a query; empty if there are no users.
        present: The query for the present time, if it is another than ``SELECT`` and ``now``.
        short_text_type: The type of a column for a text of up to 4,000 characters.
        long_text_type: The type of a column for a text of any length.
        bytes_type: The type of a column for bytes of any length.
        integer_type: The type of a column for a whole number of 64 bits.
        numbered_type: The type of a column that the database numbers, upwards in the order of insertion, and
            never with a number that was given out before; perhaps with its primary key.
        kept_types: Column → its type, where the table of kept records needs another than others.
        key_type: The type of a column for the key of a dead letter.
        moment_type: The type of a column for a time.
        table_end: What follows the columns of a table beside the outbox; such as that its texts are compared
            byte for byte, where that is not so by default.
        brief_locks: The statement after which a session waits for locks of tables and rows for a second at
            most; empty if there is none.
        await_changes: The statement that waits for the changes of a ``{table}`` that are under way; empty
            where whoever holds the lanes of the fence has waited for all purges.
    """

    now: ClassVar[str] = "CURRENT_TIMESTAMP"
    stash_now: ClassVar[str] = ""
    catalogue: ClassVar[str] = """
        SELECT t.TABLE_SCHEMA AS schema_name, t.TABLE_NAME AS table_name, c.COLUMN_NAME AS column_name
        FROM INFORMATION_SCHEMA.COLUMNS c
        JOIN INFORMATION_SCHEMA.TABLES t
            ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
        WHERE t.TABLE_TYPE = 'BASE TABLE'"""
    current_schema: ClassVar[str] = "CURRENT_SCHEMA"
    indexes: ClassVar[str] = ""
    defaults: ClassVar[str] = """
        SELECT COLUMN_NAME, COLUMN_DEFAULT FROM INFORMATION_SCHEMA.COLUMNS
        WHERE TABLE_SCHEMA = COALESCE(NULLIF({schema}, ''), CURRENT_SCHEMA) AND TABLE_NAME = {table}"""
    view_query: ClassVar[str] = """
        SELECT TABLE_NAME FROM INFORMATION_SCHEMA.VIEWS
        WHERE TABLE_SCHEMA = COALESCE(NULLIF({schema}, ''), CURRENT_SCHEMA) AND TABLE_NAME = {table}"""
    spelling: ClassVar[str] = ""
    types: ClassVar[str] = """
        SELECT COLUMN_NAME, DATA_TYPE, NULL, CASE IS_NULLABLE WHEN 'NO' THEN 1 ELSE 0 END
        FROM INFORMATION_SCHEMA.COLUMNS
        WHERE TABLE_SCHEMA = COALESCE(NULLIF({schema}, ''), CURRENT_SCHEMA) AND TABLE_NAME = {table}"""
    second_digits: ClassVar[int] = 6
    upkeep: ClassVar[UpkeepQueries | None] = None
    present: ClassVar[str] = ""
    user: ClassVar[str] = "CURRENT_USER"
    short_text_type: ClassVar[str] = "VARCHAR(4000)"
    long_text_type: ClassVar[str] = "CLOB"
    bytes_type: ClassVar[str] = "BLOB"
    integer_type: ClassVar[str] = "BIGINT"
    numbered_type: ClassVar[str] = "BIGINT GENERATED BY DEFAULT AS IDENTITY"
    kept_types: ClassVar[Mapping[str, str]] = {}
    key_type: ClassVar[str] = "VARCHAR"
    moment_type: ClassVar[str] = "TIMESTAMP WITH TIME ZONE"
    table_end: ClassVar[str] = ""
    brief_locks: ClassVar[str] = ""
    await_changes: ClassVar[str] = ""

    def text_type(self, octets: int) -> str:
        """Writes the type of a column for any text of up to ``octets`` bytes in UTF-8, 4,000 at most."""
        return f"VARCHAR({octets})"

    def time_type(self) -> str:
        """Writes the type of a column for a time that is read, not only compared."""
        return self.moment_type

    def instant(self, column: str, type_: str) -> str:  # noqa: ARG002 - for subclasses
        """Writes a column of a type that knows the zone so that the driver returns it in UTC, without one.

        Empty for a type that does not, and if the driver returns the zone.
        """
        return ""

    def quote(self, name: str) -> str:
        """Quotes an identifier."""
        return '"' + name.replace('"', '""') + '"'

    def quote_table(self, table: TableName) -> str:
        """Writes a table's name."""
        return ".".join(self.quote(part) for part in table if part)

    def literal(self, text: str) -> str:
        """Writes a text as a constant."""
        return "'" + text.replace("'", "''") + "'"

    def known_as(self, table: TableName) -> str:
        """Writes a text: a table's name as the database knows it, with its schema.

        The statement that it is part of runs in the schema of the table, if the name has none.
        """
        return self.literal(str(table))

    def place(self, table: TableName) -> Mapping[str, object]:
        """Makes the parameters by which the database's catalogue knows a table."""
        return {"schema": table.schema, "table": table.table}

    def add_column(self, table: TableName, column: str, definition: str) -> str:
        """Writes the statement that adds a column."""
        return f"ALTER TABLE {self.quote_table(table)} ADD {self.quote(column)} {definition}"

    def set_default(self, table: TableName, column: str, default: str) -> str:
        """Writes the statement that changes a column's default; empty if the database has none."""
        return (
            f"ALTER TABLE {self.quote_table(table)} ALTER COLUMN {self.quote(column)} SET DEFAULT {default}"
        )

    def add_arrival(self, table: TableName, column: str) -> list[str]:
        """Writes the statements that add a column which holds when a row came into this database.

        It is null in rows that are there already.
        """
        added = self.add_column(table, column, self.moment_type)
        return [added, self.set_default(table, column, self.now)]

    def create_index(self, table: TableName, columns: Sequence[str]) -> str:
        """Writes the statement that creates an index, named after the table and the columns."""
        name, listed = self.index_name(table, columns), ", ".join(map(self.quote, columns))
        return f"CREATE INDEX {name} ON {self.quote_table(table)} ({listed})"

    def index_name(self, table: TableName, columns: Sequence[str]) -> str:
        """Returns the name of a new index, quoted, as ``CREATE INDEX`` takes it."""
        return self.quote(bounded("_".join((table.table, *columns)), _NAME_LENGTH))
