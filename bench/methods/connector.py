"""The real JDBC source connector of Kafka Connect, on a few histories, beside our simple form of it.

No registry has it: it is built of a clone of its repository (Aiven-Open/jdbc-connector-for-apache-kafka, the
fork of Confluent's that has an open licence).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from outbox_servers.services import find_java, free_port
from outbox_servers.services.kafka_home import write_properties
from outbox_servers.services.process import ServerProcess, ServiceError
from psycopg.conninfo import conninfo_to_dict

from bench.compare.databases import POSTGRES
from bench.compare.peers import CONNECT, DEBEZIUM, Debezium
from bench.methods.broker import LARGEST, Topic
from bench.methods.counting import Bench
from bench.methods.history import History
from bench.methods.method import LIMIT, Method, Place, RefusedError

MODES = ("incrementing", "timestamp", "timestamp+incrementing")
CASES: dict[str, tuple[History, tuple[str, ...]]] = {
    "an earlier id commits later": (("w2 insert a", "w1 insert c", "w1 commit", "h0 poll"), MODES),
    "rows of one time, no restart": (("w0 insert c",) * 5, MODES),
    "rows of one time, a restart between": (
        ("w0 insert a", "w0 insert b", "w0 insert b", "w0 poison c", *("w0 insert a",) * 3),
        ("timestamp",),
    ),
    "the clock is set back": (
        ("w0 insert a", "w0 commit", "h0 poll", "clock -5", "w0 insert b", "w0 commit"),
        MODES,
    ),
}
"""What happens → the history, and the modes that it concerns."""
SECONDS = 600.0
"""Seconds that one history may take."""
SESSIONS = """
SELECT count(*), max(query_start) FILTER (WHERE query LIKE '%outbox%')::text FROM pg_stat_activity
WHERE application_name = 'PostgreSQL JDBC Driver'
"""
FAILED = "Task threw an uncaught and unrecoverable exception"


class Connect:
    """Connect with the connector, stand-alone; its offsets outlive it, in a file."""

    def __init__(self, place: Place, command: list[str], mode: str, dsn: str, topic: Topic) -> None:
        self._place = place
        self._queried = ""
        folder = Path(place.memory.get("folder") or mkdtemp(prefix="outbox-connect-"))
        place.memory["folder"] = str(folder)
        worker = write_properties(folder / "worker.properties", worker_of(topic.bootstrap, folder))
        connector = write_properties(folder / "connector.properties", source_of(mode, dsn, topic.name))
        arguments = [*command, str(worker), str(connector)]
        self._until = time.monotonic() + SECONDS
        while self._place.all(SESSIONS)[0][0]:  # those of one that was killed
            self._wait()
        self._process = ServerProcess("connect", arguments, log=folder / "connect.log")
        place.ends.append(self._process.kill)
        self._until_queried("")

    def poll(self) -> Generator[None]:
        """Waits until the connector has queried twice, and its records are acknowledged.

        Raises:
            RefusedError: Its task has failed.
        """
        for _ in range(2):
            self._until_queried(self._queried)
        time.sleep(0.2)
        yield

    def _until_queried(self, last: str) -> None:
        """Waits until the connector queries again, and notes when it did."""
        while True:
            [(_, now)] = self._place.all(SESSIONS)
            if now not in {None, last}:
                self._queried = now
                return
            self._wait(self._process)
            if FAILED in self._process.log_tail(lines=sys.maxsize):
                raise RefusedError("the task has failed")

    def _wait(self, process: ServerProcess | None = None) -> None:
        if time.monotonic() > self._until or (process and not process.running):
            raise ServiceError(f"Connect does nothing:\n{process.log_tail() if process else ''}")
        time.sleep(0.02)


def worker_of(bootstrap: str, folder: Path) -> dict[str, str]:
    """Returns the settings of Connect."""
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "50",
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.discovery": "service_load",
        "producer.max.request.size": str(LARGEST),  # refuses a record before the next batch
    }


def source_of(mode: str, dsn: str, topic: str) -> dict[str, str]:
    """Returns the settings of the connector."""
    address = conninfo_to_dict(dsn)
    query = "SELECT id, kafka_key, kafka_value, to_timestamp(created) AS created FROM outbox"
    return {
        "name": "outbox",
        "connector.class": "io.aiven.connect.jdbc.JdbcSourceConnector",
        "connection.url": f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}",
        "connection.user": str(address["user"]),
        "connection.password": str(address.get("password", "")),
        "mode": mode,
        "query": f"SELECT * FROM ({query}) AS o",
        "topic.prefix": topic,
        "poll.interval.ms": "50",
        "batch.max.rows": str(LIMIT),
        **({"incrementing.column.name": "id"} if "incrementing" in mode else {}),
        **({"timestamp.column.name": "created"} if "timestamp" in mode else {}),
        "transforms": "key,onlyKey,value",
        "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
        "transforms.key.fields": "kafka_key",
        "transforms.onlyKey.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
        "transforms.onlyKey.field": "kafka_key",
        "transforms.value.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.value.field": "kafka_value",
    }


def built(source: Path) -> list[str]:
    """Compiles the connector of a clone; returns the command of Connect with it.

    Connect and PostgreSQL's JDBC driver are those that come with Debezium.
    """
    peer = Debezium("debezium", POSTGRES)
    peer.prepare()
    assert peer.jars is not None, "prepare() sets it"
    classes = Path(mkdtemp(prefix="outbox-connector-"))
    shutil.copytree(source / "src/main/resources", classes, dirs_exist_ok=True)
    files = [str(each) for each in (source / "src/main/java").rglob("*.java")]
    subprocess.run(["javac", "-nowarn", "-cp", f"{peer.jars}/*", "-d", str(classes), *files], check=True)
    java = str(find_java().executable)
    quick = ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [java, *quick, "-cp", f"{classes}:{peer.jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone"]


def compared(source: Path) -> dict[str, Any]:
    """Executes the histories with the connector and with our form; returns what each shows."""
    command = built(source)
    found: dict[str, Any] = {}
    with Bench() as bench:
        for case, (history, modes) in CASES.items():
            found[case] = {"history": list(history), "modes": {}}
            for mode in modes:
                simple = bench.prepared(f"JDBC: {mode}")

                topic = bench.topic(shared=True)
                start = partial(Connect, command=command, mode=mode, dsn=bench.dsn, topic=topic)
                real = simple._replace(method=Method("connector", start), topic=topic)
                shown = {
                    name: it.executed(history).shown for name, it in {"simple": simple, "real": real}.items()
                }
                found[case]["modes"][mode] = shown
                print(f"{case}: {mode}: {shown}", file=sys.stderr, flush=True)
    return {"connector": revision(source), "connect": CONNECT, "driver": DEBEZIUM[POSTGRES], "cases": found}


def revision(source: Path) -> str:
    """Returns the commit of a clone."""
    command = ["git", "-C", str(source), "describe", "--always", "--tags"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
