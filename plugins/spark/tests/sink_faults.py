"""Kills drivers, executors and the database while many rows go into sinks, and counts the rows there.

In plugins/spark: ``python -m tests.sink_faults --rows 1000000 --sinks files delta_stream``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from outbox_api import Record, Stasher
from outbox_servers.services import MariaDbServer, PostgresServer
from outbox_spark.application import JAVA_OPTIONS

from .sink_jars import DELTA, DELTA_SETTINGS, environment, jars_of, older_pyspark
from .sink_trial import KEYS, SETTINGS, Application, Outbox, Query, count, read

MOMENTS = (
    (0.10, "driver"),
    (0.25, "executor"),
    (0.40, "driver"),
    (0.50, "database"),
    (0.65, "executor"),
    (0.80, "driver"),
)
"""What is killed, when so much has been committed."""
BATCH = 10_000
EACH = 1_000
"""Rows of a transaction of the writer."""


class Writer(threading.Thread):
    """Stashes numbers once each, though the database ends in between: a table tells what was committed."""

    def __init__(self, outbox: Outbox, rows: int) -> None:
        super().__init__(daemon=True)
        self._outbox, self._rows = outbox, rows
        outbox.execute("CREATE TABLE stashed (first BIGINT PRIMARY KEY)")

    def run(self) -> None:
        for first in range(0, self._rows, EACH):
            while not self._stash(first):
                time.sleep(0.5)

    def _stash(self, first: int) -> bool:
        numbers = range(first, min(first + EACH, self._rows))
        records = [Record("orders", f"k{number % KEYS}", str(number)) for number in numbers]
        with suppress(Exception), closing(self._outbox.dialect.stash_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT first FROM stashed WHERE first = {first}")
            if not cursor.fetchone():
                cursor.execute(f"INSERT INTO stashed VALUES ({first})")
                Stasher(dialect=self._outbox.driver).stash_many(connection, records)
                connection.commit()
            return True
        return False


@contextmanager
def server(dialect: str) -> Iterator[Any]:
    if dialect == "sqlite":
        yield None
        return
    made: Any = PostgresServer() if dialect == "postgres" else MariaDbServer()
    with made:
        yield made


def hit(what: str, application: Application, database: Any) -> bool:
    """Kills something; returns whether it was there: executors start late."""
    if what == "driver":
        application.kill()
    elif what == "database":
        database.kill()
        database.start()
    elif what == "executor":
        jvms = psutil.Process(application.process.pid).children(recursive=True)
        executors = [each for each in jvms if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())]
        if not executors:
            return False
        random.choice(executors).kill()
    return True


def committed(queries: Sequence[Query], rows: int) -> float:
    """Returns which share of the rows the slowest query has committed, about."""
    return min(max(query.logged("commits"), default=0) for query in queries) * BATCH / rows


def told(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201 - a program's progress


def settings_of(sinks: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns Spark's settings and the environment that sinks need."""
    settings = {**SETTINGS, "spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    settings["spark.executor.extraJavaOptions"] = JAVA_OPTIONS
    if not any(sink.startswith("delta") for sink in sinks):
        return settings, environment()
    return {**settings, **DELTA_SETTINGS, "spark.jars": jars_of(DELTA)}, environment(older_pyspark())


def drain(
    queries: Sequence[Query], database: Any, writers: Sequence[Writer], folder: Path, rows: int
) -> None:
    """Starts the application again and again until nothing waits, and kills as ``MOMENTS`` says."""
    settings, variables = settings_of([query.sink for query in queries])
    moments = [each for each in MOMENTS if database is not None or each[1] != "database"]
    waits = True
    while moments or waits:
        waits = any(writer.is_alive() for writer in writers)
        with Application(queries, settings, variables, folder / "driver.log") as application:
            while application.ended(0.5) is None:
                if moments and committed(queries, rows) >= moments[0][0]:
                    time.sleep(random.uniform(0, 3))
                    if hit(moments[0][1], application, database):
                        told(f"{committed(queries, rows):.0%} committed: killed the {moments.pop(0)[1]}")
            told(f"the application ended with {application.process.returncode}")
        waits = waits or any(query.outbox.waiting() for query in queries)
    results = folder / "results"
    with Application(queries, settings, variables, folder / "driver.log", results=str(results)) as last:
        told(f"the last application ended with {last.ended(None)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dialect", choices=("postgres", "mysql", "sqlite"), default="postgres")
    parser.add_argument("--sinks", nargs="+", default=["files", "delta_stream"])
    parser.add_argument("--folder", type=Path, help="kept; a temporary one if left out")
    options = parser.parse_args()
    folder: Path = (options.folder or Path(tempfile.mkdtemp(prefix="sink-faults-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with server(options.dialect) as database:
        queries = []
        for sink in options.sinks:
            source = database.create_database(sink) if database else str(folder / f"{sink}.db")
            outbox = Outbox(options.dialect, source)
            outbox.dialect.create()
            queries.append(Query(sink, outbox, [str(folder / sink / "table")], folder / sink, BATCH))
        writers = [Writer(query.outbox, options.rows) for query in queries]
        began = time.monotonic()
        for writer in writers:
            writer.start()
        drain(queries, database, writers, folder, options.rows)
        told(f"{options.rows} rows into each of {', '.join(options.sinks)}: {time.monotonic() - began:.0f} s")
        for query in queries:
            told(f"{query.sink}: {count(read(folder / 'results' / query.sink), options.rows)}")


if __name__ == "__main__":
    main()
