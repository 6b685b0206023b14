"""The adapter to PySpark's batch queries: what waits in an outbox, and its dead letters. Claims nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_outbox.columns import ROWS, batches, letter_batches
from pyspark_outbox.options import SourceOptions
from pyspark_outbox.parts import Positioned

FIRST_ID = -(1 << 63)
LETTERS = 100
"""How many dead letters are read together: some have large values."""


class OutboxSnapshot(DataSourceReader):
    """All rows that wait when a query begins, in one partition, also those of parked keys.

    It reads in a session that cannot write, also on a standby. What is delivered meanwhile may be missing.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads on from the last row's id. Connects anew for no error: Spark runs the task again."""
        del partition
        last = FIRST_ID
        with closing(self._options.settings.dialect.create().watch()) as view:
            while rows := view.peek(last, ROWS):
                last = rows[-1].id
                yield from batches([Positioned(None, row) for row in rows], values=self._options.values)


class OutboxLetters(DataSourceReader):
    """The dead letters of an outbox when a query begins, in one partition; reads as :class:`OutboxSnapshot`.

    What operators free meanwhile may be missing.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the letters in the order of their ids."""
        del partition
        dialect = self._options.settings.dialect.create()
        with closing(dialect.dead_letters(read_only=True)) as letters:
            ids = [letter.record.id for letter in letters.find(whole=False)]
            for first in range(0, len(ids), LETTERS):
                some = letters.find(ids=ids[first : first + LETTERS])
                yield from letter_batches(some, values=self._options.values)
