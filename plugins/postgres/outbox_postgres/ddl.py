"""The tables of an outbox, as SQL, and how PostgreSQL writes what is not harvesting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from outbox_api.base.record import Record
from outbox_api.portable import ErrorKind, Idiom, TableName
from outbox_api.portable.partitions import Partitions
from outbox_api.portable.sources import DEAD_LETTER_COLUMNS, EXTRAS, FENCE_COLUMNS
from outbox_api.portable.table_idiom import bounded
from outbox_api.portable.tables import DEAD_LETTER_CHECK, Tables, auxiliary_statements, created
from outbox_api.support.statement import Style

from outbox_postgres.errors import cure, error_kind, without_rows
from outbox_postgres.options import LONGEST_NAME, PostgresOptions, QuotedName
from outbox_postgres.origin_columns import column_types, id_type
from outbox_postgres.partitions import PostgresPartitions, rest_of
from outbox_postgres.settled import FIRST


class PostgresIdiom(Idiom):
    """PostgreSQL's. What harvests is written elsewhere, with numbered parameters."""

    style: ClassVar[Style] = Style.PYFORMAT
    # Not that of the transaction, so that no age is older than the wait in the outbox.
    now: ClassVar[str] = "clock_timestamp()"
    stash_now: ClassVar[str] = "pg_catalog.clock_timestamp()"
    brief_locks: ClassVar[str] = "SET lock_timeout = '1s'"
    # Of partitions, which are vacuumed, no lock: each change of one locks the table, too.
    await_changes: ClassVar[str] = "LOCK TABLE ONLY {table} IN SHARE MODE"
    short_text_type: ClassVar[str] = "TEXT"
    long_text_type: ClassVar[str] = "TEXT"
    bytes_type: ClassVar[str] = "BYTEA"
    key_type: ClassVar[str] = "TEXT"
    numbered_type: ClassVar[str] = "BIGSERIAL"
    kept_types: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("kafka_header_keys", "kafka_header_values"), "TEXT[]"
    )
    partitions: ClassVar[Partitions | None] = PostgresPartitions()
    current_schema: ClassVar[str] = "current_schema()::text"
    user: ClassVar[str] = "session_user"
    skip_locked: ClassVar[str] = " FOR UPDATE SKIP LOCKED"
    insert_new: ClassVar[tuple[str, str]] = ("INSERT", " ON CONFLICT DO NOTHING")

    @property
    def errors(self) -> type[Exception]:
        """The driver's base class of errors."""
        import psycopg  # noqa: PLC0415 - only who connects needs it

        return psycopg.Error

    def error_kind(self, error: Exception) -> ErrorKind:
        """Returns what an error means, by its SQLSTATE."""
        return error_kind(error)

    def words(self, error: Exception) -> str:
        """Returns the text of an error, without what it quotes of a row."""
        return without_rows(error)

    def cure(self, error: Exception) -> str:
        """Returns what a user can do about an error; empty if there is no advice."""
        return cure(error)

    def age_seconds(self, timestamp: str) -> str:
        """Writes the seconds since a timestamp; null for one that does not tell, as ``infinity`` does not."""
        finite = f"CASE WHEN isfinite({timestamp}) THEN {timestamp} END"
        return f"extract(epoch FROM clock_timestamp() - {finite})::float8"

    def lane_of(self, key: str) -> str:
        """Writes the lane of a key."""
        return f"(hashtext({key}) & 2147483647) % {{lanes}}"

    def as_text(self, column: str) -> str:
        """Writes a column as text."""
        return f"{column}::text"

    def equals_by_index(self, column: str, value: str) -> str:
        """Writes the comparison so that no index but that of the column and ``id`` has the wanted order."""
        return f"({column}, id) >= ({value}, {FIRST}) AND {column} <= {value}"

    def refusal(self, record: Record) -> str:
        """Returns why the database cannot hold a record; empty if it can."""
        texts = [each for each in (record.topic, record.key, record.value) if isinstance(each, str)]
        texts += [
            part if isinstance(part, str) else part.decode()
            for each in record.headers
            for part in each
            if part
        ]
        if not any("\0" in text for text in texts):
            return ""
        return "PostgreSQL's text types hold no NUL character; stash the value as bytes into a bytea column"

    def header_parameter(self, texts: Sequence[str | None]) -> object:
        """Makes the parameter for names or values of a record's headers: an array."""
        return texts

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


