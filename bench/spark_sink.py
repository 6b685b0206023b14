"""Measures how fast Spark publishes files into Kafka: with the sink ``outbox-kafka``, and with its own.

The same rows, in turn, on one broker and one Spark; each way as a stream of ``--batches`` batches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from environment import BROKER_JVM, cpu_seconds
from outbox_servers.services import KafkaBroker
from spark_source import session

PARTITIONS = 8
WAYS = ("outbox-kafka", "kafka")
WARM_UP_ROWS = 20_000


def write_rows(spark: Any, folder: Path, rows: int, size: int, files: int) -> None:
    columns = "concat('key-', id * 7919 % 1000) AS key", f"lpad(string(id), {size}, '.') AS value"
    spark.range(0, rows, 1, files).selectExpr(*columns).write.parquet(str(folder))


def count(bootstrap: str, topic: str) -> int:
    """Returns how many messages a topic has, for readers of committed ones."""
    settings = {"group.id": "bench", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found = 0
    while some := consumer.consume(100_000, 5):
        found += len(some)
    consumer.close()
    return found


class Contest:
    """One broker and one Spark for both ways."""

    def __init__(self, spark: Any, bootstrap: str, tasks: int) -> None:
        self._spark, self._bootstrap, self._tasks = spark, bootstrap, tasks
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def rate(self, way: str, source: Path, rows: int) -> tuple[float, float]:
        """Returns rows per second of one way, and microseconds of processor time for a row."""
        topic = f"bench-{uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()
        began, used = time.monotonic(), cpu_seconds(psutil.Process())
        self._publish(source, way, topic)
        seconds, used = time.monotonic() - began, cpu_seconds(psutil.Process()) - used
        if (arrived := count(self._bootstrap, topic)) != rows:
            sys.exit(f"{way}: {arrived:,} rows of {rows:,} have arrived")
        self._admin.delete_topics([topic])[topic].result()
        return rows / seconds, used / rows * 1e6

    def _publish(self, source: Path, way: str, topic: str) -> None:
        rows = self._spark.readStream.schema("key STRING, value STRING")
        rows = rows.option("maxFilesPerTrigger", self._tasks).parquet(str(source))
        writer = rows.repartition(self._tasks, "key").writeStream.format(way)
        writer = writer.options(**{"kafka.bootstrap.servers": self._bootstrap, "topic": topic})
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            writer.start().awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2, help="how many times each is measured")
    given = parser.parse_args()
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    files = given.tasks * given.batches
    with (
        KafkaBroker(jvm_options=BROKER_JVM) as broker,
        session() as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        write_rows(spark, Path(folder, "warm"), WARM_UP_ROWS, given.size, given.tasks)
        write_rows(spark, Path(folder, "rows"), given.rows, given.size, files)
        contest = Contest(spark, broker.bootstrap, given.tasks)
        for way in WAYS:
            contest.rate(way, Path(folder, "warm"), WARM_UP_ROWS)
        for number in range(given.rounds):
            for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                found, cpu = contest.rate(way, Path(folder, "rows"), given.rows)
                rates[way].append(found)
                print(f"round {number + 1}: {way:14} {found:9,.0f}/s {cpu:6.1f} µs of CPU a row", flush=True)
    ratio = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    what = f"{given.rows:,} rows of {given.size} bytes, {given.batches} batches of {given.tasks} tasks"
    print(f"{what}: {ratio:.2f} of Spark's own sink, median")


if __name__ == "__main__":
    main()
