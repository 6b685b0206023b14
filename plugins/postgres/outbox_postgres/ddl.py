"""The tables of an outbox, as SQL."""
# ruff: noqa: S608 - names are quoted by QuotedName, texts by literal

from __future__ import annotations

from zlib import crc32

from outbox_sdk.portable import TableName
from outbox_sdk.portable.columns import EXTRAS, SCHEMA_LANE, schema_name
from outbox_sdk.schema import OLDEST, SCHEMA

from outbox_postgres.names import QuotedName, is_cut, with_suffix
from outbox_postgres.options import PostgresOptions
from outbox_postgres.origin_columns import column_types, id_type, index_ddl


def ddl(options: PostgresOptions) -> list[str]:
    """Returns the statements that create what does not exist of an outbox, and note its version."""
    sequence = sequence_of(options.outbox)
    return [*tables_ddl(options).values(), sequence_ddl(sequence), first_note(options)]


def tables_ddl(options: PostgresOptions) -> dict[TableName, str]:
    """Returns what creates the outbox and the tables beside it where they do not exist, by table."""
    return {
        options.outbox: outbox_ddl(options),
        options.fence: fence_ddl(options.fence),
        options.dead_letters: dead_letters_ddl(options.dead_letters),
        options.journal: journal_ddl(options.journal),
    }


EXTRA_TYPES = dict(zip(EXTRAS, ("INTEGER", "BIGINT"), strict=True))
"""Columns of an outbox whose intake tells partition and timestamp (milliseconds), with their types."""


def outbox_ddl(options: PostgresOptions) -> str:
    """Returns the statements that create the outbox, in the column layout of goharvest (docs/algorithm.md).

    Key and value have any length; users may set goharvest's lengths. Without an index on the leader id, and
    with room in each page, a mark writes no index entry.
    """
    wanted = options.intake and (options.intake.partition or options.intake.timestamp)
    more = {**(EXTRA_TYPES if wanted else {}), **column_types(options.origin)}
    extras = "".join(f"\n    {name} {type_}," for name, type_ in more.items())
    index = f";\n{index_ddl(options.outbox, options.origin)}" if options.origin else ""
    return f"""CREATE TABLE IF NOT EXISTS {options.outbox} (
    id {id_type(options.origin)} PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value {options.value_type.upper()},
    kafka_header_keys TEXT[] NOT NULL DEFAULT '{{}}',
    kafka_header_values TEXT[] NOT NULL DEFAULT '{{}}',{extras}
    leader_id UUID
) WITH (
    fillfactor = {options.fillfactor},
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
){index}"""


# PostgreSQL 12 has no gen_random_uuid(). Who executes this DDL has a search path of their own, so that each
# argument has exactly the type of the server's own functions: no function of others fits better.
_RANDOM = (
    "encode(substr(sha256((random()::text || clock_timestamp()::text)::bytea), 1, 16), 'hex'::text)::uuid"
)

FENCE_ADDITIONS = {
    "releases": "BIGINT NOT NULL DEFAULT 0",
    "transacting": "INTEGER NOT NULL DEFAULT 0",
    "sender": "TEXT NOT NULL DEFAULT ''",
    "marker_place": "TEXT NOT NULL DEFAULT ''",
    "identity": f"UUID NOT NULL DEFAULT {_RANDOM}",
}
"""Columns that a fence made by an earlier version may lack.

How often keys were freed; how many lanes there were when the lane was noted to publish in transactions, 0
when it is not; the name of its sender then, and where that keeps its checkpoint; and what tells the lane from
those of other outboxes.
"""


def fence_ddl(fence: TableName) -> str:
    """Returns the statement that creates the fence table.

    It has few rows, which are written often; most of a page stays free for their next versions.
    """
    additions = ",\n    ".join(f"{column} {type_}" for column, type_ in FENCE_ADDITIONS.items())
    return f"""CREATE TABLE IF NOT EXISTS {fence} (
    name TEXT NOT NULL,
    lane INTEGER NOT NULL,
    lanes INTEGER NOT NULL,
    token BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    holder TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    beat TIMESTAMP WITH TIME ZONE,
    reading JSONB NOT NULL DEFAULT '{{}}',
    {additions},
    PRIMARY KEY (name, lane)
) WITH (fillfactor = 10)"""