_FENCE_COLUMNS = {
    **FENCE_COLUMNS,
    "lane": "INTEGER NOT NULL",
    "lanes": "INTEGER NOT NULL",
    "holder": "TEXT NOT NULL",
    "metrics": "TEXT NOT NULL DEFAULT '{{}}'",
    "releases": "BIGINT NOT NULL DEFAULT 0",  # how often keys were freed
    "transacting": "INTEGER NOT NULL DEFAULT 0",
    "sender": "TEXT NOT NULL DEFAULT ''",
    "location": "TEXT NOT NULL DEFAULT ''",
}
_DEAD_LETTER_COLUMNS = {
    **DEAD_LETTER_COLUMNS,
    "kafka_header_keys": "TEXT[]",
    "kafka_header_values": "TEXT[]",
    "reason": "TEXT NOT NULL",
}


def tables_ddl(options: PostgresOptions, names: Tables) -> dict[TableName, Sequence[str]]:
    """Returns the statements that create the tables, by table."""
    idiom = PostgresIdiom()
    # A fence has few rows, which are written often; most of a page stays free for their next versions.
    fence = f"{created(idiom, names.fence, _FENCE_COLUMNS, 'name, lane')} WITH (fillfactor = 10)"
    letters = created(idiom, names.dead_letters, _DEAD_LETTER_COLUMNS, "name, id", DEAD_LETTER_CHECK)
    return {
        names.outbox: outbox_ddl(options, QuotedName(*names.outbox)),
        **auxiliary_statements(idiom, names),
        names.fence: [fence],
        names.dead_letters: [letters, parked_index_ddl(QuotedName(*names.dead_letters))],
    }


def once(statement: str) -> str:
    """Returns a statement that creates something, so that it does nothing where that exists."""
    return re.sub(r"^CREATE (TABLE|INDEX) ", r"CREATE \1 IF NOT EXISTS ", statement)


EXTRA_TYPES = dict(zip(EXTRAS, ("INTEGER", "BIGINT"), strict=True))
"""Columns of an outbox whose intake tells partition and timestamp (milliseconds), with their types."""


def outbox_ddl(options: PostgresOptions, outbox: TableName) -> list[str]:
    """Returns the statements that create the outbox, in the column layout of goharvest (docs/algorithm.md).

    Key and value have any length; users may set goharvest's lengths. Without an index on the leader id, and
    with room in each page, a mark writes no index entry.
    """
    wanted = any(intake.partition or intake.timestamp for intake in options.intakes)
    more = {**(EXTRA_TYPES if wanted else {}), **column_types(options.origin)}
    extras = "".join(f"\n    {name} {type_}," for name, type_ in more.items())
    own, beside = (" PRIMARY KEY", "") if not options.by_day else ("", ",\n    PRIMARY KEY (id, create_time)")
    created = f"""CREATE TABLE {outbox} (
    id {id_type(options.origin)}{own},
    create_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {options.value_type.upper()},
    kafka_header_keys TEXT[] NOT NULL DEFAULT '{{}}',
    kafka_header_values TEXT[] NOT NULL DEFAULT '{{}}',{extras}
    leader_id UUID{beside}
)"""
    settings = f""" WITH (
    fillfactor = {options.fillfactor},
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
)"""
    tables = [created + settings]
    if options.by_day:  # what has rows has settings
        whole = created + PostgresPartitions().clause("create_time")
        tables = [whole, f"CREATE TABLE {rest_of(outbox)} PARTITION OF {outbox} DEFAULT{settings}"]
    origin = options.origin
    indexes = [PostgresIdiom().create_index(outbox, (origin.column, "id"))] if origin else []
    return [*tables, *indexes, sequence_ddl(sequence_of(outbox))]


def parked_index(letters: TableName) -> QuotedName:
    """Returns the name of the index of the parked keys, in the schema of their table."""
    return QuotedName(letters.schema, bounded(f"{letters.table}_parked", LONGEST_NAME))


def parked_index_ddl(letters: TableName) -> str:
    """Returns the statement that creates the index of the parked keys, through which marks read them.

    It does not contain the keys, as they may be longer than an index permits.
    """
    index = QuotedName("", parked_index(letters).table)
    return f"CREATE INDEX {index} ON {letters} (name, since) WHERE status = 'parked'"


def sequence_of(outbox: TableName) -> QuotedName:
    """Returns the name of the sequence of an outbox's lease, in the outbox's schema."""
    return QuotedName(outbox.schema, bounded(f"{outbox.table}_lease", LONGEST_NAME))


def sequence_ddl(sequence: QuotedName) -> str:
    """Returns the statement that creates a sequence of a lease where there is none."""
    return f"CREATE SEQUENCE IF NOT EXISTS {sequence}"
