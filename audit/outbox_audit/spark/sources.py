"""What a job of Spark compares: a ledger, and topics, of which each task reads some offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
from outbox_api import OutboxError
from outbox_spark.workers import reason
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's users know it by this name
from pyspark.sql.types import IntegralType, StringType
from pyspark.sql.udtf import UserDefinedTableFunction

from outbox_audit.ledger import parse_entry, read_entries
from outbox_audit.spark.findings import ROWS
from outbox_audit.topic import Arrival, Stretch

STRETCH = 1_000_000
"""How many offsets of a partition a task reads at most."""

Count = Callable[[int], None]
"""Receives how many more lines or messages have been read."""
Read = Callable[[str, Sequence[Stretch]], Iterable[Arrival]]
"""Reads stretches of a topic."""
Batches = Iterator[pa.RecordBatch]

_BATCH_SIZE = 10_000
_LONGS = range(-(1 << 63), 1 << 63)
_ENTRIES = "key string, sequence bigint, topic string"
_ENTRY_COLUMNS = pa.schema({"key": pa.string(), "sequence": pa.int64(), "topic": pa.string()})
_ROW_COLUMNS = pa.schema(
    {
        "audit": pa.int32(),
        "key": pa.string(),
        "sequence": pa.int64(),
        "topic": pa.int32(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)


class Piece(NamedTuple):
    """What one task reads.

    Attributes:
        audit: The audit that it belongs to.
        place: The place of its topic among those that are read.
        topic: The topic.
        stretch: Partition and offsets.
    """

    audit: int
    place: int
    topic: str
    stretch: Stretch


def pieces(audit: int, place: int, topic: str, stretches: Sequence[Stretch]) -> Iterator[Piece]:
    """Yields the pieces of a topic, in order."""
    for partition, first, last in stretches:
        for begin in range(first, last, STRETCH):
            yield Piece(audit, place, topic, Stretch(partition, begin, min(begin + STRETCH, last)))


def messages(session: SparkSession, wanted: Sequence[Piece], read: Read, count: Count) -> DataFrame:
    """Returns the messages of topics, as rows; a task for each piece.

    The settings of Kafka, which ``read`` has, are part of the tasks. Spark shows nothing of them.
    """
    run = partial(_read, wanted=wanted, read=read, count=count)
    return _mapped(session.range(0, len(wanted), 1, max(len(wanted), 1)), run, ROWS)


def entries(session: SparkSession, ledger: str, count: Count) -> tuple[DataFrame, set[str | None]]:
    """Returns the records of a ledger: JSON lines, or Parquet if all of its files are named so.

    Returns:
        Rows of ``key``, ``sequence`` and ``topic``; and the topics, ``None`` for records without.

    Raises:
        OutboxError: There is no such ledger, its columns are not those of one, or a record cannot be read.
    """
    try:
        lines = session.read.text(ledger, lineSep="\n")
        files = lines.inputFiles()
        is_table = bool(files) and all(file.endswith(".parquet") for file in files)
        found = _table(session, ledger) if is_table else _parsed_lines(lines, count)
    except AnalysisException as error:
        raise OutboxError(f"cannot read ledger {ledger}: {reason(error)}") from error
    is_broken = F.max(F.col("key").isNull() | F.col("sequence").isNull()).alias("is_broken")
    topics = {row.topic: row.is_broken for row in found.groupBy("topic").agg(is_broken).collect()}
    if not any(topics.values()):
        return found, set(topics)
    if is_table:
        raise OutboxError(f"ledger {ledger}: a record has no key or no sequence")
    for file in files:
        if urlsplit(file).scheme == "file":
            for _ in read_entries(Path(url2pathname(urlsplit(file).path))):  # names the line
                pass
    raise OutboxError(
        f'ledger {ledger}: expected lines like ["key", 7] or ["key", 7, "topic"], with numbers of 64 bits'
    )


def committed(found: DataFrame, names: Sequence[str | None]) -> DataFrame:
    """Returns the records of a ledger, as rows, without those of topics that are not audited.

    Args:
        found: Of :func:`entries`.
        names: The topic of each audit; ``None`` if the ledger names none.
    """
    audit = F.lit(0)
    if None not in names:
        audit = F.array_position(F.array(*map(F.lit, names)), F.col("topic")) - 1
    place = (("topic", "int"), ("partition", "int"), ("offset", "bigint"))
    nowhere = (F.lit(None).cast(kind).alias(name) for name, kind in place)
    rows = found.select(audit.cast("int").alias("audit"), "key", "sequence", *nowhere)
    return rows.where(F.col("audit") >= 0)


def _table(session: SparkSession, ledger: str) -> DataFrame:
    table = session.read.parquet(ledger)
    types = {field.name: field.dataType for field in table.schema.fields}
    if not (
        isinstance(types.get("key"), StringType)
        and isinstance(types.get("sequence"), IntegralType)
        and isinstance(types.get("topic", StringType()), StringType)
    ):
        there = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
        raise OutboxError(
            f"ledger {ledger}: expected the columns {_ENTRIES} (which may be missing), not {there}"
        )
    topic = F.col("topic") if "topic" in types else F.lit(None).cast("string").alias("topic")
    return table.select("key", F.col("sequence").cast("bigint").alias("sequence"), topic)


def _parsed_lines(lines: DataFrame, count: Count) -> DataFrame:
    """Returns the records of JSON lines, as this package reads them; kept, as they are read several times."""
    raw = lines.select(F.col("value").cast("binary"))
    return _mapped(raw, partial(_parse, count=count), _ENTRIES).persist(StorageLevel.DISK_ONLY)


def _mapped(frame: DataFrame, run: Callable[[pa.RecordBatch], Batches], columns: str) -> DataFrame:
    """Returns what a function makes of each batch: ``mapInArrow``, which would need pandas."""

    class Mapped:
        def eval(self, batch: pa.RecordBatch) -> Batches:
            yield from run(batch)

    table: UserDefinedTableFunction = F.arrow_udtf(Mapped, returnType=columns)  # type: ignore[assignment]  # no decorator
    return table(frame.asTable())


def _parse(batch: pa.RecordBatch, count: Count) -> Batches:
    yield _batch([_parsed(line) for line in batch.column(0).to_pylist()], _ENTRY_COLUMNS)
    count(batch.num_rows)


def _parsed(line: bytes) -> tuple[str | None, int | None, str | None]:
    """Returns key, sequence and topic; nothing if it is not a line of a ledger."""
    try:
        entry = parse_entry(json.loads(line))
        f"{entry.key}{entry.topic}".encode()  # JSON can write what UTF-8 cannot
    except (ValueError, TypeError):
        return None, None, None
    return entry if entry.sequence in _LONGS else (None, None, None)


def _read(batch: pa.RecordBatch, wanted: Sequence[Piece], read: Read, count: Count) -> Batches:
    for number in batch.column(0).to_pylist():
        audit, place, topic, stretch = wanted[number]
        arrivals = iter(read(topic, [stretch]))
        while some := list(islice(arrivals, _BATCH_SIZE)):
            rows = [
                (audit, key, _stored(sequence), place, partition, offset)
                for partition, offset, key, sequence in some
            ]
            yield _batch(rows, _ROW_COLUMNS)
            count(len(some))


def _stored(sequence: int | None) -> int | None:
    """Returns a message's number as Spark stores it: a longer one is none of a record in the ledger."""
    return sequence if sequence is not None and sequence in _LONGS else None


def _batch(rows: Sequence[Sequence[Any]], columns: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
