"""Records that cannot be sent: their keys are parked, all others flow, and an operator decides."""

from __future__ import annotations

import os
import secrets
import signal
import time
from functools import partial
from typing import Any

import psutil
import pytest

from .harvesters import Fleet, Harvester, Measure, until
from .shop import INSERT, OpenShop, Shop
from .topics import ends, messages

SMALL = 1000
"""Bytes of the largest message that the topic takes at first."""

LARGE = secrets.token_hex(2500)
"""A value that is too large even when it is compressed."""


@pytest.fixture
def shop(open_shop: OpenShop, kafka_broker: Any) -> Shop:
    return open_shop(kafka_broker, largest_message=SMALL)


def stash(shop: Shop, *records: tuple[str, str], topic: str | None = None) -> None:
    with shop.connect() as connection:
        for key, value in records:
            connection.execute(INSERT, (topic or shop.topic, key, value, [], []))


def arrived(shop: Shop) -> dict[str, list[str]]:
    """Returns key → the values that arrived, in order, without direct repetitions."""
    values: dict[str, list[str]] = {}
    for message in shop.messages():
        key, value = (message.key() or b"").decode(), (message.value() or b"").decode()[:10]
        of_key = values.setdefault(key, [])
        if of_key[-1:] != [value]:
            of_key.append(value)
    return values


def has_arrived(shop: Shop, key: str) -> bool:
    return key in arrived(shop)


def left(shop: Shop) -> list[str]:
    with shop.connect() as connection:
        return [value[:10] for (value,) in connection.execute("SELECT kafka_value FROM outbox ORDER BY id")]


def parked(harvester: Harvester, *arguments: str) -> Any:
    """Runs ``outbox parked`` with the settings of a harvester; returns the letters."""
    return harvester.outbox("parked", *arguments)["letters"]


def wait_for_parked(harvester: Harvester, times: int = 1) -> None:
    words = "are parked after 5 attempts"
    until(lambda: harvester.count(words) >= times, f"{words}, {times} times", 120)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_row_with_the_greatest_id_and_no_time_ends_no_harvester(
    shop: Shop, fleet: Fleet, delivery: str
) -> None:
    with shop.connect() as connection:
        connection.execute(
            "INSERT INTO outbox (id, create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
            " kafka_header_values) VALUES (9223372036854775807, 'infinity', %s, 'last', 'v', '{}', '{}')",
            (shop.topic,),
        )
    harvester = fleet.start("only", delivery=delivery)
    for number in range(5):
        stash(shop, ("k", str(number)))
        until(lambda: not left(shop), "all is delivered", 60)
    stash(shop, *[("k", str(number)) for number in range(5, 10)])
    until(lambda: not left(shop), "all is delivered", 60)
    assert arrived(shop) == {"last": ["v"], "k": [*map(str, range(10))]}
    assert not harvester.find("Traceback")


def test_a_record_that_is_too_large_parks_its_key_which_flows_in_order_after_a_retry(
    shop: Shop, fleet: Fleet
) -> None:
    stash(shop, ("a", "a1"), ("poison", LARGE), ("poison", "p2"), ("b", "b1"), ("poison", "p3"))
    first = fleet.start("first")
    wait_for_parked(first)
    stash(shop, ("poison", "p4"), ("a", "a2"))
    until(lambda: arrived(shop) == {"a": ["a1", "a2"], "b": ["b1"]}, "the others flow", 60)
    until(lambda: left(shop) == [LARGE[:10], "p2", "p3", "p4"], "the key, as a whole, is all that waits", 60)

    # A takeover changes nothing: every leader sees that the key is parked.
    first.kill()
    second = fleet.start("second")
    second.wait_for("leader acquired", 60)
    stash(shop, ("poison", "p5"), ("c", "c1"))
    until(lambda: arrived(shop).get("c") == ["c1"], "the others flow", 60)
    assert "poison" not in arrived(shop)

    shop.allow(100_000)
    parked(second, "retry", "poison")
    until(lambda: not left(shop), "all is delivered", 60)
    assert arrived(shop)["poison"] == [LARGE[:10], "p2", "p3", "p4", "p5"]
    second.leave()


