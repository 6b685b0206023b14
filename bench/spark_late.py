"""Counts what is lost of transactions that commit late: by the outbox as a stream of Spark, and by rising id.

Writers write each record into two tables alike, in one transaction. A stream reads the outbox. Beside it a
reader asks the other table, by Spark's JDBC source, for ids greater than the last it has seen, as readers do
that trust a rising column. Ten transactions are held open: for 30 s, and until the stream has had ten more
batches and the reader as many looks.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from environment import environment
from pyspark.sql import SparkSession
from spark_source import jdbc, outbox_of, session, to_parquet

TABLES = ("outbox", "outbox_by_id")
COPY = "CREATE TABLE outbox_by_id (LIKE outbox INCLUDING ALL)"
INSERT = "INSERT INTO {} (create_time, kafka_topic, kafka_key, kafka_value) VALUES (now(), 'orders', %s, %s)"
ROWS = 10
"""So many rows has a transaction."""
HELD_SECONDS = 30.0
HELD = 10
BATCHES = 10
INTERVAL = 3.0
"""Seconds between two looks of either reader."""


class Writers:
    """Writes numbered rows, and notes which are committed."""

    def __init__(self, dsn: str) -> None:
        self.committed: list[int] = []
        self.late: list[int] = []
        self._dsn = dsn
        self._numbers = itertools.count()

    def transaction(self, until: Callable[[], bool] = lambda: True) -> list[int]:
        """Writes some rows and commits them once ``until`` says so; returns their numbers."""
        numbers = list(itertools.islice(self._numbers, ROWS))
        with psycopg.connect(self._dsn) as connection:
            for table in TABLES:
                rows = [(f"key-{number}", str(number)) for number in numbers]
                connection.cursor().executemany(INSERT.format(table).encode(), rows)
            while not until():
                time.sleep(0.2)
        self.committed += numbers
        return numbers

    def hold(self, progress: Callable[[], int]) -> None:
        """Writes rows that are committed late."""
        seconds, batches = time.monotonic() + HELD_SECONDS, progress() + BATCHES
        self.late += self.transaction(lambda: time.monotonic() > seconds and progress() >= batches)


class ById:
    """Reads rows whose ids are greater than those that were read."""

    def __init__(self, spark: SparkSession, dsn: str) -> None:
        self.found: list[int] = []
        self.looks = 0
        self._spark = spark
        self._dsn = dsn
        self._last = 0

    def look(self) -> None:
        """Reads what is new."""
        query = f"(SELECT id, kafka_value FROM outbox_by_id WHERE id > {self._last}) AS newer"
        rows = jdbc(self._spark, self._dsn, dbtable=query).collect()
        self._last = max([self._last, *(row.id for row in rows)])
        self.found += [int(row.kafka_value) for row in rows]
        self.looks += 1


def run(spark: SparkSession, dsn: str, folder: Path) -> None:
    """Writes and reads; prints what was lost."""
    writers, by_id = Writers(dsn), ById(spark, dsn)
    query = to_parquet(outbox_of(spark, dsn), folder, processingTime=f"{INTERVAL} seconds")
    ended = threading.Event()

    def progress() -> int:
        if error := query.exception():
            raise error
        return min(sum(each.numInputRows > 0 for each in query.recentProgress), by_id.looks)

    def until_ended(action: Callable[[], Any], pause: float) -> None:
        while not ended.is_set():
            action()
            time.sleep(pause)

    with ThreadPoolExecutor(HELD + 2) as threads:
        others = [
            threads.submit(until_ended, writers.transaction, 0.05),
            threads.submit(until_ended, by_id.look, INTERVAL),
        ]
        try:
            held = []
            for _ in range(HELD):
                held.append(threads.submit(writers.hold, progress))
                time.sleep(INTERVAL)
            for each in held:
                each.result()
        finally:
            ended.set()
        for each in others:
            each.result()
    by_id.look()
    query.processAllAvailable()
    query.stop()
    batches = sum(each.numInputRows > 0 for each in query.recentProgress)
    stream = [int(row.value) for row in spark.read.parquet(str(folder / "out")).collect()]
    committed, late = set(writers.committed), set(writers.late)
    print(f"{len(committed):,} rows committed, {len(late)} of them in {HELD} transactions held open")
    for name, found, looks in ("outbox", stream, batches), ("by rising id", by_id.found, by_id.looks):
        missing = committed.difference(found)
        twice = sum(count > 1 for count in Counter(found).values())
        print(
            f"  {name:12} {looks} batches: {len(missing)} rows lost ({len(missing & late)} of those held), "
            f"{twice} twice, {len(set(found) - committed)} never committed"
        )
    if Counter(stream) != Counter(writers.committed):
        sys.exit("the stream has not read each row once")


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with environment() as on, session() as spark, tempfile.TemporaryDirectory() as folder:
        with on.connect() as connection:
            connection.execute(COPY)
        run(spark, on.dsn, Path(folder))


if __name__ == "__main__":
    main()
