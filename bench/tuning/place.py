"""The servers, and one cell on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Self

import psutil
import psycopg
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from outbox_servers.services import KafkaBroker, PostgresServer
from psycopg.conninfo import make_conninfo

from bench.tuning.cell import Cell
from bench.tuning.link import Link

JVM = ("-Xmx512m", "-Xms512m")
PARTITIONS = 8
TEMPLATE = "prepared"
START_SECONDS = 60.0
DRAIN_SECONDS = 20.0
"""A drain is measured for so long, or until the outbox is empty."""
WARM_SHARE = 0.1
"""So much of a backlog is delivered before the measurement begins."""
KEY = {0: "floor(exp(random() * ln(100000)))"}
"""Zipf: the key k is drawn with a probability that is about proportional to 1/k."""

INSERT = """INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
kafka_header_values) SELECT now(), %s, {key}, rpad(g::text, {size}, '.'), '{{h}}', '{{v}}'
FROM generate_series(1, %s) AS g"""


class Servers:
    """PostgreSQL and Kafka, each behind links; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._numbers, self._lock = count(1), Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="outbox-tuning-"))
        self._links: dict[int, Link] = {}

    def __enter__(self) -> Self:
        self.to_broker = Link(lambda: self._kafka.proxied_port)
        self._kafka = KafkaBroker(jvm_options=JVM, proxy_port=self.to_broker.port)
        self._postgres = self._stack.enter_context(PostgresServer())
        self._stack.enter_context(self._kafka)
        self.bootstrap = self._kafka.bootstrap
        self._admin = psycopg.connect(self._postgres.dsn, autocommit=True)
        self._admin.execute(f"CREATE DATABASE {TEMPLATE}")
        file = self._folder / "init.yaml"
        file.write_text(json.dumps({"harvest": {"dataSource": self.dsn(TEMPLATE)}}))
        outbox("init", "-f", str(file)).wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()
        self._stack.close()
        for link in (self.to_broker, *self._links.values()):
            link.close()

    def dsn(self, database: str, milliseconds: int = 0) -> str:
        """Returns the address of a database, over a link if there is a delay."""
        dsn = make_conninfo(self._postgres.dsn, dbname=database)
        if not milliseconds:
            return dsn
        with self._lock:
            if milliseconds not in self._links:
                self._links[milliseconds] = Link(lambda: self._postgres.port, milliseconds / 1000)
        return make_conninfo(dsn, port=self._links[milliseconds].port)

    @contextmanager
    def site(self, cell: Cell) -> Iterator[Site]:
        """Makes a topic, and a database with an empty outbox, for one harvester."""
        with self._lock:
            name = f"cell{next(self._numbers)}"
            self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS)])[name].result()
        try:
            yield Site(self, cell, name, self._folder)
        finally:
            with self._lock:
                self._admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.delete_topics([name])[name].result()


class Site:
    """Where one cell is measured.

    Attributes:
        topic: The records' topic.
        connection: To the database, without a delay.
    """

    def __init__(self, servers: Servers, cell: Cell, name: str, folder: Path) -> None:
        self.topic, self.cell, self.bootstrap = name, cell, servers.bootstrap
        self.connection = psycopg.connect(servers.dsn(name), autocommit=True)
        # What a copy has of its own: the identity decides the names of lanes at the broker.
        self.connection.execute("DELETE FROM outbox_fence")
        self.connection.execute("DELETE FROM outbox_fence_notes")
        port = f"127.0.0.1:{servers.to_broker.port}"
        harvest: dict[str, Any] = {
            "name": name,
            "baseKafkaConfig": {"bootstrap.servers": port if cell.broker else servers.bootstrap},
            "producerKafkaConfig": cell.kafka,
            "dataSource": servers.dsn(name, cell.database),
            "delivery": cell.delivery,
            "elector": {"driver": "neli-kafka"} if cell.idle else "static",
            "engine": "inline",
            "limits": cell.limits,
        }
        self._file = folder / f"{name}.yaml"
        self._file.write_text(json.dumps({"harvest": harvest}))

    @contextmanager
    def harvester(self) -> Iterator[psutil.Process]:
        """Runs a harvester, from when it leads to the end of the block."""
        log = self._file.with_suffix(".log")
        process = outbox("run", "-f", str(self._file), log=log)
        try:
            until = time.monotonic() + START_SECONDS
            while "leader acquired" not in (said := log.read_text()):
                if process.poll() is not None or time.monotonic() > until:
                    sys.exit(f"the harvester does not lead:\n{said}")
                time.sleep(0.05)
            yield psutil.Process(process.pid)
        finally:
            process.kill()
            process.wait()
            self.connection.close()

    def fill(self, rows: int) -> None:
        """Writes rows in one transaction."""
        cell = self.cell
        key = KEY.get(cell.keys, f"mod(g::bigint * 7919, {cell.keys or 1})")
        statement = INSERT.format(key=f"'key-' || {key}", size=cell.size)
        self.connection.execute(statement.encode(), (self.topic, rows))

    def drained(self) -> float:
        """Returns records per second, from when some of a backlog is delivered."""
        began = ended = None
        least = self.cell.rows * (1 - WARM_SHARE)
        left, until = self.cell.rows, time.monotonic() + START_SECONDS
        while left and time.monotonic() < until:
            before = time.monotonic()
            now_left = self.left()
            looked = time.monotonic()
            if now_left < left and now_left <= least:
                left, ended = now_left, (looked, now_left)
                if began is None:
                    began, until = ended, looked + DRAIN_SECONDS
            time.sleep(max(0.02, 5 * (looked - before)))
        if began is None or ended is None or ended == began:
            raise TimeoutError(f"nothing was delivered of {self.cell}")
        return (began[1] - ended[1]) / (ended[0] - began[0])

    def left(self) -> int:
        """Returns how many rows the outbox has."""
        return int(self.connection.execute("SELECT count(*) FROM outbox").fetchall()[0][0])

    def statements(self) -> int:
        """Returns how many transactions the database has ended."""
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return int(self.connection.execute(query).fetchall()[0][0])


def outbox(*arguments: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Starts a command of outbox."""
    with (log or Path(os.devnull)).open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "outbox_core", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, "NO_COLOR": "1"},
        )


def cpu(process: psutil.Process) -> float:
    """Returns the seconds of CPU time of a process."""
    times = process.cpu_times()
    return times.user + times.system
