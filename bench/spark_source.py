"""Measures how fast Spark brings a backlog from PostgreSQL into Parquet files, on three ways, in one run.

The outbox as a stream; a harvester in delivery exactly-once to Kafka, and from there Spark's own source; and
Spark's JDBC source, which is given the range of the ids and remembers nothing. Besides, kept records as the
beginning of a stream, and as a batch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from environment import Environment, environment, harvester
from outbox_core.config import configure
from outbox_core.operations import fence
from outbox_core.operations.journalled import Operator
from outbox_servers.services import find_java
from outbox_servers.services.cache import cached_folder
from outbox_servers.services.maven import fetch_jars
from outbox_spark.jvm import java_home
from psycopg.conninfo import conninfo_to_dict
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

KAFKA_SOURCE = "4.2.0"
"""Maven Central had none of PySpark's own version."""
POSTGRES_DRIVER = "42.7.8"
_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", KAFKA_SOURCE),
    ("org.postgresql", "postgresql", POSTGRES_DRIVER),
)
WARM_UP_ROWS = 20_000
PATIENCE = 3600
"""Seconds within which a harvester must empty the outbox."""
JDBC_PARTITIONS = 8
FETCH_SIZE = 10_000
"""Without one, PostgreSQL's driver fetches a whole partition into memory."""


def say(line: str) -> None:
    print(line, file=sys.stderr)


def jars() -> Sequence[Path]:
    """Fetches what PySpark lacks, once; returns the jars."""
    checksums = Path(__file__).with_name("spark_jars.sha256")

    def build(folder: Path) -> None:
        fetch_jars(_JARS, folder / "jars", find_java(), say, checksums)

    folder = cached_folder(f"spark-kafka-{KAFKA_SOURCE}-postgresql-{POSTGRES_DRIVER}", build, progress=say)
    own = Path(_find_spark_home(), "jars")
    return [jar for jar in (folder / "jars").glob("*.jar") if not (own / jar.name).exists()]


@contextmanager
def session(**settings: str) -> Iterator[SparkSession]:
    """Runs Spark in this machine, with two slots and a heap of 1 GB."""
    os.environ |= {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    defaults = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.jars": ",".join(map(str, jars())),
        "spark.log.level": "ERROR",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").config(map=defaults | settings).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def outbox_of(spark: SparkSession, dsn: str, **options: str) -> Any:
    """Returns the outbox as a stream."""
    return spark.readStream.format("outbox").options(dataSource=dsn, **options).load()


def to_parquet(frame: Any, folder: Path, **trigger: Any) -> Any:
    """Starts a query into Parquet files."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()


def jdbc(spark: SparkSession, dsn: str, **options: object) -> Any:
    """Returns rows of PostgreSQL as Spark's own source reads them."""
    address = conninfo_to_dict(dsn)
    url = f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}"
    account = {"user": address["user"], "password": address["password"], "driver": "org.postgresql.Driver"}
    reader = spark.read.format("jdbc").options(url=url, fetchsize=FETCH_SIZE, **account)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


KEPT = """
INSERT INTO outbox_kept (delivered_at, token, key_hash, lacks, create_time, id, kafka_topic, kafka_key,
                         kafka_value, kafka_header_keys, kafka_header_values)
SELECT now(), 1, 0, 0, now(), g, 'orders', 'key-' || g %% %s, lpad(g::text, 100, '0'), '{}', '{}'
FROM generate_series(1, %s) AS g
"""


