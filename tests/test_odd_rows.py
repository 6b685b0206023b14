"""Rows with everything that their columns may contain: each is delivered or parked, and stops no other."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from .harvesters import Fleet, until
from .shop import INSERT, Shop

TEXTS = (
    *("", " ", ".", "..", "/", "a b", "ü", "\U0001f600", "\u202e", "\x01", "\x7f", "\ufeff", "%s", "{0}"),
    *("'", "\\", "\r\n", "outbox.checkpoints", "x.neli", "__consumer_offsets"),
)
"""For names of topics, keys, values and headers."""

ROWS = 300
"""Odd rows of a test, each with a key of its own."""


def odd_rows(topic: str, chance: random.Random) -> list[tuple[object, ...]]:
    """Returns rows in the order of the columns of an insert."""
    rows: list[tuple[object, ...]] = []
    for number in range(ROWS):
        name = topic if number % 2 else chance.choice(TEXTS)
        headers = chance.choices(TEXTS, k=chance.randrange(4))
        values = chance.choices(TEXTS, k=len(headers) if number % 9 else len(headers) + 1)
        value = chance.choice([None, *TEXTS, "v" * 9000])
        rows.append((name, f"{chance.choice(TEXTS)[:80]}{number}", value, headers, values))
    return rows


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_odd_rows_are_delivered_or_parked_and_stop_no_other(shop: Shop, fleet: Fleet, delivery: str) -> None:
    seed = random.randrange(1_000_000)
    odd, chance = odd_rows(shop.topic, random.Random(seed)), random.Random(seed + 1)
    sound: list[tuple[object, ...]] = [
        (shop.topic, f"sound {number % 50}", f"s{number}", [], []) for number in range(500)
    ]
    mixed = sorted([*odd, *sound], key=lambda _: chance.random())
    with shop.connect() as connection:
        for row in mixed:
            connection.execute(INSERT, row)
    harvester = fleet.start("only", delivery=delivery)

    def waiting() -> int:
        with shop.connect() as connection:
            [(left,)] = connection.execute(
                "SELECT count(*) FROM outbox o WHERE NOT EXISTS"
                " (SELECT 1 FROM outbox_dead_letters d WHERE d.kafka_key = o.kafka_key)"
            )
        return int(left)

    until(lambda: not waiting(), f"all is delivered or parked (seed {seed})", 120)
    began = time.monotonic()
    with shop.connect() as connection:
        connection.execute(INSERT, (shop.topic, "at last", "v", [], []))
    until(lambda: not waiting(), "it flows", 60)
    assert time.monotonic() - began < 10
    arrived = Counter((message.value() or b"").decode() for message in shop.messages())
    assert {row[2] for row in sound} <= arrived.keys(), seed
    assert not harvester.find("Traceback"), seed
    assert harvester.running
