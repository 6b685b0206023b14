"""Measures how long a record takes from its commit to a consumer behind a query in Spark's Real-Time Mode.

The mode reads Kafka only: so a harvester publishes, and the query passes on what it reads. In turn with it,
the same query in micro-batches.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from typing import Any

from environment import environment, harvester
from latency import quantile, read, write
from pyspark.sql import SparkSession
from spark_source import session

TRIGGERS: dict[str, dict[str, str]] = {
    "real-time": {"realTime": "30 seconds"},
    "micro-batches": {"processingTime": "0 seconds"},
}
WARM_UP_SECONDS = 20


def passing_on(spark: SparkSession, bootstrap: str, topic: str, out: str, **trigger: str) -> Any:
    """Starts the query."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(subscribe=topic, startingOffsets="earliest").load().select("key", "value")
    writer = (
        rows.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", out)
    )
    writer = writer.option("checkpointLocation", tempfile.mkdtemp()).outputMode("update")
    return writer.trigger(**trigger).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=200, help="records per second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=2)
    arguments = parser.parse_args()
    with environment() as on, session() as spark, harvester(on.settings("bench", engine="inline")):
        for _ in range(arguments.rounds):
            for name, trigger in TRIGGERS.items():
                topic, out = on.topic(arguments.partitions), on.topic(arguments.partitions)
                query = passing_on(spark, on.bootstrap, topic, out, **trigger)
                ours, theirs = multiprocessing.Pipe()
                reader = multiprocessing.Process(target=read, args=(on.bootstrap, out, theirs))
                reader.start()
                ours.recv()
                mine, yours = multiprocessing.Pipe()
                pace = {"rate": arguments.rate, "seconds": arguments.seconds, "keys": 100}
                writer = multiprocessing.Process(target=write, args=(on.dsn, topic, yours), kwargs=pace)
                writer.start()
                committed, arrived = mine.recv(), ours.recv()
                query.stop()
                first = arguments.rate * WARM_UP_SECONDS
                ages = [
                    1000 * (arrived[n] - committed[n]) for n in range(first, len(committed)) if n in arrived
                ]
                missing = len(committed) - len(arrived)
                shown = ", ".join(f"{share}: {quantile(ages, share):,.1f} ms" for share in (0.5, 0.99, 1.0))
                print(f"{name}: {shown}, missing {missing}", flush=True)


if __name__ == "__main__":
    main()
