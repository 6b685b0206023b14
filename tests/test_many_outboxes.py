"""Several outboxes in each of several processes: how leaders spread, and that one leaves others alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from outbox_api import Record, Stasher
from outbox_core.config import configure
from outbox_core.status.snapshot import silence
from outbox_servers.services import Kafka

from .harvesters import Harvester, until
from .topics import ends, messages

SESSION = 4.0
KEYS = 5
PARTITIONS = 2


class Outboxes:
    """Outboxes in several databases, with an application that writes into all of them.

    Args:
        folder: For settings and logs.
        kafka: The broker.
        topic: The common start of the topics' names.
        databases: Name → driver, data source and number of tables.
        session: The session of the elections, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        kafka: Kafka,
        topic: str,
        databases: dict[str, tuple[str, str, int]],
        session: float = SESSION,
    ) -> None:
        self.session = session
        self.folder, self.kafka, self.topic = folder, kafka, topic
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self.sections = {
            f"{name}-{number}": {
                "dialect": {"driver": driver, "dataSource": source},
                "outboxTable": f"box_{number}",
            }
            for name, (driver, source, count) in databases.items()
            for number in range(count)
        }
        self.written: Counter[str] = Counter()
        self.processes: list[Harvester] = []

    def document(self, **changes: Any) -> dict[str, Any]:
        common = {
            "baseKafkaConfig": {"bootstrap.servers": self.kafka.bootstrap},
            "elector": {"driver": "lease", "sessionTimeout": f"{self.session:g}s"},
            "engine": "inline",
            "limits": {"minMetricsInterval": "1s"},
        }
        return {"harvest": common | changes, "outboxes": self.sections}

    def settings(self) -> dict[str, Any]:
        return {each.label: each for each in configure(self.document()).outboxes}

    def create(self) -> None:
        for label, settings in self.settings().items():
            settings.dialect.create().create()
            settings.publisher.create().prepare([f"{self.topic}-{label}"], PARTITIONS)

    def start(self, name: str, **changes: Any) -> Harvester:
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(self.document(name=name, **changes)))
        process = Harvester(name, file)
        self.processes.append(process)
        return process

    def leaders(self) -> dict[str, str | None]:
        """Returns outbox → the process that leads it and has been heard of lately."""
        found: dict[str, str | None] = {}
        for label, settings in self.settings().items():
            with closing(settings.dialect.create().connect()) as table:
                lanes = table.lane_statuses()
            found[label] = lanes[0].holder if lanes and silence(lanes[0]) < 3 else None
        return found

    def counts(self) -> list[int]:
        """Returns how many outboxes each running process leads, ascending."""
        leaders = Counter(self.leaders().values())
        return sorted(leaders[process.name] for process in self.processes if process.running)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writes a few records a second into every outbox."""
        ending = Event()
        writers = [
            Thread(target=self._write, args=(label, settings, ending))
            for label, settings in self.settings().items()
        ]
        for writer in writers:
            writer.start()
        try:
            yield
        finally:
            ending.set()
            for writer in writers:
                writer.join()

    def _write(self, label: str, settings: Any, ending: Event) -> None:
        stasher = Stasher(settings.outbox, settings.dialect.driver)
        # An application on a busy machine waits longer than usual for whoever has locked the file.
        options = replace(settings.dialect.options, lock_timeout=120.0)
        dialect = replace(settings.dialect, options=options).create()
        with closing(dialect.stash_connection()) as connection:
            while not ending.wait(0.1):
                number = self.written[label]
                record = Record(f"{self.topic}-{label}", f"key-{number % KEYS}", str(number))
                stasher.stash(connection, record)
                connection.commit()
                self.written[label] += 1

    def wait_until_empty(self, seconds: float) -> None:
        def empty() -> bool:
            for settings in self.settings().values():
                with closing(settings.dialect.create().connect()) as table:
                    if table.backlog().records:
                        return False
            return True

        until(empty, "all outboxes are empty", seconds, pause=0.2)

    def audit(self) -> int:
        """Checks that every record has arrived, in order for each key; returns how many came twice."""
        twice = 0
        for label in self.sections:
            seen: dict[str, list[int]] = defaultdict(list)
            topic = f"{self.topic}-{label}"
            until = ends(self.admin, topic, PARTITIONS)
            for message in messages(self.kafka.bootstrap, topic, until):
                number, key = int(message.value() or b""), (message.key() or b"").decode()
                if number in seen[key]:
                    twice += 1
                else:
                    seen[key].append(number)
            assert all(numbers == sorted(numbers) for numbers in seen.values()), label
            assert sum(map(len, seen.values())) == self.written[label], label
        return twice

    def electors(self) -> set[str | None]:
        """Returns by whom the leaders were elected, according to ``outbox status`` of all outboxes."""
        found = json.loads(self.run("status", "--json").stdout)["outboxes"]
        assert {each["label"] for each in found} == set(self.sections)
        return {each["leader"]["elector"] for each in found}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command with the last process's file."""
        file = self.folder / f"{self.processes[-1].name}.yaml"
        command = [sys.executable, "-m", "outbox_core", *arguments, "-f", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def outboxes(
    tmp_path: Path, kafka_broker: Kafka, topic: str, postgres_dsn: str, mariadb_dsn: str
) -> Iterator[Outboxes]:
    databases = {
        "pg": ("postgres", postgres_dsn, 3),
        "maria": ("mysql", f"{mariadb_dsn}?ssl-mode=DISABLED", 1),
        "file": ("sqlite", str(tmp_path / "outbox.db"), 1),
    }
    made = Outboxes(tmp_path, kafka_broker, topic, databases)
    yield made
    for process in made.processes:
        process.close()


@pytest.mark.slow
def test_leaders_spread_over_processes_and_are_taken_over(outboxes: Outboxes) -> None:
    outboxes.create()
    outboxes.start("one")
    until(lambda: outboxes.counts() == [5], "the only process leads all", 60, pause=0.5)
    with outboxes.writing():
        outboxes.start("two")
        until(lambda: outboxes.counts() == [2, 3], "leaders are spread", 120, pause=0.5)
        outboxes.processes[0].kill()
        until(lambda: outboxes.counts() == [5], "all are taken over", 60, pause=0.5)
    outboxes.wait_until_empty(60)
    # Lanes tell of it with their first heartbeat, which may be later than their first records.
    until(lambda: outboxes.electors() == {"lease"}, "all lanes tell by whom they were elected", 60)
    one = json.loads(outboxes.run("status", "--json", "--outbox", "pg-1").stdout)
    assert one["outbox"] == "box_1"
    outboxes.processes[1].leave()
    outboxes.audit()


@pytest.mark.slow
def test_an_outbox_that_fails_does_not_disturb_the_others(outboxes: Outboxes) -> None:
    outboxes.create()
    settings = outboxes.settings()
    missing = {"dialect": outboxes.sections["pg-0"]["dialect"], "outboxTable": "missing"}
    outboxes.sections = {label: outboxes.sections[label] for label in ("pg-0", "maria-0")}
    written = dict(outboxes.sections)
    outboxes.sections["gone"] = missing
    process = outboxes.start("one")
    process.wait_for("one/gone] not harvested, trying again", 60)
    outboxes.sections = written
    with outboxes.writing():
        until(lambda: outboxes.counts() == [2], "the others are harvested", 60, pause=0.5)
    outboxes.wait_until_empty(60)
    health = outboxes.run("health", "--patience", "60s")
    assert (health.returncode, "gone" in health.stdout) == (1, True), health.stdout + health.stderr
    made = outboxes.run("init", "--outbox", "gone")
    assert made.returncode == 0, made.stderr
    process.wait_for("one/gone] joined the election", 60)
    until(
        lambda: outboxes.run("health", "--patience", "60s").returncode == 0, "all are healthy", 60, pause=0.5
    )
    assert "gone" not in settings
    outboxes.audit()


@pytest.mark.slow
def test_tables_that_match_a_template_are_harvested_also_new_ones(
    outboxes: Outboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = {"dialect": outboxes.sections["pg-0"]["dialect"], "outboxTable": "box_*"}
    tables = {f"pg-{number}": outboxes.sections[f"pg-{number}"] for number in range(3)}
    outboxes.sections = tables
    outboxes.create()
    outboxes.sections = {"tenants": template}
    process = outboxes.start("one")
    for number in range(3):
        process.wait_for(f"one/tenants/box_{number}] joined the election", 60)
    outboxes.sections = {**tables, "pg-7": {**template, "outboxTable": "box_7"}}
    outboxes.create()
    process.wait_for("one/tenants/box_7] joined the election", 60)
    with outboxes.writing():
        until(lambda: outboxes.counts() == [4], "all are harvested", 60, pause=0.5)
    outboxes.wait_until_empty(60)
    outboxes.audit()
