"""Measures how fast batches are deleted and selected without a broker, beside marks by plain statements.

The plain statements are those of the sequential loop: one pipeline that deletes the last batch and marks the
next. Starts a PostgreSQL server of its own. Run ``uv run bench/advance.py --help``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from uuid import UUID, uuid4

import psycopg
from backlog import insert, tidy
from outbox_api import Batch
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_servers.services import PostgresServer
from sequential import MARK, PURGE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[1000, 5000, 10_000], help="rows in a batch"
    )
    parser.add_argument("--pairs", type=int, default=5, help="how many times each is measured")
    arguments = parser.parse_args()
    with PostgresServer() as server:
        PostgresDialect(PostgresOptions(data_source=server.dsn)).create()
        for batch in arguments.batches:
            rates: list[tuple[float, float]] = []
            for _ in range(arguments.pairs):
                taken = []
                for drain in (advance, plain):
                    fill(server.dsn, arguments.rows)
                    taken.append(arguments.rows / drain(server.dsn, batch))
                rates.append((taken[0], taken[1]))
            ratios = [through / by_hand for through, by_hand in rates]
            through, by_hand = (statistics.median(each) for each in zip(*rates, strict=True))
            print(
                f"batches of {batch:6,}: dialect {through:9,.0f}/s   plain {by_hand:9,.0f}/s   "
                f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


def fill(dsn: str, rows: int) -> None:
    """Writes a backlog in one transaction, so that it appears at once."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE outbox RESTART IDENTITY")
        tidy(connection)
        insert(connection, "orders", rows, "'key-' || mod(g, 1000)", "repeat('x', 100)")


def advance(dsn: str, batch: int) -> float:
    """Drains the outbox like a single lane; returns how many seconds that took."""
    table = PostgresDialect(PostgresOptions(data_source=dsn)).connect()
    fence = table.enter(0, 1, table.bump(1, "bench"))
    finished: list[Batch] = []
    started = time.perf_counter()
    while True:
        advanced = table.advance(fence, finished, [], batch)
        if not advanced.records:
            break
        finished = [Batch.of([record.id for record in advanced.records], advanced.newest)]
    seconds = time.perf_counter() - started
    table.close()
    return seconds


def plain(dsn: str, batch: int) -> float:
    """Drains the outbox like the sequential loop; returns how many seconds that took."""
    last: tuple[int, int, UUID] = (1, 0, uuid4())
    with psycopg.connect(dsn, autocommit=True) as connection:
        started = time.perf_counter()
        while True:
            name = uuid4()
            with connection.pipeline(), connection.transaction():
                connection.execute(PURGE, last, prepare=True)
                marked = connection.execute(MARK, (name, batch), prepare=True, binary=True)
            rows = sorted(marked.fetchall())
            if not rows:
                return time.perf_counter() - started
            last = (rows[0][0], rows[-1][0], name)


if __name__ == "__main__":
    main()
