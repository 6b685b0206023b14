"""Two harvesters of one outbox, records that flow, and a Prometheus that watches with scaled rules."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

import psycopg
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from outbox_console.prometheus import exported
from outbox_core.monitoring import names
from outbox_servers.services import Kafka, KafkaBroker, Postgres, PostgresServer, PrometheusServer
from outbox_servers.services.prometheus import Alert

from deploy.alerts import rules
from deploy.make import DOCS, rules_text

from ..harvesters import Harvester, until  # noqa: TID252 - pytest gives tests no absolute name
from .front import ANY_PORT, Front

INTERVAL = 1.0
"""Seconds between two scrapes, and two evaluations of the rules."""
SESSION = "2s"
START_SECONDS = 120.0
INSERT = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                    kafka_header_keys, kafka_header_values{column})
SELECT clock_timestamp(), %s, %s || number %% %s, %s, '{{}}', '{{}}'{value}
FROM generate_series(1, %s) AS number
"""


@dataclass(frozen=True)
class Servers:
    """A database server and a broker, which several sites use one after the other."""

    postgres: Postgres
    kafka: Kafka


@contextmanager
def own_servers() -> Iterator[Servers]:
    """Servers that faults may stop."""
    with (
        PostgresServer(settings={"autovacuum_naptime": "1s"}) as postgres,
        KafkaBroker(auto_create_topics=False) as kafka,
    ):
        yield Servers(postgres, kafka)


