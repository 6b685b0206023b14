"""Measures the cost of one mark, with different backlogs and numbers of dead rows at the table's head.

Starts a PostgreSQL server of its own. Run ``uv run bench/mark_cost.py --help``.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from backlog import insert, tidy
from outbox_api import UNBOUNDED, Batch, ColumnIs, Fence, Origin, OutboxTable
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_servers.services import PostgresServer

DEAD = 200_000
ROUNDS = 30
VALUE = "repeat('x', 100)"
MANY_KEYS = "'key-' || mod(g, 1000)"
OTHERS = 1_000_000
"""Rows of other clusters."""
WARM_UP = 5
PAUSE = 0.15
"""Seconds between the first marks, until the connection knows from which id it may start."""
MAX_BYTES = 10**8
OF_CLUSTERS = (
    ColumnIs("cluster_id", 2),
    ColumnIs("cluster_id", 3, 3600.0),
    ColumnIs("cluster_id", 1, 7200.0),
)
ANALYZED = ("never", "with all", "with own only", "with others only")
"""When the table was analyzed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backlogs", type=int, nargs="*", default=[1_000, 100_000, 2_000_000])
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
        if arguments.backlogs:
            bench.row(f"{DEAD:,} rows harvested under an old snapshot", bench.harvested())
        of_clusters(server.dsn, arguments.limit)


def of_clusters(dsn: str, limit: int) -> None:
    """Prints what marks and selections of own rows cost behind rows of others, against a table without."""
    bench = Clusters(dsn, limit)
    for analyzed, held in itertools.product(ANALYZED, (False, True)):
        bench.fill(OTHERS, analyzed)
        state = f"analyzed {analyzed}{', snapshot' * held}"
        with bench.snapshot_over_dead_rows() if held else nullcontext():
            for how in HOW:
                found, alone = bench.measured(how)
                ratio = statistics.median(found) / statistics.median(alone)
                bench.row(f"{how.title}, {state}: {ratio:.2f} times", found)
        if not held:
            for how in HOW:
                bench.row(f"{how.title}, a look at young rows, {state}", bench.measured(how, source=1)[0])


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
            f"{title:80} first {first:8.2f} ms   median {statistics.median(others):7.2f} ms   "
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


class How(NamedTuple):
    """How rows are taken."""

    mode: str
    lanes: int
    bounded: bool

    @property
    def title(self) -> str:
        """What it is called."""
        return f"{self.mode}, {self.lanes} lane{'s' * (self.lanes > 1)}{', bounded' * self.bounded}"


HOW = [How(*each) for each in itertools.product(("mark", "advance"), (1, 4), (False, True))]


class Hand:
    """Takes rows of one outbox, by marks or by selections."""

    def __init__(self, dialect: PostgresDialect, how: How, limit: int, eligible: Sequence[ColumnIs]) -> None:
        self._table = dialect.connect(eligible)
        self._fence = self._table.enter(0, how.lanes, self._table.bump(how.lanes, "bench"))
        self._leader = uuid.uuid4()
        self._how = how
        self._limits = (limit, MAX_BYTES if how.bounded else UNBOUNDED)
        self._finished: list[Batch] = []

    def take(self, source: int, expected: int) -> float:
        """Takes rows and deletes them; returns the seconds of the mark, or of the advance."""
        started = time.perf_counter()
        if self._how.mode == "mark":
            records = self._table.mark(self._fence, self._leader, *self._limits, source=source)
        else:
            taken = self._table.advance(self._fence, self._finished, [], *self._limits, source=source)
            records = taken.records
        seconds = time.perf_counter() - started
        ids = [record.id for record in records]
        if len(ids) != expected:
            raise SystemExit(f"{len(ids)} rows were taken")
        if self._how.mode == "mark":
            self._table.purge(self._fence, self._leader, ids)
        else:
            self._finished = [Batch.of(ids, taken.newest)] if ids else []
        return seconds

    def close(self) -> None:
        """Disconnects."""
        self._table.close()


class Clusters(Bench):
    """An outbox of three clusters, in which few rows are one's own; and one of a single cluster beside it."""

    def __init__(self, dsn: str, limit: int) -> None:
        super().__init__(dsn, limit, skip_settled=True)
        self._admin.execute("DROP TABLE outbox; CREATE SCHEMA alone")
        origin = Origin(column="cluster_id", own=2, known=(1, 2, 3))
        self._dialect = PostgresDialect(PostgresOptions(data_source=dsn, origin=origin))
        self._alone = PostgresDialect(PostgresOptions(data_source=dsn, table="alone.outbox"))
        self._beside = psycopg.connect(dsn, options="-c search_path=alone", autocommit=True)
        for dialect, admin in ((self._dialect, self._admin), (self._alone, self._beside)):
            dialect.create()
            admin.execute("ALTER TABLE outbox SET (autovacuum_enabled = off)")

    def fill(self, others: int, analyzed: str) -> None:
        """Writes rows of others, and analyzes the table at some time or never."""
        self._admin.execute("TRUNCATE outbox RESTART IDENTITY")
        # What is known of the former rows is forgotten with them.
        self._admin.execute("DELETE FROM pg_statistic WHERE starelid = 'outbox'::regclass")
        self._own(100)
        if analyzed == "with own only":
            self._admin.execute("ANALYZE outbox")
        for cluster in (1, 3):
            self._admin.execute(
                "INSERT INTO outbox (id, kafka_topic, kafka_key, kafka_value, cluster_id) "
                f"SELECT {cluster} * 10^15 + g, 'orders', {MANY_KEYS}, {VALUE}, {cluster} "
                f"FROM generate_series(1, {others // 2}) AS g"
            )
        if analyzed == "with all":
            self._admin.execute("ANALYZE outbox")
        self._admin.execute("DELETE FROM outbox WHERE cluster_id = 2")
        if analyzed == "with others only":
            self._admin.execute("ANALYZE outbox")
        self._admin.execute("CHECKPOINT")

    @contextmanager
    def snapshot_over_dead_rows(self) -> Iterator[None]:
        """Deletes half of all rows of others, and many of one's own, while a snapshot is open."""
        self._own(100)
        with self._snapshot():
            self._admin.execute("DELETE FROM outbox WHERE cluster_id = 2 OR id % 2 = 0")
            self._admin.execute("CHECKPOINT")
            yield

    def measured(self, how: How, source: int = 0) -> tuple[list[float], list[float]]:
        """Takes rows of one source, and of the outbox beside in turn; times of all but the first rounds."""
        self._own(2 * how.lanes)
        self._beside.execute("TRUNCATE outbox")
        insert(self._beside, "orders", 2 * how.lanes * self._limit * (WARM_UP + ROUNDS), MANY_KEYS, VALUE)
        hand = Hand(self._dialect, how, self._limit, OF_CLUSTERS)
        alone = Hand(self._alone, how, self._limit, ())
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(WARM_UP + ROUNDS):
            times[0].append(hand.take(source, 0 if source else self._limit))
            times[1].append(alone.take(0, self._limit))
            time.sleep(PAUSE if number < WARM_UP else 0)
        hand.close()
        alone.close()
        self._admin.execute("DELETE FROM outbox WHERE cluster_id = 2")
        return times[0][WARM_UP:], times[1][WARM_UP:]

    def _own(self, times: int) -> None:
        insert(self._admin, "orders", times * self._limit * (WARM_UP + ROUNDS), MANY_KEYS, VALUE)


def one(connection: psycopg.Connection[Any], question: str) -> Any:
    row = connection.execute(question).fetchone()
    assert row is not None
    return row[0]


if __name__ == "__main__":
    main()
