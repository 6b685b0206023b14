"""The statements of outbox by themselves, without a lane and a broker: the limit of what is built on them.

As a program, it drains an outbox with them: ``own.py DSN mark`` or ``own.py DSN advance``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from uuid import uuid4

from outbox_api import Batch, ColumnIs, OutboxTable
from outbox_core.settings import Limits
from outbox_postgres import PostgresDialect, PostgresOptions

LIMITS = Limits()
MAX_BYTES = LIMITS.max_lane_bytes // 2
PAUSE = 0.002
"""Seconds after a batch that was empty."""


class Marks:
    """The statements of at-least-once delivery: each call marks rows, and purges them."""

    most = LIMITS.mark_query_records

    def __init__(self, table: OutboxTable) -> None:
        self._table = table
        self._fence = table.enter(0, 1, table.bump(1, "bench"))
        self._leader = uuid4()

    def next(self, limit: int) -> tuple[int, float]:
        """Returns how many rows were marked, and how many seconds the mark took."""
        began = time.perf_counter()
        records = self._table.mark(self._fence, self._leader, limit, MAX_BYTES)
        seconds = time.perf_counter() - began
        self._table.purge(self._fence, self._leader, [record.id for record in records])
        return len(records), seconds

    def close(self) -> None:
        """Disconnects."""
        self._table.close()


class Selections:
    """The statement of exactly-once delivery: each call deletes a batch, and selects the next."""

    most = LIMITS.max_batch_records

    def __init__(self, table: OutboxTable) -> None:
        self._table = table
        self._fence = table.enter(0, 1, table.bump(1, "bench"))
        self._finished: list[Batch] = []

    def next(self, limit: int) -> tuple[int, float]:
        """Returns how many rows were selected, and how many seconds the statement took."""
        began = time.perf_counter()
        advanced = self._table.advance(self._fence, self._finished, [], limit, MAX_BYTES)
        seconds = time.perf_counter() - began
        ids = [record.id for record in advanced.records]
        self._finished = [Batch.of(ids, advanced.newest)] if ids else []
        return len(ids), seconds

    def close(self) -> None:
        """Deletes the last batch, and disconnects."""
        self._table.advance(self._fence, self._finished, [], 0)
        self._table.close()


STATEMENTS: dict[str, type[Marks | Selections]] = {"mark": Marks, "advance": Selections}


def dialect(dsn: str) -> PostgresDialect:
    """Returns the dialect for the outbox of a database."""
    return PostgresDialect(PostgresOptions(data_source=dsn))


def connect(dsn: str, statements: str, eligible: Sequence[ColumnIs] = ()) -> Marks | Selections:
    """Connects to the outbox of a database."""
    return STATEMENTS[statements](dialect(dsn).connect(eligible))


def main(dsn: str, statements: str) -> None:
    """Drains the outbox until the process is killed."""
    dialect(dsn).create()  # creates what is missing beside the outbox
    claims = connect(dsn, statements)
    print("ready", flush=True)
    while True:
        rows, _ = claims.next(claims.most)
        if not rows:
            time.sleep(PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
