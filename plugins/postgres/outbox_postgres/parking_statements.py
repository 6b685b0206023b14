"""The statements that park keys, by the rules of ``statements``, and the conditions that all share."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from outbox_api.base.bounds import MAX_KEY_BYTES, MAX_TOPIC_BYTES
from outbox_api.portable import TableName
from outbox_api.portable.sources import BEGINNING, COLUMNS
from outbox_api.portable.tables import Tables

from outbox_postgres.ddl import PostgresIdiom

FENCE_MATCHES = "name = $1 AND lane = $2 AND lanes = $3 AND token = $4 AND epoch = $5"


def free(outbox: TableName, lock: str) -> str:
    """Writes what locks those of the rows $7 that carry the leader id $6 and that nobody has locked."""
    return f"""free AS MATERIALIZED (
            SELECT id FROM {outbox}
            WHERE id = ANY ($7::bigint[]) AND leader_id = $6 AND EXISTS (SELECT FROM fence)
            {lock} SKIP LOCKED
        )"""


KEY = "coalesce(kafka_key, '')::text COLLATE \"C\""
"""A row's key as lanes know it, compared byte by byte whatever the collation of the column."""

TOPIC = "coalesce(kafka_topic, '')::text COLLATE \"C\""
"""A row's topic, as its key."""

PARKED_KEYS = f"SELECT {KEY} FROM {{}} WHERE name = $1 AND status = 'parked'"
"""The parked keys in a table of dead letters."""

_COPIED = COLUMNS[1:]
_COPY = ", ".join(_COPIED)


class ParkingStatements:
    """The statements for the dead letters of one outbox.

    A value is kept as its bytes, in UTF-8 where it is text.

    Attributes:
        park: $6 leader id, $7 ids as an array literal, $8 the heads' ids, $9 their reasons, $10 their
            attempts. Returns nothing when the fence is lost, else the number of keys parked.
        park_free: As ``park``, without the rows that others have locked.
        park_unmarked: As ``park``, for heads whatever leader id they carry: $6 is null, and $7 empty.
        id_conflicts: $1 name, $2 the heads' ids, $3 leader id or null for any. The ids of dead letters that
            heads would replace although they are skipped or of other keys: the outbox has given out these ids
            anew.
        move_conflicts: $1 name, $2 ids. Gives dead letters new ids, below all others and in their order.
    """

    def __init__(self, tables: Tables, *, binary: bool) -> None:
        outbox, fence, letters = tables.outbox, tables.fence, tables.dead_letters
        value = "kafka_value" if binary else "convert_to(kafka_value::text, 'UTF8')"
        kept = _COPY.replace("kafka_value", f"{value} AS kafka_value")
        chosen = f"FROM {letters} WHERE name = $1 AND id = ANY ($2::bigint[])"
        marked = f"""
            UPDATE {outbox} SET leader_id = NULL
            WHERE id = ANY ($7::bigint[]) AND leader_id = $6 AND EXISTS (SELECT FROM fence)
            RETURNING id, {kept}"""
        marked_free = f"""
            UPDATE {outbox} SET leader_id = NULL WHERE id = ANY (ARRAY(SELECT id FROM free))
            RETURNING id, {kept}"""
        unmarked = f"""
            SELECT id, {kept} FROM {outbox}
            WHERE id = ANY ($8::bigint[]) AND EXISTS (SELECT FROM fence)
              AND $6::uuid IS NULL AND $7::bigint[] = '{{}}'"""
        self.park, self.park_unmarked = (_park(fence, letters, rows) for rows in (marked, unmarked))
        self.park_free = _park(fence, letters, marked_free, f"{free(outbox, 'FOR NO KEY UPDATE')}, ")
        carried = f"{outbox} WHERE id = ANY ($2::bigint[]) AND ($3::uuid IS NULL OR leader_id = $3)"
        self.id_conflicts = f"""
            SELECT id {chosen} AND id IN (SELECT id FROM {carried})
              AND (status = 'skipped' OR (id, {KEY}) NOT IN (SELECT id, {KEY} FROM {carried}))"""
        self.move_conflicts = f"""
            UPDATE {letters} AS letter SET id = moved.id
            FROM (
                SELECT id AS former, lowest - row_number() OVER (ORDER BY id DESC) AS id
                FROM (SELECT least(0, min(id)) AS lowest FROM {letters} WHERE name = $1) AS every,
                     (SELECT id {chosen}) AS those
            ) AS moved
            WHERE letter.name = $1 AND letter.id = moved.former"""


