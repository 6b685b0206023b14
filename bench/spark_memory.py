"""Measures the peak memory of a query that drains a backlog with ``availableNow``, while writers go on.

The memory is the proportional set size, of Spark's JVM, of the Python of the driver (the program and the
process in which Spark asks a source for batches) and of the tasks' workers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pyarrow.dataset
from environment import Environment, environment
from memory import Peak

INSERT = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value)
SELECT now(), 'orders', 'key-' || g, 'later' FROM generate_series(1, 10) AS g
"""


class SparkPeak(Peak):
    """Tells the processes of Spark apart."""

    def _kind(self, process: psutil.Process) -> str:
        if process.name() == "java":
            return "JVM"
        command = " ".join(process.cmdline())
        return "driver" if "spawn_main" in command or "python_streaming" in command else "workers"


def drain(dsn: str, folder: Path, rows_per_batch: str, out: Connection) -> None:
    """Runs the query; sends the seconds that it took, and how many rows each batch had."""
    from spark_source import outbox_of, session, to_parquet  # noqa: PLC0415 - by the measured process alone

    options = {"maxRecordsPerTrigger": rows_per_batch} if rows_per_batch else {}
    with session() as spark:
        started = time.monotonic()
        query = to_parquet(outbox_of(spark, dsn, **options), folder, availableNow=True)
        query.awaitTermination()
        seconds = time.monotonic() - started
        out.send((seconds, [each.numInputRows for each in query.recentProgress if each.numInputRows]))


def write(on: Environment, ended: threading.Event, rate: float) -> int:
    """Writes ten rows at a time; returns how many in all."""
    written = 0
    with on.connect() as connection:
        while not ended.wait(10 / rate):
            written += connection.execute(INSERT).rowcount
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--value-size", type=int, default=100, help="characters")
    parser.add_argument("--rows-per-batch", default="", help="the source's option maxRecordsPerTrigger")
    parser.add_argument("--rate", type=float, default=200, help="rows a second that are written meanwhile")
    arguments = parser.parse_args()
    spawning = multiprocessing.get_context("spawn")
    with environment() as on, tempfile.TemporaryDirectory() as folder:
        on.fill("orders", arguments.rows, 1000, arguments.value_size)
        ours, theirs = spawning.Pipe()
        task = (on.dsn, Path(folder), arguments.rows_per_batch, theirs)
        query = spawning.Process(target=drain, args=task)
        query.start()
        theirs.close()
        peak, ended, written = SparkPeak(query.pid or 0), threading.Event(), list[int]()
        writer = threading.Thread(target=lambda: written.append(write(on, ended, arguments.rate)))
        writer.start()
        seconds, batches = ours.recv()
        ended.set()
        writer.join()
        peak.stop()
        query.join()
        found = pyarrow.dataset.dataset(f"{folder}/out").to_table(columns=["id"]).column("id").to_pylist()
        with on.connect() as connection:
            left = {row[0] for row in connection.execute("SELECT id FROM outbox")}
    print(
        f"{arguments.rows:,} rows waited, {written[0]:,} were written meanwhile; in {seconds:.0f} s "
        f"{len(found):,} were delivered, in {len(batches)} batches of {max(batches):,} at most; "
        f"{len(left):,} are left, {len(left.intersection(found))} of them delivered; peak {peak}"
    )
    if len(set(found)) != len(found) or len(found) + len(left) != arguments.rows + written[0]:
        sys.exit("not each row is delivered once, or left")


if __name__ == "__main__":
    main()
