"""Large values through a server of S3, in both modes: it is away for a while, and harvesters are killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message
from outbox_audit import SEQUENCE_HEADER
from outbox_claim_check import fetch

from .harvesters import Fleet, Harvester, Measure, until
from .s3 import S3, SECRET
from .shop import Shop

pytestmark = pytest.mark.slow
DELIVERIES = ["at-least-once", "exactly-once"]
LARGEST = len("sale 9")
"""Sales from the tenth on have larger values."""


@pytest.fixture
def s3(topic: str) -> Iterator[S3]:
    server = S3(topic)
    yield server
    server.close()


def settings(s3: S3, delivery: str) -> dict[str, Any]:
    chain = {
        "driver": "claim-check",
        "store": s3.store,
        "storeOptions": s3.options,
        "above": LARGEST,
        "timeout": "5s",
    }
    limits = {"sendConcurrency": 2, "minMetricsInterval": "1s"}
    return {"delivery": delivery, "transform": [chain], "limits": limits}


def values(shop: Shop, s3: S3) -> int:
    """Reads all messages as a consumer does, each of which has its value; returns how many had a claim."""
    messages = shop.messages()
    for message in messages:
        headers: Any = message.headers()
        value = fetch(headers, message.value(), s3.store, **s3.options)
        assert value == f"sale {dict(headers)[SEQUENCE_HEADER].decode()}".encode()
    return len([message for message in messages if claimed(message)])


def claimed(message: Message) -> bool:
    value = message.value() or b""
    if value.startswith(b"sale"):
        return False
    assert json.loads(value)["bytes"] > LARGEST
    return True


def left(shop: Shop) -> set[str]:
    return {key for (key,) in shop.database.fetch("SELECT DISTINCT kafka_key FROM outbox")}


def wait_for_work(shop: Shop) -> None:
    """Waits until some of what waits is delivered."""
    before = shop.waiting()
    until(lambda: not before or shop.waiting() < before, "it is at work", 60)


def stop(harvester: Harvester) -> None:
    """Has a harvester end in order; libraries of stores may log as the process ends."""
    harvester.send(signal.SIGTERM)
    assert harvester.wait(120) == 0
    assert harvester.find("stopped")


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_store_that_is_away_holds_the_keys_that_need_it_and_nothing_is_lost(
    shop: Shop, fleet: Fleet, s3: S3, delivery: str
) -> None:
    s3.refuse()
    shop.stash(9, keys=9)
    harvester = fleet.start("first", **settings(s3, delivery))
    shop.wait_until_harvested(60)
    shop.stash(30, keys=5, start=10)
    harvester.wait_for(f"transform 'claim-check': the store {s3.store} ", 60)
    shop.sell_one()  # another key flows
    until(lambda: s3.store in json.dumps(harvester.outbox("status")), "the status names the store", 60)
    assert left(shop) == {f"key-{number}" for number in range(5)}
    s3.answer()
    shop.wait_until_harvested(120)
    assert not harvester.outbox("parked", "list")["letters"]
    stop(harvester)
    assert SECRET not in harvester.log.read_text()
    assert values(shop, s3) == len(s3.objects()) == 30
    result = shop.audit()
    assert result.good, result.summary()
    if delivery == "exactly-once":
        assert result.repeated == 0


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_killed_harvesters_and_a_store_that_comes_and_goes_lose_nothing(
    shop: Shop, fleet: Fleet, s3: S3, measure: Measure, delivery: str
) -> None:
    def start(name: str) -> Harvester:
        harvester = fleet.start(name, **settings(s3, delivery))
        harvester.wait_for("leader acquired", 60)
        return harvester

    def sell() -> None:
        shop.stash(30, keys=7, start=shop.count() + 1)

    for kill, becomes in enumerate((s3.answer, s3.hang, s3.refuse, s3.answer)):
        sell()
        harvester = start(f"killed-{kill}")
        becomes()
        sell()
        if becomes == s3.answer:
            wait_for_work(shop)
        else:
            harvester.wait_for(f"the store {s3.store} ", 60)
        harvester.kill()
    s3.hang()
    last = start("last")
    last.wait_for(f"the store {s3.store} ", 60)
    sell()
    s3.answer()
    shop.wait_until_harvested(120)
    assert not last.outbox("parked", "list")["letters"]
    stop(last)
    assert not [each.name for each in fleet.harvesters if SECRET in each.log.read_text()]
    result = shop.audit()
    assert result.good, result.summary()
    measure("records that came twice", result.repeated)
    assert values(shop, s3) >= shop.count() - 9
    if delivery == "exactly-once":
        assert result.repeated == 0
