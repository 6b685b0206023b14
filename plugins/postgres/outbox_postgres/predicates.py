"""What the statements that mark or select rows have in common: sizes, lanes, and the fence."""

from __future__ import annotations

from outbox_sdk.portable import TableName
from outbox_sdk.portable.columns import BEGINNING, MAX_KEY_BYTES, MAX_TOPIC_BYTES

from outbox_postgres.ddl import literal
from outbox_postgres.parking_statements import FENCE_MATCHES

SEQUENCE_SHIFT = 32
"""By how many bits the number of a sequence's file is shifted."""

UNKNOWN = -1
"""What no statement sees as basis."""

_SMALL = 100
"""Bytes of an array up to which it is counted as it is stored, which is all but free.

Longer ones are counted as text, as they may be compressed.
"""

# The share lock comes first: whatever finds itself behind a bump waits here, looks at the row anew and finds
# nothing.
FENCE = f"fence AS MATERIALIZED (SELECT {{}} FROM {{}} WHERE {FENCE_MATCHES} FOR SHARE)"  # noqa: S608 - our own parts

LANE = "(hashtext(coalesce(kafka_key, '')::text) & 2147483647) % $3::int = $2::int"
"""Whether a row belongs to the lane $2 of $3."""


def _array_bytes(column: str) -> str:
    return (
        f"CASE WHEN pg_column_size({column}) > {_SMALL} THEN octet_length({column}::text)"
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
    table = f"coalesce(to_regclass({literal(str(outbox))})::oid::bigint, 0)"
    file = f"coalesce(pg_relation_filenode({sequence}), 0)::bigint"
    return f"(releases # (({file} # {table}) << {SEQUENCE_SHIFT}))"


def restarted(known: int, seen: int) -> bool:
    """Returns whether ids come from elsewhere, or begin anew, between two values of :func:`basis`."""
    return known >> SEQUENCE_SHIFT != seen >> SEQUENCE_SHIFT