class Contest:
    """One database, one broker and one Spark for all ways."""

    def __init__(self, on: Environment, spark: SparkSession, folder: Path) -> None:
        self._on = on
        self._spark = spark
        self._folder = folder

    def outbox(self, rows: int, keys: int, folder: Path, rows_per_batch: str = "") -> dict[str, float]:
        """The outbox as a stream, with defaults or other batches."""
        options = {"maxRecordsPerTrigger": rows_per_batch} if rows_per_batch else {}
        self._on.fill("orders", rows, keys)
        started = time.monotonic()
        frame = outbox_of(self._spark, self._on.dsn, **options)
        to_parquet(frame, folder, availableNow=True).awaitTermination()
        seconds = time.monotonic() - started
        # The outbox is this query's until somebody says that it is not.
        settings = configure({"harvest": {"dataSource": self._on.dsn}}).harvest
        fence.forget(settings, Operator("bench", "cli"))
        return {f"outbox {rows_per_batch}".strip(): seconds}

    def kafka(self, rows: int, keys: int, folder: Path) -> dict[str, float]:
        """A harvester that leads already, and a query that starts when the backlog is there."""
        on, topic = self._on, self._on.topic()
        with harvester(on.settings(f"bench-{topic}", engine="inline", delivery="exactly-once")):
            on.fill(on.topic(), WARM_UP_ROWS, keys)
            on.seconds_until_empty()
            on.fill(topic, rows, keys)
            started = time.monotonic()
            reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", on.bootstrap)
            reader = reader.options(subscribe=topic, startingOffsets="earliest", includeHeaders="true")
            frame = reader.option("kafka.isolation.level", "read_committed").load()
            query = to_parquet(frame, folder, processingTime="0 seconds")
            on.seconds_until_empty(PATIENCE)
            published = time.monotonic() - started
            while sum(progress.numInputRows for progress in query.recentProgress) < rows:
                if error := query.exception():
                    raise error
                time.sleep(0.05)
            seconds = time.monotonic() - started
            query.stop()
        return {"kafka": seconds, "harvest": published}

    def jdbc(self, rows: int, keys: int, folder: Path) -> dict[str, float]:
        """Spark's JDBC source, partitioned by ranges of ids that are looked up before."""
        self._on.fill("orders", rows, keys)
        started = time.monotonic()
        with self._on.connect() as connection:
            [lowest, highest] = connection.execute("SELECT min(id), max(id) FROM outbox").fetchone() or ()
            bounds = {"lowerBound": lowest, "upperBound": highest + 1, "numPartitions": JDBC_PARTITIONS}
            frame = jdbc(self._spark, self._on.dsn, dbtable="outbox", partitionColumn="id", **bounds)
            frame.write.parquet(str(folder / "out"))
            seconds = time.monotonic() - started
            connection.execute("TRUNCATE outbox")
        return {"jdbc": seconds}

    def kept(self, rows: int, keys: int, folder: Path) -> dict[str, float]:
        """Kept records as the beginning of a stream, and the same as a batch."""
        dialect = {"driver": "postgres", "keep": {"for": "1d"}}
        settings = configure({"harvest": {"dataSource": self._on.dsn, "dialect": dialect}}).harvest
        settings.dialect.create().create()
        with self._on.connect() as connection:
            connection.execute(KEPT, [keys, rows])
            connection.execute("ANALYZE outbox_kept")
        started = time.monotonic()
        stream = outbox_of(self._spark, self._on.dsn, startingOffsets="kept")
        to_parquet(stream, folder, availableNow=True).awaitTermination()
        seconds = time.monotonic() - started
        fence.forget(settings, Operator("bench", "cli"))
        started = time.monotonic()
        batch = self._spark.read.format("outbox").options(dataSource=self._on.dsn, of="kept").load()
        batch.write.parquet(str(folder / "batch"))
        found = {"kept": seconds, "kept, batch": time.monotonic() - started}
        with self._on.connect() as connection:
            connection.execute("TRUNCATE outbox_kept")
        return found

    def rates(self, who: str, rows: int, keys: int) -> dict[str, float]:
        """Returns rows per second of one way, once all have arrived."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        way, *rows_per_batch = who.split()
        seconds = getattr(self, way)(rows, keys, folder, *rows_per_batch)
        arrived = self._spark.read.parquet(str(folder / "out")).count()
        if arrived != rows:
            sys.exit(f"{who}: {arrived:,} rows of {rows:,} have arrived")
        return {name: rows / each for name, each in seconds.items()}


WAYS = ("outbox", "kafka", "jdbc", "kept")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--who", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--rows-per-batch", nargs="+", default=[], help="other batches for the outbox, too")
    arguments = parser.parse_args()
    ways = [*arguments.who, *(f"outbox {number}" for number in arguments.rows_per_batch)]
    rates: dict[str, list[float]] = {}
    with environment() as on, session() as spark, tempfile.TemporaryDirectory() as folder:
        contest = Contest(on, spark, Path(folder))
        for round_ in range(arguments.rounds + 1):
            for who in ways:
                rows = arguments.rows if round_ else WARM_UP_ROWS
                for name, rate in contest.rates(who, rows, arguments.keys).items():
                    if round_:
                        rates.setdefault(name, []).append(rate)
                    print(
                        f"{f'round {round_}' if round_ else 'warm-up'}: {name:14} {rate:9,.0f}/s", flush=True
                    )
    print(f"{arguments.rows:,} rows, {arguments.keys:,} keys, medians:")
    for name, found in rates.items():
        beside = ", ".join(
            f"{statistics.median(a / b for a, b in zip(found, others, strict=True)):.2f} of {other}"
            for other, others in rates.items()
            if other != name
        )
        print(f"  {name:14} {statistics.median(found):9,.0f}/s  {beside}")


if __name__ == "__main__":
    main()
