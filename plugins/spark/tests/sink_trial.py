"""Kills a Spark application that reads outboxes into sinks, and counts what the sinks have of them.

``sink_faults.py`` does so with many rows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow.parquet as pq
from outbox_api import Dialect, Record, Seam, Stasher, find
from outbox_api.application.inbox import Inbox
from outbox_spark.application import JAVA_OPTIONS

KEYS = 50
SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine begins workers slowly
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}
COLUMNS = ("id", "place", "key", "value")


@dataclass(frozen=True)
class Outbox:
    """An outbox in some database."""

    driver: str
    data_source: str

    @property
    def dialect(self) -> Dialect:
        driver = find(Seam.DIALECT, self.driver)
        made: Dialect = driver.create(driver.options(data_source=self.data_source))
        return made

    @property
    def options(self) -> dict[str, str]:
        return {"dialect": self.driver, "dataSource": self.data_source}

    def stash(self, numbers: Iterable[int]) -> None:
        records = [Record("orders", f"k{number % KEYS}", str(number)) for number in numbers]
        with closing(self.dialect.stash_connection()) as connection:
            Stasher(dialect=self.driver).stash_many(connection, records)
            connection.commit()

    def execute(self, statement: str) -> None:
        with closing(self.dialect.stash_connection()) as connection:
            connection.cursor().execute(statement)
            connection.commit()

    def waiting(self) -> int:
        """Counts what waits; the backlog that a view has is an estimate beyond ten thousand."""
        with closing(self.dialect.stash_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT count(*) FROM outbox")
            return int(cursor.fetchone()[0])

    def noted(self) -> bool:
        with closing(self.dialect.watch()) as view:
            return bool(view.transactional_lanes())


def created(dsn: str) -> Outbox:
    """Creates an outbox in PostgreSQL, with what Spark needs to stash into it."""
    outbox = Outbox("postgres", dsn)
    outbox.dialect.create()
    for statement in Inbox("spark").ddl():
        outbox.execute(statement)
    return outbox


class Query(NamedTuple):
    """A stream of an outbox into a sink: the function of spark_sinks.py, and its other arguments."""

    sink: str
    outbox: Outbox
    into: Sequence[str]
    folder: Path
    batch: int

    def task(self) -> dict[str, Any]:
        options = {**self.outbox.options, "maxRecordsPerTrigger": str(self.batch)}
        checkpoint = str(self.folder / "checkpoint")
        return {"sink": self.sink, "options": options, "into": self.into, "checkpoint": checkpoint}

    def logged(self, log: str) -> set[int]:
        """Returns which batches are in the offset log (``offsets``) or in the commit log (``commits``)."""
        names = (path.name for path in (self.folder / "checkpoint" / log).glob("*"))
        return {int(name) for name in names if name.isdecimal()}

    def open_commit_log(self) -> None:
        """Gives the query the commit log back that the driver took away."""
        commits = self.folder / "checkpoint" / "commits"
        commits.unlink()
        commits.with_name("kept").rename(commits)


class Count(NamedTuple):
    """What a sink has of the numbers that were stashed."""

    lost: int
    twice: int
    out_of_order: int


def count(rows: Sequence[Sequence[Any]], numbers: int) -> Count:
    """Counts what a sink has, by its rows (id, place, key, value) in the order of their places.

    Out of order is what stands, for the first time, behind a later one of its key.
    """
    seen, latest, late = set[int](), dict[str, int](), 0
    for _, _, key, value in rows:
        number = int(value)
        assert key == f"k{number % KEYS}"
        if number not in seen:
            late += number < latest.get(key, -1)
            latest[key] = max(number, latest.get(key, -1))
            seen.add(number)
    return Count(len(set(range(numbers)) - seen), len(rows) - len(seen), late)


def read(results: Path) -> list[list[Any]]:
    """Returns the rows that a driver has kept of a sink, in the order of their places."""
    table = pq.read_table(results).sort_by("place")
    return [list(row) for row in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)]


class Application:
    """A driver with its JVM and its workers: a group of processes.

    Args:
        queries: Its queries.
        settings: Those of Spark.
        environment: Its environment.
        log: A file for what it prints to standard error.
        more: What else it is to do.
    """

    module = "tests.sink_driver"

    def __init__(
        self,
        queries: Sequence[Query],
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        log: Path,
        **more: Any,
    ) -> None:
        task = {"queries": [query.task() for query in queries], "settings": settings, **more}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task).encode())
        self.process.stdin.close()

    def wait_until_ready(self) -> None:
        """Waits until the driver has come to where it is to be killed."""
        assert self.process.stdout is not None
        assert b"READY\n" in self.process.stdout

    def ended(self, seconds: float | None) -> int | None:
        """Returns with which code it has ended; ``None`` if it has not within so many seconds."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kills all its processes; idempotent."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def writing(outboxes: Sequence[Outbox], begin: int, end: int, each: int, pause: float) -> Iterator[None]:
    """Stashes numbers into outboxes, so many in a transaction; leaving the block waits for the last."""

    def write() -> None:
        for first in range(begin, end, each):
            for outbox in outboxes:
                outbox.stash(range(first, min(first + each, end)))
            threading.Event().wait(pause)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()