def dead_letters_ddl(letters: TableName) -> str:
    """Returns the statements that create the table of dead letters.

    It can hold every row that an outbox can hold, faulty ones included: a value as its bytes, and nulls in
    any column. Marks read the parked keys through the index, which does not contain the keys, as they may be
    longer than an index permits.
    """
    return f"""CREATE TABLE IF NOT EXISTS {letters} (
    name TEXT NOT NULL,
    id BIGINT NOT NULL,
    kafka_topic TEXT,
    kafka_key TEXT,
    kafka_value BYTEA,
    kafka_header_keys TEXT[],
    kafka_header_values TEXT[],
    fate TEXT NOT NULL CHECK (fate IN ('parked', 'skipped')),
    reason TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (name, id)
);
{parked_index_ddl(letters)}"""


def parked_index(letters: TableName) -> QuotedName:
    """Returns the name of the index of the parked keys, in the schema of their table."""
    return QuotedName(letters.schema, with_suffix(letters.table, "_parked"))


def parked_index_ddl(letters: TableName) -> str:
    """Returns the statement that creates the index of the parked keys."""
    index = QuotedName("", parked_index(letters).table)
    return f"CREATE INDEX IF NOT EXISTS {index} ON {letters} (name, since) WHERE fate = 'parked'"


def journal_ddl(journal: TableName) -> str:
    """Returns the statements that create the journal, with an index for the last entries of an outbox."""
    index = QuotedName("", with_suffix(journal.table, "_begun"))
    return f"""CREATE TABLE IF NOT EXISTS {journal} (
    name TEXT NOT NULL,
    id UUID NOT NULL,
    begun TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp(),
    ended TIMESTAMP WITH TIME ZONE,
    operator TEXT NOT NULL,
    via TEXT NOT NULL,
    verb TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT NOT NULL,
    outcome TEXT,
    PRIMARY KEY (name, id)
);
CREATE INDEX IF NOT EXISTS {index} ON {journal} (name, begun, id)"""


def sequence_of(outbox: TableName) -> QuotedName:
    """Returns the name of the sequence of an outbox's lease, in the outbox's schema."""
    suffix = "_lease"
    if is_cut(outbox.table, suffix):
        suffix = f"_{crc32(outbox.table.encode()):08x}{suffix}"
    return QuotedName(outbox.schema, with_suffix(outbox.table, suffix))


def sequence_ddl(sequence: QuotedName) -> str:
    """Returns the statement that creates a sequence of a lease where there is none."""
    return f"CREATE SEQUENCE IF NOT EXISTS {sequence}"


def first_note(options: PostgresOptions) -> str:
    """Returns the statement that notes the version of tables that have just been created.

    An outbox without a schema is in the one where this session creates tables.
    """
    schema, table = options.outbox
    within = literal(schema) if schema else "current_schema()::text"
    name = f"{literal(schema_name(''))}::text || {within} || {literal(f'.{table}')}::text"
    return f"{_note(options.fence, name, 'outbox init')} ON CONFLICT (name, lane) DO NOTHING"


def later_note(fence: TableName, outbox: str) -> str:
    """Returns the statement that notes the version of tables that were brought up to it.

    Args:
        fence: The fence table.
        outbox: The outbox's name in its fence.
    """
    columns = ("token", "attempt", "holder", "since")
    excluded = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return f"""{_note(fence, literal(schema_name(outbox)), "outbox migrate")}
ON CONFLICT (name, lane) DO UPDATE SET {excluded} WHERE noted.token < excluded.token"""


def literal(text: str) -> str:
    """Writes a text as it stands in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _note(fence: TableName, name: str, holder: str) -> str:
    return f"""INSERT INTO {fence} AS noted (name, lane, lanes, token, attempt, holder, since)
VALUES ({name}, {SCHEMA_LANE}, 0, {SCHEMA}, {OLDEST}, {literal(holder)}, CURRENT_TIMESTAMP)"""
