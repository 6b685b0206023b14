"""On Spark: the database and the broker crash and restart while records flow, and the harvester continues.

``test_faults`` does the same, and more, with the inline engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from outbox_servers.services import KafkaBroker, PostgresServer

from .harvesters import Fleet, Measure
from .shop import Shop

SESSION = 6.0
NELI = {"driver": "neli-kafka", "sessionTimeout": f"{SESSION:g}s"}


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def shop(postgres: PostgresServer, broker: KafkaBroker, topic: str) -> Shop:
    """A shop on servers for this test alone."""
    shop = Shop(postgres.create_database("shop"), broker, topic)
    shop.open()
    return shop


@pytest.fixture
def servers(postgres: PostgresServer, broker: KafkaBroker) -> tuple[PostgresServer, KafkaBroker]:
    """The servers of ``shop``."""
    return postgres, broker


@pytest.mark.spark
def test_database_and_broker_crash_and_come_back(
    servers: tuple[PostgresServer, KafkaBroker], shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    postgres, broker = servers
    harvester = fleet.start("a", engine="spark", elector=NELI)
    harvester.wait_for("leader acquired", 150)
    with shop.selling():
        shop.wait_for_sales(300)
        postgres.restart("immediate")
        database_at = time.time()
        shop.wait_for_sales(300)
        broker.kill()
        shop.wait_for_sales(300)
        broker.start()
        broker_at = time.time()
        shop.wait_for_sales(300)
    left = shop.wait_until_harvested(60)

    assert harvester.running
    result = shop.audit()
    assert result.good, result.summary()
    deliveries = shop.deliveries()
    for what, at in ("database", database_at), ("broker", broker_at):
        after = next(each for each in deliveries if each >= at)
        measure(f"{what} back to first delivery", after - at)
    measure("last sale to empty outbox", left)
    harvester.leave()
