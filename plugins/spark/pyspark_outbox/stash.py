"""The sink ``outbox``: the rows of a batch become rows of an outbox, in one transaction with its note.

Tasks hand their rows to the driver, which writes them. So a batch is stashed as a whole or not at all,
whatever its division into tasks, and one that Spark repeats is recognised by its note.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from outbox_api import ConfigError, DriverError, Record, RecordError, Stasher
from outbox_api.application.inbox import Inbox
from outbox_api.portable.session import translated
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark_outbox_kafka.columns import Columns, messages, read_schema
from pyspark_outbox_kafka.sentences import in_a_sentence

from pyspark_outbox.connection import Connection
from pyspark_outbox.options import StashOptions

QUERY = "sql.streaming.queryId"
"""The property of a task that names its query."""
KEPT = timedelta(days=30)
"""How long the note of a batch is kept, at least."""
_TIDY_BATCHES = 100
"""In one batch of so many, older notes are deleted."""


class Rows(WriterCommitMessage):
    """What a task hands over.

    Attributes:
        query: The id of the query; ``None`` of a batch query.
        records: Its rows, in order.
    """

    def __init__(self, query: str | None, records: list[Record]) -> None:
        self.query = query
        self.records = records


def record_columns(schema: StructType, topic: str | None) -> Columns:
    """Reads which columns rows have.

    Raises:
        ConfigError: One is missing, unknown, of another type, or of what a record does not have.
    """
    columns = read_schema(schema, topic)
    for name in ("partition", "timestamp"):
        if name in columns.places:
            raise ConfigError(f"the sink has no column '{name}': a record that is stashed has none; drop it")
    return columns


class _Tasks:
    """What tasks do. Spark pickles it, and sends it to executors."""

    def __init__(self, columns: Columns, *, holds_bytes: bool) -> None:
        self._columns = columns
        self._holds_bytes = holds_bytes

    @in_a_sentence
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        """Reads the rows of a task, on an executor."""
        context = TaskContext.get()
        records = [
            _record(each, holds_bytes=self._holds_bytes)
            for batch in iterator
            for some in messages(batch, self._columns, 0)
            for each in some
        ]
        return Rows(context.getLocalProperty(QUERY) if context else None, records)


class _Stash(_Tasks):
    """What the writers of streams and of batches share."""

    def __init__(self, options: StashOptions, columns: Columns) -> None:
        dialect = options.settings.dialect.options
        super().__init__(columns, holds_bytes=dialect.value_type == dialect.value_types[1])
        self._options = options

    def _stash(self, parts: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        rows = [each for each in parts if isinstance(each, Rows)]
        records = [record for each in rows for record in each.records]
        if not records:
            return
        settings = self._options.settings
        stasher = Stasher(
            settings.dialect.options.table, settings.dialect.driver, bytes_values=self._holds_bytes
        )
        dialect: Any = settings.dialect.create()

        def write(connection: Any) -> None:
            try:
                if batch is None or self._is_first(connection, rows[0].query, batch, records):
                    stasher.stash_many(connection, records)
                    connection.commit()
            except dialect.idiom.errors as error:
                doing = "stash a batch"
                if batch is not None:
                    doing += f", and note it in {self._options.inbox_table}"
                raise translated(error, dialect.idiom, doing, dialect.address, dialect.secrets) from None

        # Of a batch without a note nobody could tell whether a first try has written it.
        patience = 0.0 if batch is None else settings.failures.stop_after
        with closing(Connection(dialect.stash_connection, patience)) as connection:
            connection.ask(write)

    def _is_first(self, connection: Any, query: str | None, batch: int, records: Sequence[Record]) -> bool:
        """Notes a batch; returns whether it was not noted.

        Raises:
            DriverError: It was noted with other rows.
        """
        inbox = Inbox(f"spark.{query}", self._options.settings.dialect.driver, self._options.inbox_table)
        first = inbox.first(connection, f"{batch}")
        other = inbox.first(connection, f"{batch}.{_digest(records)}")
        if other and not first:
            raise DriverError(
                f"batch {batch} of the query {query} is stashed, and has other keys now: another copy of "
                "the query runs, or the checkpoint is an older copy. Go on with the latest checkpoint; or "
                "begin with a new one, if the query does not give the same keys for the same input",
                retryable=False,
            )
        if first and batch % _TIDY_BATCHES == 0:
            inbox.forget(connection, KEPT)
        return first


class StreamTasks(_Tasks, DataSourceStreamArrowWriter):
    """What executors get of a stream's sink: nothing of the database."""


class StreamStash(_Stash, DataSourceStreamArrowWriter):
    """Stashes the batches of a stream."""

    def __reduce__(self) -> Any:
        """Sends executors only what tasks do; the driver makes its own."""
        return partial(StreamTasks, self._columns, holds_bytes=self._holds_bytes), ()

    @in_a_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Stashes the rows of all tasks in one transaction, unless they are stashed already."""
        self._stash(messages, batchId)


class BatchStash(_Stash, DataSourceArrowWriter):
    """Stashes what a batch query gives."""

    @in_a_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Stashes the rows of all tasks in one transaction."""
        self._stash(messages, None)


def _record(message: Any, *, holds_bytes: bool) -> Record:
    """Makes a record of a row whose key and value are bytes."""
    key, value = message.key or b"", message.value
    try:
        value = value if holds_bytes or value is None else value.decode()
        return Record(message.topic, key.decode(), value, message.headers)
    except UnicodeDecodeError as error:
        raise RecordError(
            f"key or value of a row is not text in UTF-8, as the outbox holds it (topic "
            f"{message.topic!r:.60}, key {key!r:.60}); values that are bytes need a table of bytes, and the "
            "option dialect.valueType"
        ) from error


def _digest(records: Sequence[Record]) -> str:
    """Returns a digest of what is the same in a repeated batch, whatever its division into tasks.

    Values may have what a query invents: an id, or a time.
    """
    hashed = blake2b(digest_size=16)
    for topic, key in sorted((each.topic, each.key) for each in records):
        hashed.update(f"{len(topic)} {len(key)} {topic}{key}".encode())
    return hashed.hexdigest()
