"""The adapter to PySpark's streams; what it does is in :mod:`.claim`, :mod:`.beginning` and :mod:`.parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from outbox_api import OutboxTable
from outbox_api.portable.kept import PortableKept
from outbox_core.lanes.process import dedicate_process
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark_outbox_kafka.sentences import in_a_sentence

from pyspark_outbox import executors
from pyspark_outbox.beginning import Beginning
from pyspark_outbox.claim import Claim
from pyspark_outbox.columns import packed
from pyspark_outbox.connection import Connection
from pyspark_outbox.offsets import Offset
from pyspark_outbox.options import SourceOptions


class OutboxStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one outbox.

    Only the driver uses the outbox: rows travel with the partitions. So executors need neither the database
    nor its password, nor this package.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: Beginning | None = None
        self._planned: tuple[object, Sequence[InputPartition]] = (None, ())

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's
        """Returns the offset before the first batch."""
        return Offset().written()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's
        """Returns how many rows a batch may have."""
        return ReadMaxRows(self._options.max_rows)

    @in_a_sentence
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's
        """Has the stream end with what waits now."""
        self._reader.claim.prepare_available_now()

    @in_a_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's
        """Deletes what Spark has committed, and selects the next batch; see :meth:`.Beginning.next`."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return self._reader.next(Offset.of(start), max_rows, max_bytes).written()

    @in_a_sentence
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's
        """Returns what waits, for the query's progress."""
        backlog = self._reader.claim.backlog()
        oldest = None if backlog.oldest is None else round(backlog.oldest, 1)
        report = {"waiting": backlog.records, "exact": backlog.exact, "oldestSeconds": oldest}
        return {"outbox": self._options.settings.title, **report}

    @in_a_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divides a batch that Spark has logged; see :meth:`.Beginning.parts`.

        Spark asks for each place of the stream in a query, which all get the same rows.
        """
        if self._planned[0] != (start, end):
            parts = self._reader.parts(Offset.of(start), Offset.of(end))
            values = self._options.values
            self._planned = (start, end), [InputPartition(packed(part, values=values)) for part in parts]
        return self._planned[1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Returns the rows of a partition."""
        return executors.read(partition)

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        """Sends executors only what reads a partition."""
        return executors.handed_over()

    def stop(self) -> None:
        """Disconnects."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _reader(self) -> Beginning:
        if self._opened is None:
            dedicate_process()  # Spark starts one for each run of a stream, in its driver
            options = self._options
            settings = options.settings
            holder = f"Spark query {settings.name}"
            patience = settings.failures.stop_after

            def connect() -> OutboxTable:
                return settings.dialect.create().connect()

            def look() -> PortableKept:
                return settings.dialect.create().kept(read_only=True)

            claim = Claim(
                Connection(connect, patience), settings.title, holder, options.max_bytes, options.partitions
            )
            self._opened = Beginning(claim, Connection(look, patience), options)
        return self._opened
