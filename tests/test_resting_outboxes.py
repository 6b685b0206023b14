"""Outboxes of one process that rest while they are empty: they are found, led, and hold up no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import sleep
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest
from outbox_api import Record, Stasher
from outbox_servers.services import Kafka
from outbox_servers.services.process import free_port

from .harvesters import Harvester, until
from .test_many_outboxes import KEYS, Outboxes
from .topics import ends

COUNT = 5
QUIET = "rests until there is a record"


class Tenants(Outboxes):
    """Outboxes of one database."""

    port = 0

    def document(self, **changes: Any) -> dict[str, Any]:
        served = {"http": {"listen": f"127.0.0.1:{self.port}"}} if self.port else {}
        return super().document(**changes) | served

    def begin(self, name: str, **changes: Any) -> Harvester:
        """Starts a process whose outboxes rest as soon as they have been empty for a second."""
        return self.start(name, limits={"minMetricsInterval": "1s", "restAfter": "1s"}, **changes)

    def scrape(self, metric: str) -> list[float]:
        """Returns the values of a metric, one for each outbox."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{metric}{{")]

    def stash(self, label: str, records: int) -> None:
        settings = self.settings()[label]
        with closing(settings.dialect.create().stash_connection()) as connection:
            for _ in range(records):
                number = self.written[label]
                record = Record(f"{self.topic}-{label}", f"key-{number % KEYS}", str(number))
                Stasher(settings.outbox, settings.dialect.driver).stash(connection, record)
                self.written[label] += 1
            connection.commit()

    def poison(self, label: str) -> None:
        """Commits a record that no broker takes."""
        settings = self.settings()[label]
        with closing(settings.dialect.create().stash_connection()) as connection:
            record = Record("topic", "poison", "")
            Stasher(settings.outbox, settings.dialect.driver).stash(connection, record)
            connection.execute(f"UPDATE {settings.outbox} SET kafka_topic = 'no topic'")
            connection.commit()

    def arrived(self, label: str) -> int:
        return sum(ends(self.admin, f"{self.topic}-{label}", 2).values())

    def wait_for(self, *labels: str) -> None:
        until(
            lambda: all(self.arrived(label) >= self.written[label] for label in labels),
            f"{', '.join(labels)} arrive",
            60,
        )


@pytest.fixture
def tenants(tmp_path: Path, kafka_broker: Kafka, topic: str, postgres_dsn: str) -> Iterator[Tenants]:
    made = Tenants(tmp_path, kafka_broker, topic, {"pg": ("postgres", postgres_dsn, COUNT)})
    made.create()
    yield made
    for process in made.processes:
        process.close()


def test_outboxes_that_rest_are_led_and_one_that_fails_holds_up_no_other(
    tenants: Tenants, postgres_dsn: str
) -> None:
    tenants.port = free_port()
    process = tenants.begin("one")
    until(lambda: process.count(QUIET) >= COUNT, "all rest", 60)
    until(lambda: tenants.counts() == [COUNT], "they are heard", 60)
    until(lambda: tenants.scrape("outbox_leader") == [1] * COUNT, "all are led, as the alarms see it", 60)
    until(lambda: tenants.scrape("outbox_database_up") == [1] * COUNT, "the database answers", 60)
    locked, dropped, poisoned, *others = tenants.sections
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(f"LOCK TABLE {tenants.sections[locked]['outboxTable']} IN ACCESS EXCLUSIVE MODE")
        with psycopg.connect(postgres_dsn, autocommit=True) as another:
            another.execute(f"DROP TABLE {tenants.sections[dropped]['outboxTable']}")
        process.wait_for(f"one/{dropped}] not harvested, trying again", 60)
        tenants.poison(poisoned)
        tenants.stash(poisoned, 10)
        for label in others:
            tenants.stash(label, 10)
        tenants.wait_for(*others, poisoned)
    tenants.stash(locked, 10)
    tenants.wait_for(locked)
    del tenants.sections[dropped]
    assert tenants.audit() == 0
    process.leave()


def test_an_outbox_comes_to_rest_with_few_sessions(
    tmp_path: Path, kafka_broker: Kafka, topic: str, postgres_dsn: str
) -> None:
    count = 12
    tenants = Tenants(tmp_path, kafka_broker, topic, {"pg": ("postgres", postgres_dsn, count)})
    tenants.create()

    def opened(name: str) -> int:
        """Starts a process; returns how many sessions have begun until all rest in it: four begin to lead."""
        before = sessions(postgres_dsn)
        process = tenants.begin(name)
        until(lambda: process.count(QUIET) >= count, "all rest", 120)
        return sessions(postgres_dsn) - before

    try:
        assert opened("first") <= 4 * count + 5
        # It leads each once, and the other process learns that; neither connects to rest.
        assert opened("second") <= 4 * count + 5
    finally:
        for process in tenants.processes:
            process.close()


def sessions(dsn: str) -> int:
    """Returns how many sessions have begun in a database, which counts them a moment later."""
    sleep(2.0)
    query = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.slow
def test_what_a_process_led_that_rests_is_led_by_others_after_its_death(tenants: Tenants) -> None:
    one = tenants.begin("one")
    until(lambda: one.count(QUIET) >= COUNT, "all rest", 60)
    two = tenants.begin("two")
    until(lambda: two.count(QUIET) >= COUNT, "all rest in the other", 60)
    assert sum(tenants.counts()) == COUNT
    two.kill()
    until(lambda: tenants.leaders() == dict.fromkeys(tenants.sections, "one"), "all are led", 120, pause=0.5)
    for label in tenants.sections:
        tenants.stash(label, 10)
    tenants.wait_for(*tenants.sections)
    tenants.wait_until_empty(60)
    assert tenants.audit() == 0
    assert tenants.run("health", "--patience", "60s").returncode == 0
    one.leave()


@pytest.mark.slow
def test_outboxes_of_exactly_once_delivery_that_wake_lose_and_repeat_nothing(tenants: Tenants) -> None:
    process = tenants.begin("one", delivery="exactly-once")
    for number in range(5):
        until(lambda: process.count(QUIET) >= COUNT, "all rest", 120)  # noqa: B023 - waited for here
        for label in tenants.sections:
            tenants.stash(label, 200)
        if number < 4:
            sleep(0.2 + 0.3 * number)
            process.kill()
            process = tenants.begin(f"after {number}", delivery="exactly-once")
    tenants.wait_until_empty(60)
    until(lambda: process.count(QUIET) >= 2 * COUNT, "all rest again", 60)
    assert tenants.audit() == 0
    process.leave()