def _park(fence: TableName, letters: TableName, rows: str, before: str = "") -> str:
    again = ", ".join(
        f"{column} = excluded.{column}" for column in (*_COPIED, "status", "reason", "attempts", "since")
    )
    # The share lock comes first, as in a mark.
    return f"""
        WITH fence AS MATERIALIZED (
            SELECT FROM {fence} WHERE {FENCE_MATCHES} FOR SHARE
        ), {before}heads AS ({rows}), parked AS (
            INSERT INTO {letters} (name, id, {_COPY}, status, reason, attempts, since)
            SELECT $1, id, {_COPY}, 'parked', reason, attempts, clock_timestamp()
            FROM heads JOIN unnest($8::bigint[], $9::text[], $10::bigint[]) AS head (id, reason, attempts)
            USING (id)
            ON CONFLICT (name, id) DO UPDATE SET {again}
            RETURNING id
        )
        SELECT (SELECT count(*) FROM parked) FROM fence"""


SEQUENCE_SHIFT = 32
"""By how many bits the number of a sequence's file is shifted."""

UNKNOWN = -1
"""What no statement sees as basis."""

_SHORT_ARRAY = 100
"""Bytes of an array up to which it is counted as it is stored, which is all but free.

Longer ones are counted as text, as they may be compressed.
"""

# The share lock comes first: whatever finds itself behind a bump waits here, looks at the row anew and finds
# nothing.
FENCE = f"fence AS MATERIALIZED (SELECT {{}} FROM {{}} WHERE {FENCE_MATCHES} FOR SHARE)"

LANE = "(hashtext(coalesce(kafka_key, '')::text) & 2147483647) % $3::int = $2::int"
"""Whether a row belongs to the lane $2 of $3."""


def _array_bytes(column: str) -> str:
    return (
        f"CASE WHEN pg_column_size({column}) > {_SHORT_ARRAY} THEN octet_length({column}::text)"
        f" ELSE coalesce(pg_column_size({column}), 0) END"
    )


SAMPLE = 64
"""Of a large mark or selection, one of so many rows tells when it was created, as each of them would cost."""
SMALL = 100
"""Up to so many rows, all of them do."""
CREATED = (
    f"CASE WHEN isfinite(create_time) AND ({{}} <= {SMALL} OR id % {SAMPLE} = 0)"
    " THEN date_part('epoch', create_time::timestamptz) END"
)
"""When a row was created, given how many are marked or selected; null for a row that does not tell."""
AGE = "extract(epoch FROM clock_timestamp() - CASE WHEN isfinite(create_time) THEN create_time END)::float8"
"""How many seconds ago a row was created; null for one that does not tell, as ``infinity`` does not."""
BYTES = (
    # Known without a look at the value itself, wherever that is stored.
    "coalesce(octet_length(kafka_value), 0)::bigint + coalesce(octet_length(kafka_key), 0)"
    " + coalesce(octet_length(kafka_topic), 0)"
    f" + {_array_bytes('kafka_header_keys')} + {_array_bytes('kafka_header_values')}"
)
"""How many bytes a row has."""
TOO_LONG = (
    f"(octet_length(kafka_topic) > {MAX_TOPIC_BYTES} OR octet_length(kafka_key) > {MAX_KEY_BYTES}) IS TRUE"
)
"""Whether a row has a topic or key that is too long to be read."""
LENGTHS = f"ARRAY[{BYTES}, coalesce(octet_length(kafka_topic), 0), coalesce(octet_length(kafka_key), 0)]"
"""The bytes of a row, of its topic and of its key."""
PLACE = ", ".join(
    f"CASE WHEN octet_length({column}) > {most} THEN left({column}::text, {BEGINNING})"
    f" ELSE {column}::text END"
    for column, most in (("kafka_topic", MAX_TOPIC_BYTES), ("kafka_key", MAX_KEY_BYTES))
)
"""A row's topic and key, cut where they are too long."""


def basis(outbox: TableName, sequence: int | None) -> str:
    """Returns what a start rests on, as one number: where ids come from in the upper half, then the releases.

    ``TRUNCATE ... RESTART IDENTITY`` and ``ALTER SEQUENCE ... RESTART`` give the sequence another file. A
    table that takes the outbox's name has another object id.

    Args:
        outbox: The outbox table.
        sequence: The object id of the sequence, or ``None`` if ids come from none.
    """
    if sequence is None:
        return "releases"
    table = f"coalesce(to_regclass({PostgresIdiom().literal(str(outbox))})::oid::bigint, 0)"
    file = f"coalesce(pg_relation_filenode({sequence}), 0)::bigint"
    return f"(releases # (({file} # {table}) << {SEQUENCE_SHIFT}))"


def restarted(known: int, seen: int) -> bool:
    """Returns whether ids come from elsewhere, or begin anew, between two values of :func:`basis`."""
    return known >> SEQUENCE_SHIFT != seen >> SEQUENCE_SHIFT
