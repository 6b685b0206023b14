"""The log of a harvester whose database is away: few lines, each of them JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_servers.services import Kafka, PostgresServer

from .harvesters import Fleet, Harvester, until
from .shop import Shop

AWAY_SECONDS = 6.0
LANES = 8
MOST_LINES = 25
"""What is told of an outage, from every statement that has something to say; lanes alone fail more often."""


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def shop(postgres: PostgresServer, kafka_broker: Kafka, topic: str) -> Shop:
    shop = Shop(postgres.create_database("shop"), kafka_broker, topic)
    shop.open()
    return shop


def start(fleet: Fleet, shop: Shop) -> Harvester:
    harvest = {
        "name": "one",
        "engine": "inline",
        "elector": "static",
        "dataSource": shop.dsn,
        "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
        "limits": {"sendConcurrency": LANES},
    }
    return fleet.launch("one", json.dumps({"harvest": harvest, "logging": {"format": "json"}}))


def lines(log: Path) -> list[dict[str, Any]]:
    complete = log.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in complete.splitlines()]


def test_a_database_that_is_away_is_a_few_lines(postgres: PostgresServer, shop: Shop, fleet: Fleet) -> None:
    harvester = start(fleet, shop)
    harvester.wait_for("leader acquired", 60)
    shop.stash(100, keys=10)
    shop.wait_until_harvested(60)
    before = len(lines(harvester.log))
    postgres.stop("immediate")
    until(lambda: any("error" in line for line in lines(harvester.log)[before:]), "a lane fails", 120)
    time.sleep(AWAY_SECONDS)
    told = lines(harvester.log)[before:]
    postgres.start()
    shop.stash(100, keys=10, start=101)
    shop.wait_until_harvested(60)
    assert 0 < len(told) <= MOST_LINES
    failed = [line for line in told if "error" in line]
    assert failed
    for line in failed:
        assert (line["outbox"], line["harvester"], line["error_type"]) == ("outbox", "one", "DriverError")
        assert line["lane"] in range(LANES)
        assert line["token"] == failed[0]["token"]
    acquired = next(line for line in lines(harvester.log) if line.get("event") == "LeaderAcquired")
    assert acquired["token"] == failed[0]["token"]
