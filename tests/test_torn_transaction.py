"""Exactly-once delivery where Kafka has committed one part of a transaction, and aborted the other."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer
from outbox_api import Batch
from outbox_core.delivery.checkpoint import encode
from outbox_kafka.trace import HEADER, Trace

from .harvesters import Fleet, until
from .shop import OpenShop, Shop
from .switchboard import recovered

KEYS = 20
RECORDS = 400
SETTINGS: dict[str, Any] = {"delivery": "exactly-once", "limits": {"sendConcurrency": 1}}


@pytest.fixture
def shop(request: pytest.FixtureRequest, open_shop: OpenShop) -> Shop:
    return open_shop(request.getfixturevalue("kafka_broker"))


class Torn:
    """A transaction of a lane that nobody runs.

    Args:
        shop: Whose rows it publishes.
    """

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        note = "SELECT sender, location FROM outbox_fence WHERE transacting > 0"
        rows = (
            "SELECT id, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values "
            "FROM outbox ORDER BY id"
        )
        with shop.connect() as connection:
            [(self._sender, place)] = connection.execute(note).fetchall()
            self._rows = connection.execute(rows).fetchall()
            [(newest,)] = connection.execute("SELECT max(create_time)::text FROM outbox").fetchall()
        _, self._topic, self._partition = place.split("/")
        self._trace = Trace(int(time.time() * 1000), {})
        self._checkpoint = encode([], Batch.of([row[0] for row in self._rows], newest))

    def tear(self, committed: set[str], *, checkpoint: bool) -> int:
        """Commits the records of these keys, and aborts the others; returns how many it has committed."""
        ours = [row for row in self._rows if row[2] in committed]
        others = [row for row in self._rows if row[2] not in committed]
        self._transaction("committed", ours, carries=checkpoint).commit_transaction(20)
        self._transaction("aborted", others, carries=not checkpoint).abort_transaction(20)
        return len(ours)

    def _transaction(self, name: str, rows: list[tuple[Any, ...]], *, carries: bool) -> Producer:
        servers = self._shop.kafka.bootstrap
        names = {"transactional.id": f"{self._sender}.{name}", "partitioner": "consistent"}
        producer = Producer({"bootstrap.servers": servers, **names})
        producer.init_transactions(20)
        producer.begin_transaction()
        for _, topic, key, value, header_names, header_values in rows:
            headers = list(zip(header_names or (), header_values or (), strict=True))
            producer.produce(topic, value, key, timestamp=self._trace.time_ms, headers=headers)
        if carries:
            carried: dict[str, Any] = {HEADER: self._trace.text()}
            key, place = f"outbox.{self._sender}", int(self._partition)
            producer.produce(self._topic, self._checkpoint, key, place, headers=carried)
        producer.flush(20)
        return producer


@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint committed", "checkpoint aborted"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        pytest.param({"limits": {"sendConcurrency": 3}}, marks=pytest.mark.slow),
        pytest.param({"delivery": "at-least-once"}, marks=pytest.mark.slow),
    ],
    ids=["same", "more lanes", "other mode"],
)
def test_a_torn_transaction_is_mended(
    shop: Shop, fleet: Fleet, *, checkpoint: bool, change: dict[str, Any]
) -> None:
    shop.stash(10, keys=KEYS)
    first = fleet.start("first", **SETTINGS)
    first.wait_for("leader acquired", 60)
    shop.wait_until_harvested(60)
    first.kill()
    shop.stash(RECORDS, keys=KEYS, start=11)
    torn = Torn(shop)
    with shop.connect() as connection:
        keys = {row[0] for row in connection.execute("SELECT DISTINCT kafka_key FROM outbox").fetchall()}
    committed = torn.tear(set(sorted(keys)[::2]), checkpoint=checkpoint)
    assert 0 < committed < RECORDS
    second = fleet.start("second", **{**SETTINGS, **change})
    shop.wait_until_harvested(60)
    until(lambda: recovered(second) == committed, "the log says what was found", 60)
    assert any("as the broker has torn it" in line.text for line in second.lines())
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0
