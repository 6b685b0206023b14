"""Runs of a key: several of its records in flight, from the outbox to the topic."""

from __future__ import annotations

import random
import secrets
import time
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from outbox_api import Record
from outbox_audit import SEQUENCE_HEADER

from .harvesters import Fleet, Measure, until
from .shop import OpenShop, Shop

RUN = 1000
"""As many records of a key are in flight by default."""
LARGEST = 4000
"""Bytes of the largest message that the topic takes, and of the largest batch."""
LARGE = secrets.token_hex(5000)
"""A value that is too large even when it is compressed."""


strict = pytest.mark.parametrize("shop", [LARGEST], ids=["small messages"], indirect=True)


@pytest.fixture
def shop(request: pytest.FixtureRequest, open_shop: OpenShop) -> Shop:
    return open_shop(request.getfixturevalue("kafka_broker"), getattr(request, "param", None))


def zipf(records: int, keys: int, seed: int = 1) -> list[str]:
    """Returns keys of which the first is in a quarter of the records, or one key."""
    weights = [1 / rank for rank in range(1, keys + 1)]
    return [f"key-{each}" for each in random.Random(seed).choices(range(keys), weights, k=records)]


def sell(shop: Shop, keys: list[str], refused: frozenset[int] = frozenset()) -> None:
    """Writes a sale for each key, numbered by key, in one transaction; some are too large for the topic."""
    numbers: dict[str, int] = {}
    sales, records = [], []
    for at, key in enumerate(keys):
        number = numbers[key] = numbers.get(key, 0) + 1
        value = LARGE if at in refused else f"sale {number}"
        sales.append((key, number))
        records.append(Record(shop.topic, key, value, ((SEQUENCE_HEADER, str(number)),)))
    connection = shop.database.connect()
    shop.database.sell(connection, sales, records)
    connection.commit()
    connection.close()


def has_fewer(shop: Shop, records: int) -> bool:
    return shop.waiting() < records


def check_repeats(numbers: list[int]) -> tuple[int, int]:
    """Checks that repeats are in order, and followed again; returns how many there are, and the deepest."""
    newest = deepest = 0
    before = 0
    for number in numbers:
        assert number <= newest + 1, f"{number} behind {newest}: one is missing"
        assert number in (before + 1, number if number <= newest and number <= before else -1), numbers
        deepest = max(deepest, before - number + 1 if number <= before else 0)
        newest, before = max(newest, number), number
    assert numbers[-1] == newest, "the last record is a stale one"
    return len(numbers) - newest, deepest


@pytest.mark.slow
@pytest.mark.parametrize("keys", [1, 100])
def test_leaders_that_are_killed_amid_runs(shop: Shop, fleet: Fleet, measure: Measure, keys: int) -> None:
    sell(shop, zipf(80_000, keys))
    chance, kills = random.Random(7), 0
    while kills < 6:
        fewer = partial(has_fewer, shop, shop.waiting() - 2000)
        harvester = fleet.start(f"leader-{kills}", limits={"sendConcurrency": 1})
        until(fewer, "runs are sent", 120)
        time.sleep(chance.uniform(0.0, 0.3))
        harvester.kill()
        kills += 1
        if not shop.waiting():
            break
    assert kills >= 3
    fleet.start("last", limits={"sendConcurrency": 1})
    shop.wait_until_harvested(120)
    result = shop.audit()
    assert result.lost == result.foreign == result.overtaken == 0, result.summary()
    found = [check_repeats(numbers) for numbers in shop.numbers().values()]
    repeats, deepest = sum(each for each, _ in found), max(depth for _, depth in found)
    measure(f"repeated with {keys} keys, {kills} kills", repeats)
    measure(f"the deepest step back with {keys} keys", deepest)
    assert deepest <= RUN
    assert repeats <= kills * keys * RUN


@strict
@pytest.mark.parametrize("keys", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("by", ["broker", "client"])
def test_records_that_are_refused_amid_runs(
    shop: Shop, fleet: Fleet, measure: Measure, keys: int, by: str
) -> None:
    """Their keys are parked, and all others are delivered."""
    of_records = zipf(30_000, keys)
    poisoned = {f"key-{each}" for each in range(1, keys, 10)}
    refused: dict[str, int] = {}
    for at, key in enumerate(of_records):
        if key in poisoned and at > 1000:
            refused.setdefault(key, at)
    sell(shop, of_records, frozenset(refused.values()))
    before = {key: of_records[:at].count(key) for key, at in refused.items()}
    if by == "client":
        shop.allow(1_000_000)
    own: dict[str, Any] = {"producerKafkaConfig": {"message.max.bytes": LARGEST}} if by == "client" else {}
    harvester = fleet.start("only", limits={"sendConcurrency": 1}, **own)
    healthy = sum(key not in poisoned for key in of_records)
    began = time.monotonic()

    def done() -> bool:
        with shop.connect() as connection:
            found = connection.execute("SELECT DISTINCT kafka_key FROM outbox").fetchall()
        return {key for (key,) in found} <= poisoned

    until(done, "all others are delivered", 120)
    measure("until the others were delivered", time.monotonic() - began)
    until(lambda: len(harvester.outbox("parked", "list")["letters"]) == len(refused), "all are parked", 120)
    measure("until all were parked", time.monotonic() - began)
    numbers = shop.numbers()
    for key, of_key in numbers.items():
        check_repeats(of_key)
        assert max(of_key) == before.get(key, of_records.count(key))
    assert sum(len(set(of_key)) for key, of_key in numbers.items() if key not in poisoned) == healthy
    times = sorted(
        (message.timestamp()[1] / 1000)
        for message in shop.messages()
        if (message.key() or b"").decode() not in poisoned
    )
    gaps = sorted((later - earlier for earlier, later in pairwise(times)), reverse=True)
    measure("the longest pause of the others", gaps[0])
    measure("the second longest", gaps[1])


@strict
@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1], ids=["the first of a run", "amid a run"])
def test_records_that_are_refused_now_and_then(
    shop: Shop, fleet: Fleet, measure: Measure, place: int
) -> None:
    """A key with many records goes on meanwhile."""
    sell(shop, ["hot"] * 20_000)
    own = {"batch.size": LARGEST * 3 // 4}
    harvester = fleet.start("only", limits={"sendConcurrency": 1}, producerKafkaConfig=own)
    until(lambda: has_fewer(shop, 20_000), "it has begun", 60)
    began, poisoned = time.monotonic(), 0
    while shop.database.fetch("SELECT FROM outbox WHERE kafka_key = 'hot' LIMIT 1"):
        sell(shop, [f"poisoned-{poisoned}"] * 3, frozenset([place]))
        poisoned += 1
        assert time.monotonic() < began + 120, "the hot key does not go on"
        time.sleep(0.5)
    measure(f"20,000 records of a hot key, with {poisoned} refused", time.monotonic() - began)
    until(lambda: len(harvester.outbox("parked", "list")["letters"]) == poisoned, "all are parked", 120)
    numbers = shop.numbers()
    check_repeats(hot := numbers.pop("hot"))
    assert hot[-1] == 20_000
    assert [{*each} for each in numbers.values()] == [{1}] * (poisoned if place else 0)
