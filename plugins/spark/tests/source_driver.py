"""What Spark's driver does with a source, without Spark: it can die behind each step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from outbox_api import Dialect
from pyspark_outbox.claim import Claim
from pyspark_outbox.connection import Connection
from pyspark_outbox.offsets import Offset
from pyspark_outbox.parts import Positioned

STEPS = ("purged and selected", "logged", "planned", "delivered", "committed")
"""After what of a batch the driver may die."""


class Reader(Protocol):
    """What reads an outbox for a driver."""

    def next(self, start: Offset, max_rows: int) -> Offset: ...

    def parts(self, start: Offset, end: Offset) -> list[list[Positioned]]: ...

    def close(self) -> None: ...


def claim_of(dialect: Dialect, holder: str = "query", max_bytes: int = 1 << 20) -> Claim:
    return Claim(Connection(dialect.connect, 0.0), "outbox", holder, max_bytes)


def delivered(claim: Reader, start: Offset, end: Offset) -> list[Positioned]:
    return [row for part in claim.parts(start, end) for row in part]


def dateless(row: Positioned) -> Positioned:
    """Leaves out when a row was created: dialects tell its age, and so the time but for milliseconds."""
    return row._replace(record=row.record._replace(created=None))


class CrashError(Exception):
    """The driver has died."""


@dataclass
class Driver:
    """What Spark's driver does with a source, in the order in which it does it.

    Attributes:
        offsets: The offset log.
        commits: How many of its batches the commit log names.
        sink: What the sink holds of each batch; it is idempotent by the batch's number, as Spark's are.
    """

    dialect: Dialect
    offsets: list[Offset] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, list[Positioned]] = field(default_factory=dict)

    def reader(self) -> Reader:
        """Returns what a start of the query reads with."""
        return claim_of(self.dialect)

    def run(self, max_rows: int, crash: tuple[int, str] = (0, "")) -> None:
        """Runs a query until nothing waits, or until it dies after a step of the batch of this number."""
        with closing(self.reader()) as claim:
            while self._batch(claim, max_rows, crash):
                pass

    def _batch(self, claim: Reader, max_rows: int, crash: tuple[int, str]) -> bool:
        def reached(step: str) -> None:
            if (self.commits + 1, step) == crash:
                raise CrashError

        start = self.offsets[self.commits - 1] if self.commits else Offset()
        if len(self.offsets) == self.commits:
            end = claim.next(start, max_rows)
            reached("purged and selected")
            if end == start:
                return False
            self.offsets.append(Offset.of(end.written()))
        end = self.offsets[-1]
        reached("logged")
        rows = [dateless(row) for row in delivered(claim, start, end)]
        reached("planned")
        assert self.sink.get(end.batch, rows) == rows  # a replay is the same
        self.sink[end.batch] = rows
        reached("delivered")
        self.commits += 1
        if (self.commits, "committed") == crash:
            raise CrashError
        return True

    def rows(self) -> list[Positioned]:
        """Returns what was delivered, in the order of positions."""
        rows = [row for batch in self.sink.values() for row in batch]
        return sorted(rows, key=lambda row: row.position or 0)

    def assert_once_in_order(self, numbers: Sequence[int], keys: int = 5) -> None:
        rows = self.rows()
        found = [int(row.record.value or "") for row in rows]
        assert sorted(found) == sorted(numbers)
        assert len({row.position for row in rows}) == len(rows)
        for key in range(keys):
            of_key = [number for number in found if number % keys == key]
            assert of_key == sorted(of_key)
