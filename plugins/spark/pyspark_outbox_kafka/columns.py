"""The columns of the sink, which are those of Spark's own for Kafka, and how rows become messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
from outbox_api import ConfigError, DriverError, MarkedRecord
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

_TEXTS: Final = "STRING or BINARY"
_WANTED: Final = {
    "topic": "STRING",
    "key": _TEXTS,
    "value": _TEXTS,
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "partition": "INT",
    "timestamp": "TIMESTAMP",
}
_ROWS: Final = 1_000
"""Rows that are handed to the client at once."""


class Columns(NamedTuple):
    """Where the columns are, by name; and the topic of all rows, if they have one."""

    places: dict[str, int]
    topic: str | None


def read_schema(schema: StructType, topic: str | None) -> Columns:
    """Reads which columns rows have.

    Raises:
        ConfigError: One is missing, unknown or of another type.
    """
    places = dict[str, int]()
    for place, each in enumerate(schema.fields):
        name = each.name.lower()
        if name not in _WANTED:
            raise ConfigError(f"the sink has no column '{each.name}'; there are {', '.join(_WANTED)}")
        if not _fits(name, each.dataType):
            raise ConfigError(
                f"the column '{name}' is {each.dataType.simpleString().upper()}, and must be {_WANTED[name]}"
            )
        places[name] = place
    if "value" not in places:
        raise ConfigError("the column 'value' is missing")
    if topic is None and "topic" not in places:
        raise ConfigError("neither the option 'topic' nor a column of that name says where rows go")
    return Columns(places, topic)


def _fits(name: str, found: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(found, StringType | BinaryType)
    if name == "headers":
        struct = found.elementType if isinstance(found, ArrayType) else None
        if not isinstance(struct, StructType) or [each.lower() for each in struct.names] != ["key", "value"]:
            return False
        return isinstance(struct[0].dataType, StringType) and isinstance(struct[1].dataType, BinaryType)
    kinds = {"topic": StringType, "partition": IntegerType, "timestamp": TimestampType}
    return isinstance(found, kinds[name])


def messages(batch: pa.RecordBatch, columns: Columns, first: int) -> Iterator[list[MarkedRecord]]:
    """Makes messages of rows, some at a time, numbered from ``first``; keys and values are bytes.

    Raises:
        DriverError: A row has no topic.
    """
    for start in range(0, batch.num_rows, _ROWS):
        some = batch.slice(start, _ROWS)
        count = some.num_rows
        topics = [columns.topic] * count if columns.topic is not None else _column(some, columns, "topic")
        if None in topics:
            raise DriverError("a row has no topic: its column 'topic' is null", retryable=False)
        keys, values = _column(some, columns, "key"), _column(some, columns, "value")
        parts, times = _column(some, columns, "partition"), _column(some, columns, "timestamp")
        headers = map(_headers, _column(some, columns, "headers"))
        numbers = range(first + start, first + start + count)
        none = [None] * count
        yield list(map(MarkedRecord, numbers, topics, keys, values, headers, parts, times, none, none))


def _column(batch: pa.RecordBatch, columns: Columns, name: str) -> list[Any]:
    place = columns.places.get(name)
    if place is None:
        return [None] * batch.num_rows
    column = batch.column(place)
    if name in ("key", "value"):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    if name == "timestamp":  # microseconds; an earlier moment of the millisecond, as Spark does
        return [None if each is None else each // 1000 for each in column.cast(pa.int64()).to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _headers(found: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(tuple(each.values()) for each in found) if found else ()