class Site:
    """Starts and ends harvesters, the flow of records and Prometheus, as a context manager.

    Args:
        servers: The servers.
        folder: A new folder, for settings and logs.
        factor: By what the durations and limits of the rules are divided.
        harvest: Settings below ``harvest:`` that replace those of this class.

    Attributes:
        harvesters: Name, ``a`` or ``b`` → process; one that has ended, too.
    """

    def __init__(self, servers: Servers, folder: Path, factor: float, harvest: Mapping[str, Any]) -> None:
        self.servers = servers
        self.harvesters: dict[str, Harvester] = {}
        self._folder = folder
        self._harvest = harvest
        self._fronts = {name: Front() for name in "ab"}
        self._starts = 0
        self._stack = ExitStack()
        folder.mkdir(parents=True)
        scaled = folder / "rules.yaml"
        scaled.write_text(rules_text(rules(DOCS, factor)))
        targets = [front.address for front in self._fronts.values()]
        self.prometheus = PrometheusServer({"outbox": targets}, rules=[scaled], interval=INTERVAL)
        self.dsn = ""
        self._topic = f"alarms-{uuid.uuid4().hex}"
        # It lives as long as the site, and would log the end of the broker.
        self._admin = AdminClient({"bootstrap.servers": servers.kafka.bootstrap, "log_level": 0})

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for front in self._fronts.values():
                stack.callback(front.close)
            database = f"alarms_{uuid.uuid4().hex}"
            self.dsn = self.servers.postgres.create_database(database)
            stack.callback(self.servers.postgres.drop_database, database)
            self.configure("a")
            self.tell("init")
            self.create_topic(self._topic)
            stack.callback(self._end_harvesters)
            for name in self._fronts:
                self.start(name)
            for each in self.harvesters.values():
                each.wait_for("serving on http://", START_SECONDS)
            stack.enter_context(self.prometheus)
            stack.enter_context(_Trickle(self))
            self.wait_until_two()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # --- harvesters ---------------------------------------------------------------------------------

    def configure(self, name: str, **harvest: Any) -> Path:
        """Writes the configuration of a harvester; keyword arguments replace settings below ``harvest:``."""
        base = {
            "name": name,
            "baseKafkaConfig": {"bootstrap.servers": self.servers.kafka.bootstrap},
            "producerKafkaConfig": {"delivery.timeout.ms": 1500, "request.timeout.ms": 1000},
            "dataSource": self.dsn,
            "elector": {"driver": "lease", "sessionTimeout": SESSION},
            "engine": "inline",
            "limits": {"sendConcurrency": 1, "minMetricsInterval": "1s"},
        }
        data = {
            "http": {"listen": ANY_PORT},
            "harvest": {**base, **self._harvest, **harvest},
        }
        file = self._folder / f"{name}.yaml"
        file.write_text(json.dumps(data))
        return file

    def start(self, name: str, **harvest: Any) -> Harvester:
        """Starts a harvester in place of the one of that name, which has ended."""
        if name in self.harvesters:
            self.harvesters[name].close()
        file = self.configure(name, **harvest)
        self._starts += 1
        self.harvesters[name] = self._fronts[name].harvester = Harvester(f"{name}{self._starts}", file)
        return self.harvesters[name]

    def leader(self) -> str:
        """Waits until exactly one harvester says that it leads, and returns its name."""

        def alone() -> list[str]:
            led = self.prometheus.query(f"{exported(names.LEADER)} == 1")
            names_at = {front.address: name for name, front in self._fronts.items()}
            return [names_at[each.labels["instance"]] for each in led]

        until(lambda: len(alone()) == 1, "exactly one leads", START_SECONDS, pause=0.2)
        return alone()[0]

    def wait_until_two(self) -> None:
        """Waits until both take part in the election."""
        both = f"count({exported(names.CANDIDATE)} == 1) == 2"
        until(lambda: self.prometheus.query(both), "both take part", START_SECONDS, pause=0.2)

    def _end_harvesters(self) -> None:
        for each in self.harvesters.values():
            each.close()

    # --- the outbox ---------------------------------------------------------------------------------

    def tell(self, *arguments: str) -> None:
        """Runs a command of ``outbox``, which must succeed."""
        command = [sys.executable, "-m", "outbox_core", *arguments, "-f", str(self._folder / "a.yaml")]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr

    def create_topic(self, name: str, *, largest_message: int = 1_000_000) -> None:
        """Creates a topic, unless there is one."""
        if name not in self._admin.list_topics(timeout=30).topics:
            limit = {"max.message.bytes": str(largest_message)}
            self._admin.create_topics([NewTopic(name, 1, 1, config=limit)])[name].result(30)

    def add_partitions(self, name: str) -> None:
        """Adds some to a topic, beside the harvesters."""
        self._admin.create_partitions([NewPartitions(name, 16)])[name].result(60)

    def raise_limit(self, name: str, *, largest_message: int) -> None:
        """Changes a topic's limit for the bytes of a message."""
        size = str(largest_message)
        entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(30)

    def connect(self) -> psycopg.Connection:
        """Connects to the database, in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=5)

    def stash(
        self,
        records: int = 1,
        *,
        topic: str = "",
        key: str = "key-",
        keys: int = 1,
        value: str = "value",
        cluster: int | None = None,
    ) -> None:
        """Commits records at once, with ``key`` and a number below ``keys`` as their keys."""
        column, number = ("", "") if cluster is None else (", cluster_id", f", {cluster}")
        insert = INSERT.format(column=column, value=number)
        with self.connect() as connection:
            connection.execute(insert, (topic or self._topic, key, keys, value, records))

    # --- alarms -------------------------------------------------------------------------------------

    def firing(self) -> set[str]:
        """Returns the alarms that fire."""
        return {each.name for each in self.alerts() if each.firing}

    def alerts(self) -> Sequence[Alert]:
        """Returns the alarms that fire or are pending."""
        return self.prometheus.alerts()

    def since(self, began: float, alarm: str, *, fires: bool, patience: float) -> float:
        """Waits until an alarm fires or does not; returns how many seconds that was after ``began``."""
        what = f"{alarm} {'fires' if fires else 'clears'}"
        try:
            until(lambda: (alarm in self.firing()) is fires, what, patience, pause=0.1)
        except AssertionError as error:
            logs = "\n".join(f"{each.name}:\n{each.tail(15)}" for each in self.harvesters.values())
            raise AssertionError(f"{error}; alarms: {self.alerts()}\n{logs}") from error
        return time.monotonic() - began


class _Trickle(Thread):
    """Stashes some records a second, as long as the database answers."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="trickle", daemon=True)
        self._site = site
        self._end = Event()

    def run(self) -> None:
        while not self._end.wait(0.3):
            try:
                self._site.stash(2, key="flow-")
            except psycopg.OperationalError:
                continue  # a fault

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self.join()
