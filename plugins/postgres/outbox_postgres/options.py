"""The options of ``driver: postgres``, and names of tables and columns as PostgreSQL writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Self

from outbox_api import ConfigError, Duration, FileText
from outbox_api.portable import PortableOptions, TableName
from outbox_api.portable.outboxes import TablePattern
from outbox_api.portable.table_idiom import not_a_name

LONGEST_NAME = 63
"""Bytes of a name that the server keeps."""

_PART = re.compile(r'"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))?")


class QuotedName(TableName):
    """A table's name that prints as it stands in SQL, with each part in double quotes."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads ``table`` or ``schema.table`` as PostgreSQL does: unquoted parts fold to lower case.

        Raises:
            ConfigError: It is neither.
        """
        if not _NAME.fullmatch(text.strip()):
            raise not_a_name(text)
        parts = [
            quoted.replace('""', '"') if quoted else plain.lower() for quoted, plain in _PART.findall(text)
        ]
        return cls(parts[0] if len(parts) > 1 else "", parts[-1])

    def __str__(self) -> str:
        return ".".join(quoted(part) for part in self if part)


def quoted(name: str) -> str:
    """Writes the name of a column, a role or a part of a table's name as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


_FILLFACTORS = range(10, 101)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions(PortableOptions):
    """Options of the PostgreSQL dialect.

    Attributes:
        data_source: Where the database is, as libpq's ``key=value`` string or URL. An empty value before
            another key (``password= dbname=x``) is read as empty.
        password: The password, instead of one in the data source; taken as it is, without quotes.
        value_type: The value column's type in the DDL, ``text`` or ``bytea``; an existing table keeps its
            own.
        fillfactor: Percentage of a page that inserts may fill in a table of the DDL; the rest takes the
            marked versions of the same rows, which then need no index entries. They are longer by the leader
            id, hence less than half.
        connect_timeout: How long to try to connect to each address.
        lock_timeout: How long a statement may wait for a lock; a forgotten transaction then shows as an
            error.
        statement_timeout: How long a statement may run; 0 for any time.
        prepare: Whether to prepare statements. Switch it off behind a pooler that cannot keep them.
        skip_settled: Whether marks and selections may start behind ids below which, provably, no row can
            appear any more. Switch it off when an application takes ids from the sequence in one transaction
            and inserts them in another; both then read from the head of the table every time.
        owners: Whose tables a pattern of names finds, beside those of the harvester's own role, superusers
            and the database's owner: names of roles, with ``*`` for any characters. Triggers of a table run
            with the harvester's rights, and whoever may create a schema may give it any name.
    """

    value_types: ClassVar[tuple[str, str]] = ("text", "bytea")

    data_source: str | FileText = field(
        default="host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable", repr=False
    )
    password: str | FileText | None = field(default=None, repr=False)
    fillfactor: int = 45
    connect_timeout: Duration = 5.0
    lock_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0
    prepare: bool = True
    skip_settled: bool = True
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        PortableOptions.__post_init__(self)
        if (
            len(f"{self.fence.table}_members".encode()) > LONGEST_NAME
        ):  # the server would cut the names of the tables beside it
            raise ConfigError(f"fenceTable is '{self.fence_table}'; its own name can have 55 bytes")
        # The partitions of two days would get one name.
        if self.keep and len(f"{self.outbox.table}_kept_20261231".encode()) > LONGEST_NAME:
            raise ConfigError(f"table is '{self.table}'; with 'keep' its own name can have 49 bytes")
        if self.by_day and len(f"{self.outbox.table}_20261231".encode()) > LONGEST_NAME:
            raise ConfigError(f"table is '{self.table}'; with partitions its own name can have 54 bytes")
        if self.fillfactor not in _FILLFACTORS:
            raise ConfigError(f"fillfactor is {self.fillfactor}; it can be 10 to 100")
        self.require_times("connect_timeout", "lock_timeout", "statement_timeout", zero=True)

    @classmethod
    def table_name(cls, text: str) -> TableName:
        """Reads a table's name; unquoted parts fold to lower case."""
        return QuotedName.parse(text)

    @classmethod
    def table_pattern(cls, text: str) -> TablePattern:
        """Reads a pattern of tables' names, which have capitals."""
        return TablePattern(text, cls.table_name, flags=re.NOFLAG)
