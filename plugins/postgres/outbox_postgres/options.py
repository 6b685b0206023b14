"""What a user may set beside ``driver: postgres``, and how the names in it are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from outbox_sdk import ConfigError, Duration, Intake

VALUE_TYPES = ("text", "bytea")

_PART = re.compile(r'"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))?")
_FILLFACTORS = range(10, 101)


class TableName(NamedTuple):
    """A table as the user names it.

    Attributes:
        schema: The schema, or empty to let the search path decide.
        table: The table's own name.
    """

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Reads ``table`` or ``schema.table`` as PostgreSQL does: unquoted parts fold to lower case.

        Raises:
            ConfigError: It is neither.
        """
        if not _NAME.fullmatch(text.strip()):
            raise ConfigError(
                f"'{text}' is not a table name: write table or schema.table; "
                'put a part that holds anything but letters, digits and _ in double quotes, "like-this"'
            )
        parts = [
            quoted.replace('""', '"') if quoted else plain.lower() for quoted, plain in _PART.findall(text)
        ]
        return cls(parts[0] if len(parts) > 1 else "", parts[-1])

    def within(self, schema: str) -> TableName:
        """Returns the name in ``schema``, unless it names a schema of its own."""
        return self if self.schema else TableName(schema, self.table)

    def __str__(self) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in self if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Options of the PostgreSQL dialect.

    Attributes:
        data_source: Where the database is, as libpq's ``key=value`` string or URL. An empty value before
            another key (``password= dbname=x``) is read as empty.
        table: The outbox table, optionally with its schema.
        fence_table: The fence table; without a schema it lives beside the outbox.
        dead_letter_table: The table of dead letters; without a schema it lives beside the outbox.
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
        skip_settled: Whether marks may start behind ids below which, provably, no row can appear any more.
            Switch it off when an application takes ids from the sequence in one transaction and inserts
            them in another; marks then read from the head of the table every time.
        intake: A table of another layout whose rows are moved into the outbox before they are marked.
    """

    data_source: str = field(
        default="host=localhost port=5432 user=postgres password= dbname=postgres sslmode=disable", repr=False
    )
    table: str = "outbox"
    fence_table: str = "outbox_fence"
    dead_letter_table: str = "outbox_dead_letters"
    value_type: str = "text"
    fillfactor: int = 45
    connect_timeout: Duration = 5.0
    lock_timeout: Duration = 5.0
    statement_timeout: Duration = 30.0
    prepare: bool = True
    skip_settled: bool = True
    intake: Intake | None = None

    def __post_init__(self) -> None:
        if self.value_type not in VALUE_TYPES:
            raise ConfigError(f"valueType is '{self.value_type}'; it can be {' or '.join(VALUE_TYPES)}")
        if self.fillfactor not in _FILLFACTORS:
            raise ConfigError(f"fillfactor is {self.fillfactor}; it can be 10 to 100")
        for name in ("connect_timeout", "lock_timeout", "statement_timeout"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)} s; it cannot be negative")
        if self.intake and TableName.parse(self.intake.table) == self.outbox:
            raise ConfigError(f"intake.table is '{self.intake.table}', the outbox itself")
        TableName.parse(self.table)
        TableName.parse(self.fence_table)
        TableName.parse(self.dead_letter_table)

    @property
    def outbox(self) -> TableName:
        """The outbox table's name."""
        return TableName.parse(self.table)

    @property
    def fence(self) -> TableName:
        """The fence table's name, in the outbox's schema unless it names its own."""
        return TableName.parse(self.fence_table).within(self.outbox.schema)

    @property
    def dead_letters(self) -> TableName:
        """The name of the table of dead letters, in the outbox's schema unless it names its own."""
        return TableName.parse(self.dead_letter_table).within(self.outbox.schema)
