"""The columns of the source, and how records become Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa
from outbox_api import DeadLetter, Header
from outbox_api.seams.kept import KeptRecord

from pyspark_outbox.parts import Positioned

SCHEMA = (
    "id BIGINT, position BIGINT, topic STRING, key STRING, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT, timestamp TIMESTAMP, "
    "create_time TIMESTAMP, deleted BOOLEAN"
)
"""The same as ``ARROW``, as Spark writes it."""
LETTER_SCHEMA = f"{SCHEMA}, status STRING, reason STRING, attempts BIGINT, since TIMESTAMP"
"""The same as ``LETTER_ARROW``."""
KEPT_SCHEMA = (
    f"{SCHEMA}, delivered_at TIMESTAMP, token BIGINT, has_value BOOLEAN, has_headers BOOLEAN, "
    "superseded BOOLEAN"
)
"""The same as ``KEPT_ARROW``."""
_TIME = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("partition", pa.int32()),
        ("timestamp", _TIME),
        ("create_time", _TIME),
        ("deleted", pa.bool_()),
    ]
)
LETTER_ARROW = pa.schema(
    [*ARROW, ("status", pa.string()), ("reason", pa.string()), ("attempts", pa.int64()), ("since", _TIME)]
)
KEPT_ARROW = pa.schema(
    [
        *ARROW,
        *(("delivered_at", _TIME), ("token", pa.int64())),
        *((name, pa.bool_()) for name in ("has_value", "has_headers", "superseded")),
    ]
)
ROWS = 1_000
_MICROSECONDS = 1_000_000
_FIRST_TIME, _TIMES_END = -62_135_424_000_000_000, 253_402_214_400_000_000
"""Microseconds since 1970 of the years 1 to 9999, without the first two days and the last: Spark holds more,
Python and many sinks do not, and less in other zones.
"""


def batches(rows: Sequence[Positioned], *, values: bool) -> Iterator[pa.RecordBatch]:
    """Makes Arrow batches of records, in their order; without ``values`` these are null."""
    for first in range(0, len(rows), ROWS):
        columns = _columns(rows[first : first + ROWS], values=values)
        yield pa.RecordBatch.from_arrays(columns, schema=ARROW)


def packed(rows: Sequence[Positioned], *, values: bool) -> bytes:
    """Returns records in Arrow's format of streams; see :func:`batches`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        for batch in batches(rows, values=values):
            stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def letter_batches(letters: Sequence[DeadLetter], *, values: bool) -> Iterator[pa.RecordBatch]:
    """Makes one Arrow batch of dead letters; see :func:`batches`."""
    if letters:
        rows = [Positioned(None, letter.record) for letter in letters]
        told = [(str(each.status), each.reason, each.attempts, each.since) for each in letters]
        yield _extended(_columns(rows, values=values), told, LETTER_ARROW)


def kept_batch(kept: Sequence[KeptRecord], *, values: bool) -> pa.RecordBatch:
    """Makes one Arrow batch of kept records, at least one; see :func:`batches`."""
    columns = _columns([Positioned(each.position, each.record) for each in kept], values=values)
    place = ARROW.get_field_index("deleted")
    known = zip(columns[place].to_pylist(), kept, strict=True)
    columns[place] = pa.array([deleted if each.has_value else None for deleted, each in known], pa.bool_())
    told = [
        (each.delivered_at, each.token, each.has_value, each.has_headers, each.superseded) for each in kept
    ]
    return _extended(columns, told, KEPT_ARROW)


def _extended(
    columns: list[pa.Array], told: Sequence[tuple[object, ...]], schema: pa.Schema
) -> pa.RecordBatch:
    """Adds what is told of each row behind the columns of ``ARROW``."""
    more = zip(*told, strict=True)
    added = [pa.array(column, schema[place].type) for place, column in enumerate(more, len(columns))]
    return pa.RecordBatch.from_arrays([*columns, *added], schema=schema)


def _columns(rows: Sequence[Positioned], *, values: bool) -> list[pa.Array]:
    positions, records = zip(*rows, strict=True)
    ids, topics, keys, contents, headers, partitions, timestamps, faults, created = zip(*records, strict=True)
    columns = (
        ids,
        positions,
        topics,
        keys,
        _binary(contents) if values else [None] * len(rows),
        _headers([() if fault else each for each, fault in zip(headers, faults, strict=True)]),
        partitions,
        [None if time is None else _moment(time * 1000) for time in timestamps],
        [None if time is None else _moment(time * _MICROSECONDS) for time in created],
        # Only batch queries have rows with faults.
        [None if fault else value is None for value, fault in zip(contents, faults, strict=True)],
    )
    return [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]


def _headers(headers: Sequence[Sequence[Header]]) -> pa.Array:
    names = pa.array([name for each in headers for name, _ in each], pa.string())
    values = _binary([value for each in headers for _, value in each])
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    offsets = pa.array([0, *accumulate(map(len, headers))], pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, type=_HEADERS)


def _moment(microseconds: float) -> int | None:
    """Returns a time as Spark holds it; ``None`` for one of no year from 1 to 9999, or without an end."""
    return round(microseconds) if _FIRST_TIME <= microseconds < _TIMES_END else None


def _binary(values: Sequence[str | bytes | None]) -> pa.Array:
    try:
        return pa.array(values, pa.binary())
    except UnicodeEncodeError:  # half of a pair of surrogates, which some databases hold
        encoded = [
            each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in values
        ]
        return pa.array(encoded, pa.binary())
