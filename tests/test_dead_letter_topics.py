"""Dead letters in topics: none is lost with its harvester, and no topic of theirs holds anything up."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    NewTopic,
)
from outbox_servers.services import Kafka, KafkaBroker

from .databases import MySql, Postgres
from .harvesters import Fleet, Harvester, until
from .shop import PARTITIONS, Shop

SMALL = 1000
"""Bytes of the largest message that the topic of records takes."""
LARGE = secrets.token_hex(2500)
"""A value that is too large even when it is compressed."""


def opened(database: Postgres | MySql, kafka: Kafka, topic: str) -> Shop:
    shop = Shop(database, kafka, topic)
    shop.open(SMALL)
    return shop


@pytest.fixture
def shop(postgres_dsn: str, kafka_broker: Kafka, topic: str) -> Shop:
    return opened(Postgres(postgres_dsn), kafka_broker, topic)


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that this module's tests may freeze."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(params=["postgres", "mysql"])
def shop_on_broker(
    request: pytest.FixtureRequest, broker: KafkaBroker, topic: str, tmp_path: Path
) -> Iterator[tuple[Shop, Fleet]]:
    dsn = request.getfixturevalue(f"{request.param}_dsn")
    shop = opened(MySql(dsn) if request.param == "mysql" else Postgres(dsn), broker, topic)
    fleet = Fleet(tmp_path, shop)
    yield shop, fleet
    fleet.close()


def letters_topic(shop: Shop, failure: str = "{class}") -> str:
    return f"{shop.topic}.dead.{failure}"


def create(shop: Shop, failure: str, **config: str) -> None:
    name = letters_topic(shop, failure)
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    shop.admin.create_topics([NewTopic(name, PARTITIONS, 1, config=dotted)])[name].result(60)


def sell(shop: Shop, *sales: tuple[str, int, str], topic: str | None = None) -> None:
    with closing(shop.database.connect()) as connection:
        for customer, number, value in sales:
            shop.sell(connection, customer, number, value, topic=topic)
        connection.commit()


def start(fleet: Fleet, shop: Shop, name: str, **harvest: Any) -> Harvester:
    failures = {"topic": letters_topic(shop), "firstBackoff": "20ms"}
    return fleet.start(name, failures=failures, **harvest)


def parked(harvester: Harvester) -> Any:
    return harvester.outbox("parked", "list")["letters"]


def copies(shop: Shop, failure: str) -> list[Message]:
    return shop.messages(letters_topic(shop, failure))


def headers(message: Message) -> dict[str, str]:
    found: dict[str, Any] = dict(message.headers() or ())
    return {name: value.decode() for name, value in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_harvester_that_is_killed_before_it_copies_leaves_that_to_its_successor(
    shop_on_broker: tuple[Shop, Fleet], broker: KafkaBroker, delivery: str
) -> None:
    shop, fleet = shop_on_broker
    create(shop, "not-permitted")
    first = start(fleet, shop, "first", delivery=delivery, topics=[shop.topic])
    sell(shop, ("fine", 1, "v"))
    until(lambda: shop.numbers() == {"fine": [1]}, "the lanes work", 120)
    broker.pause()
    try:
        sell(shop, ("poison", 1, LARGE), topic="elsewhere")
        sell(shop, ("poison", 2, "behind"))
        until(lambda: parked(first), "the key is parked", 120)
        first.kill()
    finally:
        broker.resume()
    assert copies(shop, "not-permitted") == []

    second = start(fleet, shop, "second", delivery=delivery, topics=[shop.topic])
    copy = until(lambda: copies(shop, "not-permitted"), "the successor copies it", 120)[0]
    [letter] = parked(second)
    assert (copy.key(), copy.value()) == (b"poison", LARGE.encode())
    about = headers(copy)
    assert about.pop("outbox-id").endswith(f":{letter['id']}")
    assert datetime.fromisoformat(about.pop("dead-letter-since")) == datetime.fromisoformat(letter["since"])
    assert {name: about[name] for name in about if name.startswith("dead-letter")} == {
        "dead-letter-class": "not-permitted",
        "dead-letter-topic": "elsewhere",
        "dead-letter-attempts": str(letter["attempts"]),
        "dead-letter-reason": letter["reason"],
    }
    second.outbox("parked", "skip", "poison", "--yes")
    until(lambda: shop.numbers().get("poison") == [2], "the key flows", 60)
    second.leave()


def test_topics_of_dead_letters_that_refuse_or_are_too_small_hold_nothing_up(
    shop: Shop, fleet: Fleet
) -> None:
    create(shop, "too-large", max_message_bytes=str(SMALL))
    create(shop, "not-permitted", max_message_bytes="50")  # not even without a value
    harvester = start(fleet, shop, "only", topics=[shop.topic])
    sell(shop, ("poison", 1, LARGE))
    sell(shop, ("lost-1", 1, "v"), ("lost-2", 1, "v"), topic="elsewhere")
    refused = f"not in the topic '{letters_topic(shop, 'not-permitted')}'"
    assert "MSG_SIZE_TOO_LARGE" in harvester.wait_for(refused, 120).text
    copy = until(lambda: copies(shop, "too-large"), "it comes without its value", 60)[0]
    assert (copy.key(), copy.value()) == (b"poison", None)
    assert headers(copy)["dead-letter-without"] == "value, headers"
    until(lambda: {each["key"] for each in parked(harvester)} == {"poison", "lost-1", "lost-2"}, "parked", 60)

    sell(shop, ("fine", 1, "v"))
    until(lambda: shop.numbers() == {"fine": [1]}, "other keys flow", 60)
    sell(shop, ("lost-3", 1, "v"), topic="elsewhere")
    sell(shop, ("poison-2", 1, LARGE))
    until(lambda: len(copies(shop, "too-large")) > 1, "the other topic gets what is parked later", 60)
    harvester.leave()
    assert harvester.count("not in the topic") == 1
    assert copies(shop, "not-permitted") == []
