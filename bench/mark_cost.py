"""Measures the cost of one mark, with different backlogs and numbers of dead rows at the table's head.

Starts a PostgreSQL server of its own. Run ``uv run bench/mark_cost.py --help``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from backlog import insert, tidy
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_sdk import Fence, OutboxTable
from outbox_servers.services import PostgresServer

DEAD = 200_000
ROUNDS = 30
VALUE = "repeat('x', 100)"
MANY_KEYS = "'key-' || mod(g, 1000)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backlogs", type=int, nargs="+", default=[1_000, 100_000, 2_000_000])
    parser.add_argument("--limit", type=int, default=100, help="rows a mark asks for")
    parser.add_argument("--from-head", action="store_true", help="switch skip_settled off")
    parser.add_argument("--binaries", type=Path, help="folder of another PostgreSQL's programs")
    arguments = parser.parse_args()
    # Dead rows stay: no vacuum runs during the measurement.
    with PostgresServer(settings={"autovacuum": "off"}, binaries=arguments.binaries) as server:
        with psycopg.connect(server.dsn) as connection:
            print(one(connection, "SELECT version()"))
        bench = Bench(server.dsn, arguments.limit, skip_settled=not arguments.from_head)
        for backlog in arguments.backlogs:
            bench.row(f"{backlog:,} rows, fresh", bench.fresh(backlog))
            bench.row(f"{backlog:,} rows, {DEAD:,} dead before them", bench.dead(backlog))
            old = bench.dead(backlog, old_snapshot=True)
            bench.row(f"{backlog:,} rows, {DEAD:,} dead, an old snapshot open", old)
            bench.row(f"{backlog:,} rows of another lane, few of one's own", bench.other(backlog))
        bench.row(f"{DEAD:,} rows harvested under an old snapshot", bench.harvested())


class Bench:
    """One outbox, which each measurement fills anew."""

    def __init__(self, dsn: str, limit: int, *, skip_settled: bool) -> None:
        self._dsn = dsn
        self._limit = limit
        self._dialect = PostgresDialect(PostgresOptions(data_source=dsn, skip_settled=skip_settled))
        self._dialect.create()
        self._admin = psycopg.connect(dsn, autocommit=True)

    @staticmethod
    def row(title: str, marks: list[float]) -> None:
        """Prints one measurement: the first mark, then the median and the maximum of the others."""
        first, *others = (seconds * 1000 for seconds in marks)
        print(
            f"{title:55} first {first:8.2f} ms   median {statistics.median(others):7.2f} ms   "
            f"slowest {max(others):7.2f} ms",
            flush=True,
        )

    def fresh(self, backlog: int) -> list[float]:
        """Marks in a table without deleted rows."""
        self._fill(MANY_KEYS, backlog)
        return self._marks(1)

    def dead(self, backlog: int, *, old_snapshot: bool = False) -> list[float]:
        """Marks behind deleted rows that were not vacuumed, optionally as a snapshot still sees them."""
        self._fill(MANY_KEYS, backlog + DEAD)
        with ExitStack() as stack:
            if old_snapshot:
                stack.enter_context(self._snapshot())
            self._admin.execute(f"DELETE FROM outbox WHERE id <= {DEAD}")
            return self._marks(1)

    def harvested(self) -> list[float]:
        """Purges the rows itself, while another session holds an old snapshot; only later marks count."""
        self._fill(MANY_KEYS, DEAD + self._limit * (ROUNDS + 1))
        with self._snapshot():
            return self._marks(1, before=DEAD)

    def other(self, backlog: int) -> list[float]:
        """Marks a lane whose few rows are behind another lane's backlog."""
        # Any key of lane 1; the measured marks are those of lane 0.
        key = one(
            self._admin,
            "SELECT i FROM generate_series(1, 99) AS i "
            "WHERE (hashtext('key-' || i) & 2147483647) % 8 = 1 LIMIT 1",
        )
        self._fill(f"'key-{key}'", backlog)
        insert(self._admin, "orders", 8 * self._limit * (ROUNDS + 2), MANY_KEYS, VALUE)
        return self._marks(8)

    def _marks(self, lanes: int, before: int = 0) -> list[float]:
        table = self._dialect.connect()
        fence = table.enter(0, lanes, table.bump(lanes, "bench"))
        leader = uuid.uuid4()
        while before > 0:
            before -= self._round(table, fence, leader, 1000)[1]
        taken = [self._round(table, fence, leader, self._limit) for _ in range(ROUNDS)]
        table.close()
        return [seconds for seconds, records in taken if records]

    @staticmethod
    def _round(table: OutboxTable, fence: Fence, leader: uuid.UUID, limit: int) -> tuple[float, int]:
        started = time.perf_counter()
        records = table.mark(fence, leader, limit)
        seconds = time.perf_counter() - started
        table.purge(fence, leader, [record.id for record in records])
        return seconds, len(records)

    def _fill(self, key: str, rows: int) -> None:
        self._admin.execute("TRUNCATE outbox RESTART IDENTITY")
        insert(self._admin, "orders", rows, key, VALUE)
        tidy(self._admin)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        with psycopg.connect(self._dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT 1")
            yield


def one(connection: psycopg.Connection[Any], question: str) -> Any:
    row = connection.execute(question).fetchone()
    assert row is not None
    return row[0]


if __name__ == "__main__":
    main()
