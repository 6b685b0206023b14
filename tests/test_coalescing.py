"""Coalescing on real servers: of a backlog the newest record of each key arrives, whatever is killed."""

from __future__ import annotations

import random
import time
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from outbox_api import Dialect, Seam, find
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Chosen
from outbox_audit import SEQUENCE_HEADER

from .harvesters import Fleet, Measure, until
from .shop import Shop

KEYS = 1000
BACKLOG = 100_000
MORE = 30_000
"""Records that are stashed before each kill."""
KILLS = 4
Sale = tuple[str, int]


def has_fewer(shop: Shop, records: int) -> bool:
    return shop.waiting() < records


def archive_of(shop: Shop) -> Dialect:
    """Returns the dialect of an outbox that keeps what is delivered."""
    driver = find(Seam.DIALECT, "postgres")
    made: Dialect = driver.create(driver.options(data_source=shop.dsn, keep=Keep(for_=86_400.0)))
    return made


def kept(shop: Shop) -> tuple[list[Sale], list[Sale]]:
    """Returns what is kept as delivered, and as superseded."""
    delivered, superseded, after = list[Sale](), list[Sale](), 0
    with closing(archive_of(shop).kept()) as archive:
        while found := archive.find(Chosen(), after, 10_000):
            after = found[-1].position
            for each in found:
                number = int(dict(each.record.headers)[SEQUENCE_HEADER] or 0)
                (superseded if each.superseded else delivered).append((each.record.key, number))
    return delivered, superseded


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_newest_of_each_key_arrives_though_leaders_are_killed(
    shop: Shop, fleet: Fleet, measure: Measure, delivery: str
) -> None:
    archive_of(shop).create()
    settings: dict[str, Any] = {
        "delivery": delivery,
        "coalesce": [f"{shop.topic}*"],
        "limits": {"sendConcurrency": 2, "maxBatchRecords": 500, "minMetricsInterval": "1s"},
        "dialect": {"driver": "postgres", "keep": {"for": "24h"}},
    }
    chance, sold = random.Random(delivery), BACKLOG
    shop.stash(BACKLOG, keys=KEYS)
    for number in range(KILLS):
        before = shop.waiting()
        harvester = fleet.start(f"leader-{number}", **settings)
        harvester.wait_for("leader acquired", 120)
        until(partial(has_fewer, shop, before - MORE // 4), "the backlog shrinks", 60, pause=0.001)
        time.sleep(chance.uniform(0.0, 0.2))
        harvester.kill()
        measure(f"left by leader {number} of {before}", shop.waiting())
        shop.stash(MORE, keys=KEYS, start=sold + 1)
        sold += MORE
    last = fleet.start("last", **settings)
    shop.wait_until_harvested(120)
    last.wait_for("were not sent, as later ones of their keys waited", 60)
    last.leave()

    log = shop.numbers()
    newest = {f"key-{number % KEYS}": number for number in range(sold - KEYS + 1, sold + 1)}
    assert {key: numbers[-1] for key, numbers in log.items()} == newest
    firsts = {key: list(dict.fromkeys(numbers)) for key, numbers in log.items()}
    assert all(one < other for numbers in firsts.values() for one, other in pairwise(numbers))
    repeats = sum(map(len, log.values())) - sum(map(len, firsts.values()))
    assert delivery == "at-least-once" or repeats == 0

    delivered, superseded = kept(shop)
    arrived = {(key, number) for key, numbers in log.items() for number in numbers}
    assert sorted(delivered) == sorted(arrived), "what arrived is kept once"
    assert sorted([*delivered, *superseded]) == sorted(shop.sold()), "and so is all else, as superseded"
    measure("superseded", len(superseded))
    measure("repeated", repeats)
    assert len(superseded) > BACKLOG // 2


def test_topics_that_are_not_named_are_delivered_whole(shop: Shop, fleet: Fleet) -> None:
    other = f"{shop.topic}.whole"
    shop.create_topic(name=other)
    with closing(shop.database.connect()) as connection:
        for number in range(1, 3001):
            shop.sell(connection, f"whole {number % 10}", number, "value", topic=other)
        shop.stash(20_000, keys=10, connection=connection)
        connection.commit()
    fleet.start("a", coalesce=[shop.topic])
    shop.wait_until_harvested(120)
    numbers = shop.numbers(other)
    assert sorted(number for each in numbers.values() for number in each) == list(range(1, 3001))
    assert all(each == sorted(each) for each in numbers.values())
    assert {key: each[-1] for key, each in shop.numbers().items()} == {
        f"key-{number % 10}": number for number in range(19_991, 20_001)
    }
    assert sum(map(len, shop.numbers().values())) < 15_000
