"""The adapter to PySpark's batch queries: what waits, dead letters, kept records. Claims nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from outbox_api.seams.kept import Chosen
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_outbox.columns import ROWS, batches, kept_batch, letter_batches
from pyspark_outbox.options import SourceOptions
from pyspark_outbox.parts import Positioned

FIRST_ID = -(1 << 63)
LETTERS = 100
"""How many dead letters are read together: some have large values."""
KEPT_ROWS, KEPT_PARTITIONS = 100_000, 8
"""Kept records are divided into partitions of so many, and into so many partitions at most."""


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


@dataclass
class Positions(InputPartition):
    """The kept records behind one position up to another."""

    after: int
    through: int


class OutboxKept(DataSourceReader):
    """The records that are kept when a query begins, in partitions by position; as :class:`OutboxSnapshot`.

    What expires or is erased meanwhile may be missing.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Divides the positions into ranges of equal length."""
        with closing(self._options.settings.dialect.create().kept(read_only=True)) as kept:
            found = kept.count(Chosen())
        if not found.records:
            return [Positions(0, 0)]
        number = self._options.partitions or min(KEPT_PARTITIONS, 1 + found.records // KEPT_ROWS)
        step = (found.last - found.first) // number + 1
        starts = range(found.first - 1, found.last, step)
        return [Positions(start, min(start + step, found.last)) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the records of a partition in the order of their positions."""
        assert isinstance(partition, Positions)  # noqa: S101 - one of those above
        after, chosen = partition.after, Chosen(through=partition.through)
        with closing(self._options.settings.dialect.create().kept(read_only=True)) as kept:
            while after < partition.through and (found := kept.find(chosen, after, ROWS)):
                after = found[-1].position
                yield kept_batch(found, values=self._options.values)
