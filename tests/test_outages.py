"""Database, broker and network fail while records flow, and the harvester continues.

``test_faults`` does the same, and more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from outbox_servers.services import KafkaBroker, PostgresServer
from psycopg.conninfo import make_conninfo

from .faults.proxy import Proxy
from .harvesters import Fleet, Harvester, Measure
from .shop import Shop
from .test_takeover import NELI


class Servers:
    """A database and a broker for one test alone, which a harvester reaches through proxies."""

    def __init__(self) -> None:
        self.postgres = PostgresServer()
        self.to_postgres = Proxy(lambda: self.postgres.port)
        self.to_broker = Proxy(lambda: self.broker.proxied_port)
        self.broker = KafkaBroker(proxy_port=self.to_broker.port)

    def cut(self) -> None:
        """Resets all connections of the harvester."""
        assert self.to_postgres.cut()
        assert self.to_broker.cut()

    def close(self) -> None:
        for each in (self.to_postgres, self.to_broker, self.broker, self.postgres):
            each.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    try:
        servers.postgres.start()
        servers.broker.start()
        yield servers
    finally:
        servers.close()


@pytest.fixture
def shop(servers: Servers, topic: str) -> Shop:
    shop = Shop(servers.postgres.create_database("shop"), servers.broker, topic)
    shop.open()
    return shop


@pytest.fixture
def harvester(servers: Servers, shop: Shop, fleet: Fleet, engine: str, delivery: str) -> Harvester:
    harvester = fleet.start(
        "a",
        engine=engine,
        delivery=delivery,
        elector=NELI,
        baseKafkaConfig={"bootstrap.servers": f"127.0.0.1:{servers.to_broker.port}"},
        dataSource=make_conninfo(shop.database.named("a"), port=servers.to_postgres.port),
    )
    harvester.wait_for("leader acquired", 150)
    return harvester


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"])
@pytest.mark.parametrize(
    "engine", ["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_database_and_broker_crash_and_come_back(
    servers: Servers, shop: Shop, harvester: Harvester, delivery: str, measure: Measure
) -> None:
    def away(stop: Callable[[], object], start: Callable[[], object]) -> Callable[[], None]:
        def away() -> None:
            stop()
            shop.wait_for_sales(200)
            start()

        return away

    faults: dict[str, Callable[[], object]] = {
        "crash of the database": lambda: servers.postgres.restart("immediate"),
        "cut of all connections": servers.cut,
        "pause of the broker": away(servers.broker.pause, servers.broker.resume),
        "crash of the broker": away(servers.broker.kill, servers.broker.start),
    }
    with shop.selling():
        for fault, strike in faults.items():
            shop.wait_for_sales(200)
            strike()
            over_at = time.monotonic()
            shop.wait_for_sales(100)
            shop.calm.set()
            shop.wait_until_harvested(120)
            measure(f"end of the {fault} to an empty outbox", time.monotonic() - over_at)
            shop.calm.clear()
    shop.wait_until_harvested(120)

    assert harvester.running
    result = shop.audit()
    assert result.good, result.summary()
    if delivery == "exactly-once":
        assert result.repeated == 0
    harvester.leave()