def test_the_tail_of_a_skipped_record_flows_in_order_and_the_record_itself_when_it_is_redriven(
    shop: Shop, fleet: Fleet
) -> None:
    stash(shop, ("poison", LARGE), ("poison", "p2"), ("poison", LARGE + "!"), ("poison", "p4"), ("a", "a1"))
    harvester = fleet.start("a")
    wait_for_parked(harvester)
    (letter,) = parked(harvester, "list")
    assert (letter["key"], letter["attempts"]) == ("poison", 5)

    parked(harvester, "skip", "poison", "--yes")
    wait_for_parked(harvester, times=2)  # the second large record is poison too
    until(lambda: arrived(shop) == {"a": ["a1"], "poison": ["p2"]}, "the others flow", 60)
    parked(harvester, "skip", "poison", "--yes")
    until(lambda: not left(shop), "the tail is delivered", 60)

    shop.allow(100_000)
    stash(shop, ("poison", "p5"))
    parked(harvester, "redrive", "poison", "--yes")
    until(lambda: len(arrived(shop)["poison"]) == 4, "what was skipped is delivered", 60)
    until(lambda: not left(shop), "all is delivered", 60)
    values = [(message.value() or b"").decode() for message in shop.messages() if message.key() == b"poison"]
    assert values == ["p2", "p4", "p5", LARGE, LARGE + "!"]
    harvester.leave()


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"])
def test_a_topic_that_is_not_permitted_parks_its_keys_and_nothing_reaches_it(
    shop: Shop, fleet: Fleet, delivery: str
) -> None:
    election, elsewhere = f"{shop.topic}-election", f"{shop.topic}-elsewhere"
    permitted = [shop.topic, election]
    for topic, key in ((election, "to-election"), (elsewhere, "to-elsewhere"), (shop.topic, "good")):
        stash(shop, (key, f"{key} 1"), (key, f"{key} 2"), topic=topic)
    harvester = fleet.start(
        "a", delivery=delivery, elector="neli-kafka", leaderTopic=election, topics=permitted
    )
    letters = "SELECT count(*) FROM outbox_dead_letters"
    with shop.connect() as connection:
        until(lambda: connection.execute(letters).fetchone() == (2,), "two keys are parked", 60)
    until(lambda: arrived(shop) == {"good": ["good 1", "good 2"]}, "the other flows", 60)
    reasons = {letter["key"]: letter["reason"] for letter in parked(harvester, "list")}
    assert "outbox itself uses" in reasons["to-election"]
    assert "harvest.topics" in reasons["to-elsewhere"]
    assert elsewhere not in shop.admin.list_topics(timeout=60).topics
    assert not messages(shop.kafka.bootstrap, election, ends(shop.admin, election, 1))
    until(lambda: len(left(shop)) == 4, "what arrived is purged", 60)
    harvester.leave()


def test_an_impossible_topic_parks_its_keys_and_a_frozen_leader_parks_nothing_behind_its_successor(
    shop: Shop, fleet: Fleet
) -> None:
    stash(shop, ("k", "k1"), ("k", "k2"), topic="no topic!")
    first = fleet.start("first", failures={"firstBackoff": "1h", "longestBackoff": "1h", "parkAfter": 3})
    first.wait_for("is held", 60)
    first.send(signal.SIGSTOP)
    second = fleet.start("second", failures={"parkAfter": 2})
    second.wait_for("are parked after 2 attempts", 60)
    thawed_at = first.send(signal.SIGCONT)
    first.wait_for("fenced", 60, thawed_at)
    (letter,) = parked(second, "list")
    assert letter["attempts"] == 2, "the successor's, not those of the lost leader"
    assert left(shop) == ["k1", "k2"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["missing", "forbidden", "missing once", "forbidden once"])
def test_more_failing_keys_than_may_be_parked_hold_up_no_other(
    shop: Shop, fleet: Fleet, measure: Measure, how: str
) -> None:
    topic, *once = how.split()
    delivery = "exactly-once" if once else "at-least-once"
    many = int(os.environ.get("FAILING_KEYS", "3000"))
    with shop.connect() as connection:
        connection.execute(
            "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
            " kafka_header_values) SELECT now(), %s, 'bad' || n, 'x', '{}', '{}'"
            " FROM generate_series(1, %s) AS n",
            (f"{topic}-{shop.topic}", many),
        )
    stash(shop, *((f"good{number}", "x") for number in range(200)))
    permitted = [shop.topic, f"missing-{shop.topic}"]
    harvester = fleet.start("first", delivery=delivery, topics=permitted, limits={"minMetricsInterval": "1s"})
    harvester.wait_for("leader acquired", 60)
    begun = time.monotonic()
    until(lambda: len(arrived(shop)) == 200, "the good ones arrive", 60)
    measure(f"longest silence behind {many:,} keys of a {topic} topic, {delivery}", time.monotonic() - begun)
    silences = []
    for number in range(10):
        stash(shop, (f"later{number}", "x"))
        begun = time.monotonic()
        until(partial(has_arrived, shop, f"later{number}"), "a later one arrives", 60)
        silences.append(time.monotonic() - begun)
    measure(f"the same, later, {delivery}", max(silences))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["long keys", "long keys once"])
def test_keys_of_many_megabytes_do_not_fill_the_memory(
    shop: Shop, fleet: Fleet, measure: Measure, how: str
) -> None:
    delivery = "exactly-once" if how.endswith("once") else "at-least-once"
    with shop.connect() as connection:
        connection.execute("ALTER TABLE outbox ALTER kafka_key TYPE text")
    harvester = fleet.start("first", delivery=delivery)
    harvester.wait_for("leader acquired", 60)
    with shop.connect() as connection:
        for number in range(10):
            key = "repeat('x', 250) || repeat(%s, 34000000)"
            connection.execute(
                "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
                f" kafka_header_values) SELECT now(), %s, {key}, 'x', '{{}}', '{{}}'",
                (shop.topic, "abcdefghijklmnopqrstuvwxyz"[number]),
            )
    stash(shop, ("good", "x"))
    peak = 0
    letters = "SELECT count(*) FROM outbox_dead_letters"
    with shop.connect() as connection:
        connection.autocommit = True

        def all_parked() -> bool:
            nonlocal peak
            own = psutil.Process(harvester.pid)
            peak = max(peak, *(each.memory_info().rss for each in (own, *harvester.family())), 0)
            return connection.execute(letters).fetchone() == (10,)

        until(all_parked, "all are parked", 60)
    until(lambda: "good" in arrived(shop), "the good one arrives", 60)
    measure(f"megabytes of memory, {delivery}", peak // 1_000_000)
    assert 0 < peak < 300_000_000
