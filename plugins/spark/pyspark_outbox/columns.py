"""The columns of the source, and how records become Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa
from outbox_api import DeadLetter, MarkedRecord

from pyspark_outbox.parts import Positioned

SCHEMA = (
    "id BIGINT, position BIGINT, topic STRING, key STRING, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, partition INT, timestamp TIMESTAMP, "
    "create_time TIMESTAMP, deleted BOOLEAN"
)
"""The same as ``ARROW``, as Spark writes it."""
LETTER_SCHEMA = f"{SCHEMA}, status STRING, reason STRING, attempts BIGINT, since TIMESTAMP"
"""The same as ``LETTER_ARROW``."""
_TIME = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
        ("partition", pa.int32()),
        ("timestamp", _TIME),
        ("create_time", _TIME),
        ("deleted", pa.bool_()),
    ]
)
LETTER_ARROW = pa.schema(
    [*ARROW, ("status", pa.string()), ("reason", pa.string()), ("attempts", pa.int64()), ("since", _TIME)]
)
ROWS = 1_000
_MICROSECONDS = 1_000_000
_FIRST_TIME, _TIMES_END = -62_135_424_000_000_000, 253_402_214_400_000_000
"""Microseconds since 1970 of the years 1 to 9999, without the first two days and the last: Spark holds more,
Python and many sinks do not, and less in other zones.
"""


def batches(records: Sequence[Positioned], *, values: bool) -> Iterator[pa.RecordBatch]:
    """Makes Arrow batches of records, in their order; without ``values`` these are null."""
    return _batches((_row(each.position, each.record, values=values) for each in records), ARROW)


def packed(records: Sequence[Positioned], *, values: bool) -> bytes:
    """Returns records in Arrow's format of streams; see :func:`batches`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for batch in batches(records, values=values):
            stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def letter_batches(letters: Sequence[DeadLetter], *, values: bool) -> Iterator[pa.RecordBatch]:
    """Makes Arrow batches of dead letters; see :func:`batches`."""
    rows = (
        (*_row(None, each.record, values=values), str(each.status), each.reason, each.attempts, each.since)
        for each in letters
    )
    return _batches(rows, LETTER_ARROW)


def _batches(rows: Iterable[tuple[object, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rest = iter(rows)
    while some := list(islice(rest, ROWS)):
        columns = zip(zip(*some, strict=True), schema, strict=True)
        arrays = [pa.array(column, field.type) for column, field in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _row(position: int | None, record: MarkedRecord, *, values: bool) -> tuple[object, ...]:
    timestamp, created = record.timestamp_ms, record.created
    if record.fault:  # only batch queries have such rows
        record = record._replace(headers=())
    return (
        record.id,
        position,
        record.topic,
        record.key,
        _bytes(record.value) if values else None,
        [{"key": name, "value": _bytes(value)} for name, value in record.headers],
        record.partition,
        None if timestamp is None else _moment(timestamp * 1000),
        None if created is None else _moment(created * _MICROSECONDS),
        None if record.fault else record.value is None,
    )


def _moment(microseconds: float) -> int | None:
    """Returns a time as Spark holds it; ``None`` for one of no year from 1 to 9999, or without an end."""
    return round(microseconds) if _FIRST_TIME <= microseconds < _TIMES_END else None


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
