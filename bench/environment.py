"""The environment of a benchmark: real servers, an outbox, a harvester."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psutil
import psycopg
from backlog import insert, tidy
from confluent_kafka.admin import AdminClient, NewTopic
from outbox_servers.services import Kafka, KafkaBroker, KafkaCluster, PostgresServer

BROKER_JVM = ("-Xmx512m", "-Xms512m")
"""A broker without the quick-start options of the tests, so that Java compiles its hot code."""


class Environment:
    """A database with an empty outbox, and a broker."""

    def __init__(self, postgres: PostgresServer, kafka: Kafka) -> None:
        self.dsn = postgres.dsn
        self.bootstrap = kafka.bootstrap
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._folder = Path(tempfile.mkdtemp(prefix="outbox-bench-"))

    def topic(self, partitions: int = 8) -> str:
        """Creates a topic with a new name."""
        name = f"bench-{uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(name, partitions)])[name].result()
        return name

    def connect(self) -> psycopg.Connection:
        """Connects to the database, in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    def fill(self, topic: str, rows: int, keys: int, value_size: int = 100) -> None:
        """Writes a backlog in one transaction, so that it appears at once."""
        with self.connect() as connection:
            tidy(connection)
            key = f"'key-' || mod(g::bigint * 7919, {keys})"
            insert(connection, topic, rows, key, f"lpad(g::text, {value_size}, '.')")

    def seconds_until_empty(self, timeout: float = 600) -> float:
        """Waits until the outbox is empty; returns how many seconds that took."""
        started = time.monotonic()
        with self.connect() as connection:
            while connection.execute("SELECT FROM outbox LIMIT 1").fetchone() is not None:
                if time.monotonic() - started > timeout:
                    sys.exit(f"the outbox is not empty after {timeout} s")
                time.sleep(0.02)
        return time.monotonic() - started

    def settings(self, name: str, **harvest: object) -> Path:
        """Writes a configuration file; keyword arguments are keys below ``harvest:``."""
        base = {
            "name": name,
            "baseKafkaConfig": {"bootstrap.servers": self.bootstrap},
            "dataSource": self.dsn,
            "elector": "static",
        }
        path = self._folder / f"{name}.yaml"
        path.write_text(json.dumps({"harvest": base | harvest}))
        return path


@contextmanager
def harvester(settings: Path, ready: str = "leader acquired") -> Iterator[subprocess.Popen[str]]:
    """Runs ``outbox run`` until the block ends; enters the block when its log contains ``ready``."""
    with settings.with_suffix(".log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "outbox_core", "run", "-f", str(settings)], stderr=log, text=True
        )
        try:
            wait_for(log.name, ready, process)
            yield process
        finally:
            process.terminate()
            process.wait(30)


def cpu_seconds(process: psutil.Process) -> float:
    """Returns the CPU time of a process and of those below it."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def wait_for(path: str, words: str, process: subprocess.Popen[str], timeout: float = 60) -> None:
    """Waits until a log contains ``words``."""
    until = time.monotonic() + timeout
    while words not in (text := Path(path).read_text()):
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"the harvester did not get ready:\n{text}")
        time.sleep(0.05)


@contextmanager
def environment(
    broker: KafkaBroker | KafkaCluster | None = None, *, auto_create_topics: bool = True
) -> Iterator[Environment]:
    """Starts the services, among them the given or else a usual broker, and creates the outbox."""
    print("starting PostgreSQL and Kafka …", file=sys.stderr)
    broker = broker or KafkaBroker(jvm_options=BROKER_JVM, auto_create_topics=auto_create_topics)
    with PostgresServer() as postgres, broker as kafka:
        made = Environment(postgres, kafka)
        settings = made.settings("init")
        subprocess.run(
            [sys.executable, "-m", "outbox_core", "init", "-f", str(settings)],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"NO_COLOR": "1"},
        )
        yield made
