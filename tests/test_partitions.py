"""Partitions are added amid a backlog, writes and a slow consumer: in what order does it read each key?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    NewPartitions,
)
from outbox_audit import SEQUENCE_HEADER
from outbox_core.operations import Verb

from .databases import MySql
from .harvesters import Fleet, Harvester, Measure, until
from .shop import PARTITIONS, OpenShop, Shop

MORE = 16
BACKLOG = 12_000
"""Records that wait for the consumer."""
KEYS = 50
BATCH, BATCH_SECONDS = 50, 0.05
NEW_FIRST = 200
"""Records of new partitions that the consumer reads before it goes on with the others."""
OUTBOX = str(Path(sys.executable).with_name("outbox"))

both = pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])


class Reader:
    """A slow consumer: what it has read of each key, in the order in which it has read it.

    There is no order between partitions: it begins with new ones, as soon as it knows of them.
    """

    def __init__(self, shop: Shop, group: str) -> None:
        self.numbers: dict[str, list[int]] = {}
        self.partitions: set[int] = set()
        self.read = 0
        self._from_new = 0
        self._bootstrap, self._topic, self._group = shop.kafka.bootstrap, shop.topic, group
        self._ending = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def inversions(self) -> int:
        """Returns how many records were read for the first time behind a later one of their key."""
        count = 0
        for numbers in self.numbers.values():
            newest = 0
            for number in dict.fromkeys(numbers):
                count += number < newest
                newest = max(newest, number)
        return count

    def _run(self) -> None:
        own = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 1000,
        }
        consumer = Consumer(own)
        consumer.subscribe([self._topic])
        while not self._ending.is_set():
            places = consumer.assignment()
            old = [each for each in places if each.partition < PARTITIONS]
            new_first = self._from_new < NEW_FIRST and len(old) < len(places)
            (consumer.pause if new_first else consumer.resume)(old)
            messages = [each for each in consumer.consume(BATCH, 0.05) if each.error() is None]
            for each in messages:
                number = int(dict(each.headers() or [])[SEQUENCE_HEADER] or b"0")
                self.numbers.setdefault((each.key() or b"").decode(), []).append(number)
                self.partitions.add(each.partition() or 0)
                self._from_new += (each.partition() or 0) >= PARTITIONS
            if messages:
                consumer.commit(asynchronous=False)
                self.read += len(messages)
                time.sleep(BATCH_SECONDS)
        consumer.close()


@pytest.fixture(params=["postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, open_shop: OpenShop) -> Shop:
    kafka = request.getfixturevalue("kafka_broker")
    if request.param == "postgres":
        return open_shop(kafka)
    shop = Shop(MySql(request.getfixturevalue("mariadb_dsn")), kafka, request.getfixturevalue("topic"))
    shop.open()
    return shop


@pytest.fixture
def group(topic: str) -> str:
    return f"{topic}-readers"


def command(shop: Shop, harvester: Harvester, *more: str) -> list[str]:
    file = str(harvester.log.with_suffix(".yaml"))
    return [OUTBOX, "partitions", "add", shop.topic, str(MORE), "-f", file, "--yes", "--json", *more]


def added(shop: Shop, harvester: Harvester, *more: str) -> Any:
    arguments = command(shop, harvester, *more)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def partitions(shop: Shop) -> int:
    return len(shop.admin.list_topics(shop.topic, timeout=20).topics[shop.topic].partitions)


@contextmanager
def selling(shop: Shop, fleet: Fleet, group: str, **harvest: Any) -> Iterator[tuple[Harvester, Reader]]:
    """A harvester under writes, and a consumer with a backlog, until the block ends and all is read."""
    harvester = fleet.start("leader", **harvest)
    shop.stash(BACKLOG, keys=KEYS)
    shop.wait_until_harvested(60)
    with Reader(shop, group) as reader:
        until(lambda: reader.read > BACKLOG / 10, "the consumer reads", 60)
        with shop.selling():
            shop.wait_for_sales(300)
            yield harvester, reader
            shop.wait_for_sales(200)
        shop.wait_until_harvested(60)
        sold = shop.sold()
        until(
            lambda: sum(len(set(each)) for each in reader.numbers.values()) >= len(sold), "all is read", 120
        )
    read = {(key, number) for key, numbers in reader.numbers.items() for number in numbers}
    assert read == sold


@pytest.mark.slow
@both
def test_a_slow_consumer_reads_each_key_in_order(
    shop: Shop, fleet: Fleet, group: str, delivery: str, measure: Measure
) -> None:
    with selling(shop, fleet, group, delivery=delivery) as (harvester, reader):
        lag = shop.count() - reader.read
        done = added(shop, harvester, "--group", group)
        measure("the topic was paused", done["paused_seconds"])
        measure("records that the consumer had to read then", lag)
    assert lag > BACKLOG / 4
    assert (done["before"], done["partitions"], done["unnamed"]) == (PARTITIONS, MORE, [])
    assert reader.inversions() == 0
    assert max(reader.partitions) >= PARTITIONS
    assert not harvester.find("partitions instead of")
    status = harvester.outbox("status")
    assert status["pauses"] == []
    assert sum(lane["repartitioned"] for lane in status["lanes"]) == 0
    verbs = [each["verb"] for each in harvester.outbox("journal")["entries"]]
    assert verbs == [Verb.RESUME, Verb.ADD_PARTITIONS, Verb.PAUSE]


@pytest.mark.slow
@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
@both
def test_without_the_pause_keys_are_read_out_of_order_and_an_alarm_tells(
    shop: Shop, fleet: Fleet, group: str, delivery: str
) -> None:
    soon = {"topic.metadata.refresh.interval.ms": 1000}
    with selling(shop, fleet, group, delivery=delivery, producerKafkaConfig=soon) as (harvester, reader):
        shop.admin.create_partitions([NewPartitions(shop.topic, MORE)])[shop.topic].result(60)
        harvester.wait_for("partitions instead of", 90)
    assert reader.inversions() > 0
    lanes = harvester.outbox("status")["lanes"]
    assert sum(lane["repartitioned"] for lane in lanes) > 0


@pytest.mark.slow
@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
@both
def test_the_command_is_killed_and_repeated(shop: Shop, fleet: Fleet, group: str, delivery: str) -> None:
    with selling(shop, fleet, group, delivery=delivery) as (harvester, reader):
        killed = subprocess.Popen(command(shop, harvester, "--group", group), stderr=subprocess.DEVNULL)
        until(lambda: harvester.outbox("status")["pauses"], "it is paused", 60)
        time.sleep(1)
        killed.kill()
        killed.wait()
        assert partitions(shop) == PARTITIONS
        (paused,) = harvester.outbox("status")["pauses"]
        assert paused["reason"] == f"'outbox partitions add {shop.topic} {MORE}'"
        done = added(shop, harvester, "--group", group)
        assert done["before"] == PARTITIONS
    assert partitions(shop) == MORE
    assert reader.inversions() == 0
    assert max(reader.partitions) >= PARTITIONS


@pytest.mark.slow
@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_a_leader_that_is_frozen_meanwhile_learns_of_the_partitions(
    shop: Shop, fleet: Fleet, group: str
) -> None:
    with selling(shop, fleet, group, delivery="at-least-once") as (harvester, reader):
        harvester.send(signal.SIGSTOP)
        try:
            until(lambda: all(lane["silent"] for lane in harvester.outbox("status")["lanes"]), "silence", 60)
            added(shop, harvester, "--group", group)
        finally:
            harvester.send(signal.SIGCONT)
        shop.wait_for_sales(600)
    assert reader.inversions() == 0
    assert max(reader.partitions) >= PARTITIONS
