"""The adapter to PySpark's batch queries: what waits in the outbox, of which nothing is claimed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_outbox.columns import ROWS, batches
from pyspark_outbox.options import SourceOptions
from pyspark_outbox.replay import Positioned


class OutboxSnapshot(DataSourceReader):
    """All rows that wait when a query begins, in one partition, also those of parked keys.

    It reads in a session that cannot write, also on a standby. What is delivered meanwhile may be missing.

    Args:
        options: What the options say.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the only partition."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads on from the last row's id. Connects anew for no error: Spark runs the task again."""
        del partition
        last = 0
        with closing(self._options.settings.dialect.create().watch()) as view:
            while rows := view.peek(last, ROWS):
                last = rows[-1].id
                yield from batches([Positioned(None, row) for row in rows], values=self._options.values)
