"""The adapters to PySpark's writers; what they do is in :mod:`.task` and :mod:`.driver`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow as pa
from outbox_api import MarkedRecord, OutboxError
from outbox_kafka.settings import validate
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_outbox_kafka.columns import Columns, messages
from pyspark_outbox_kafka.driver import end_batch
from pyspark_outbox_kafka.ledger import Part, Report
from pyspark_outbox_kafka.log import SinkLog, producer_settings
from pyspark_outbox_kafka.options import PREFIX, SinkOptions
from pyspark_outbox_kafka.sentences import in_a_sentence
from pyspark_outbox_kafka.task import SinkTask

_QUERY, _RUN, _BATCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"
"""Properties of a task of a stream."""
_NO_STREAM = "batch"
"""The query of a batch query."""


class Written(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, report: Report) -> None:
        self.report = report


class _Writer:
    """What the writers of streams and of batches share. Spark pickles it, and sends it to executors."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        """Checks the options; connects to nothing.

        Raises:
            ConfigError: The client does not know a setting, or cannot parse its value.
        """
        validate(producer_settings(options, PREFIX))
        self._options = options
        self._columns = columns

    def _publish(self, iterator: Iterator[pa.RecordBatch], part: Part, name: str) -> Written:
        task = SinkTask(SinkLog(self._options, name), part, self._options.replaces_query)
        return Written(task.write(self._rows(iterator)))

    def _rows(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[list[MarkedRecord]]:
        first = 0
        for batch in iterator:
            yield from messages(batch, self._columns, first)
            first += batch.num_rows


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes a batch of a stream."""

    @in_a_sentence
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publishes the rows of a task; see :meth:`.SinkTask.write`."""
        context = TaskContext.get()
        given = [context and context.getLocalProperty(name) for name in (_QUERY, _RUN, _BATCH)]
        if context is None or None in given:
            raise OutboxError(
                "Spark tells a task neither its query nor its batch: the sink needs PySpark 4.2"
            )
        query, run, batch = map(str, given)
        part = Part(query, run, int(batch), context.partitionId())
        return self._publish(iterator, part, self._options.sink_name or query)

    @in_a_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Notes that a batch is whole; see :func:`.end_batch`."""
        del batchId
        reports = [each.report for each in messages if isinstance(each, Written)]
        if reports:
            end_batch(self._options, reports)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes what a batch query gives: as the only batch of a stream."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        super().__init__(options, columns)
        self._run = str(uuid4())

    @in_a_sentence
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Publishes the rows of a task; see :meth:`.SinkTask.write`."""
        context = TaskContext.get()
        part = Part(_NO_STREAM, self._run, 0, context.partitionId() if context else 0)
        return self._publish(iterator, part, self._options.sink_name or self._run)

    @in_a_sentence
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Notes that the query is whole; see :func:`.end_batch`."""
        reports = [each.report for each in messages if isinstance(each, Written)]
        if reports:
            end_batch(self._options, reports, forgets=self._options.sink_name is None)
