"""Transforms on real servers: what arrives, what is parked, and what a killed harvester leaves."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from outbox_audit import SEQUENCE_HEADER, Audit

from .harvesters import Fleet, Harvester, Measure, until
from .shop import CUSTOMERS, INSERT, OpenShop, Shop
from .switchboard import Switchboard, recovered, wait_for_lanes
from .test_torn_transaction import Torn

PLUGIN = """
from dataclasses import dataclass
from outbox_api import Driver, hookimpl

@dataclass(frozen=True)
class PairOptions:
    copies: str

class Pair:
    def __init__(self, options):
        self._copies = options.copies

    def apply(self, record):
        text = '{"sale": "%s", "card": "4111"}' % record.value
        parts = [record._replace(value=text, headers=(*record.headers, ("of", part))) for part in "ab"]
        return [*parts, parts[0]._replace(topic=self._copies)]

@hookimpl
def outbox_transform():
    return Driver(PairOptions, Pair)
"""
"""A distribution's module: a transform that makes three records of one, of which two have the same topic."""

KILLS = 3
DELIVERIES = ["at-least-once", "exactly-once"]


@pytest.fixture
def installed(tmp_path: Path) -> Mapping[str, str]:
    """Returns the environment of a process in which the transform ``pair`` is installed."""
    (tmp_path / "outbox_pair_test.py").write_text(PLUGIN)
    info = tmp_path / "outbox_pair-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-pair\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[outbox]\npair = outbox_pair_test\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))}


class Arrived(NamedTuple):
    """A message: its key, its value, and its headers as text."""

    key: str
    value: str
    headers: dict[str, str]


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    return message.headers() or []


def arrived(shop: Shop, topic: str | None = None) -> list[Arrived]:
    return [
        Arrived(
            (message.key() or b"").decode(),
            (message.value() or b"").decode(),
            {name: (value or b"").decode() for name, value in _headers(message)},
        )
        for message in shop.messages(topic)
    ]


def stash(shop: Shop, *records: tuple[str, str], topic: str | None = None) -> None:
    with shop.connect() as connection:
        for key, value in records:
            connection.execute(INSERT, (topic or shop.topic, key, value, [], []))


def left(shop: Shop) -> int:
    return int(shop.database.fetch("SELECT COUNT(*) FROM outbox")[0][0])


def identity(shop: Shop) -> str:
    return str(shop.database.fetch("SELECT identity FROM outbox_fence_notes")[0][0])


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_records_are_transformed_and_what_cannot_be_is_parked_until_the_chain_is_mended(
    shop: Shop, fleet: Fleet, delivery: str
) -> None:
    internal, out = f"{shop.topic}-internal", f"{shop.topic}-out"
    stash(shop, ("a", '{"n": 1, "card": "4111"}'), ("bad", "hush"), ("a", '{"n": 2}'), ("bad", '{"n": 3}'))
    stash(shop, ("a", "left out"), topic=internal)
    rest = [{"driver": "topic", "to": "{topic}-out"}, "identity"]
    redact = {"driver": "redact", "fields": ["card"]}
    chain = [{"driver": "filter", "drop": {"topic": internal}}, redact, *rest]
    shop.create_topic(name=out)
    first = fleet.start("first", delivery=delivery, transform=chain)
    first.wait_for("are parked", 120)
    (letter,) = first.outbox("parked", "list")["letters"]
    assert (letter["key"], letter["reason"]) == ("bad", "transform 'redact': the value is not JSON")
    until(lambda: left(shop) == 2, "all but the parked key is delivered", 60)
    ids = [f"{identity(shop)}:{number}" for number in range(1, 6)]
    assert [(each.value, each.headers["outbox-id"]) for each in arrived(shop, out)] == [
        ('{"n":1}', ids[0]), ('{"n":2}', ids[2]),
    ]  # fmt: skip
    assert internal not in shop.admin.list_topics(timeout=60).topics
    first.leave()
    assert "hush" not in first.log.read_text()

    mended = fleet.start("mended", delivery=delivery, transform=rest)
    mended.wait_for("leader acquired", 60)
    mended.outbox("parked", "retry", "bad")
    until(lambda: not left(shop), "the key flows", 60)
    assert [(each.value, each.headers["outbox-id"]) for each in arrived(shop, out) if each.key == "bad"] == [
        ("hush", ids[1]), ('{"n": 3}', ids[3]),
    ]  # fmt: skip
    mended.leave()


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_an_output_to_a_topic_that_is_not_permitted_parks_its_key(
    shop: Shop, fleet: Fleet, delivery: str
) -> None:
    elsewhere = f"{shop.topic}-elsewhere"
    stash(shop, ("elsewhere", "v"), ("good", "v"))
    chain = [{"driver": "topic", "to": f"{shop.topic}-{{key}}"}]
    shop.create_topic(name=f"{shop.topic}-good")
    permitted = [shop.topic, f"{shop.topic}-good"]
    harvester = fleet.start("a", delivery=delivery, transform=chain, topics=permitted)
    harvester.wait_for("are parked", 120)
    until(lambda: left(shop) == 1, "the other is delivered", 60)
    (letter,) = harvester.outbox("parked", "list")["letters"]
    assert letter["reason"].startswith("after its transforms, the topic ")
    assert elsewhere not in shop.admin.list_topics(timeout=60).topics
    harvester.leave()


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_what_an_unfinished_transaction_has_published_is_recognised_or_follows_its_checkpoint(
    open_shop: OpenShop, tmp_path: Path, switchboard: Switchboard, changed: bool
) -> None:
    shop = open_shop(switchboard.kafka)
    fleet = Fleet(tmp_path, shop)
    limits = {"sendConcurrency": 1, "minMetricsInterval": "1s"}
    chain: list[Any] = [{"driver": "headers", "set": {"of": "the first"}}]
    first = fleet.start("first", transform=chain, limits=limits, **switchboard.settings)
    wait_for_lanes(shop, 1)
    switchboard.mute_commits(1)
    shop.stash(60, keys=20)
    switchboard.wait_until_committed()
    first.kill()
    assert left(shop)
    second = fleet.start(
        "second", transform=["identity"] if changed else chain, limits=limits, **switchboard.settings
    )
    shop.wait_until_harvested(60)
    second.leave()
    assert bool(second.find("its transforms were others than now")) is changed
    assert recovered(second)
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0
    fleet.close()


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint committed", "checkpoint aborted"])
def test_of_a_row_that_is_torn_between_two_topics_the_rest_is_published(
    shop: Shop, fleet: Fleet, installed: Mapping[str, str], *, checkpoint: bool
) -> None:
    copies = f"{shop.topic}-copies"
    shop.create_topic(name=copies)
    settings: dict[str, Any] = {
        "delivery": "exactly-once",
        "limits": {"sendConcurrency": 1},
        "transform": [{"driver": "pair", "copies": copies}],
    }
    shop.stash(10, keys=5)
    first = fleet.start("first", environment=installed, **settings)
    first.wait_for("leader acquired", 60)
    shop.wait_until_harvested(60)
    first.kill()
    shop.stash(100, keys=5, start=11)
    torn = Torn(shop)
    torn._partition = torn._partition.partition(" ")[0]
    made = [
        (number, topic, key, made_of(value), [*names, "of"], [*values, part])
        for number, topic, key, value, names, values in torn._rows
        for part in "ab"
    ]
    copied = [(number, copies, *rest) for number, _, *rest in made[::2]]
    torn._transaction("committed", made, carries=checkpoint).commit_transaction(20)
    torn._transaction("aborted", copied, carries=not checkpoint).abort_transaction(20)
    second = fleet.start("second", environment=installed, **settings)
    shop.wait_until_harvested(60)
    second.leave()
    for topic, parts in ((shop.topic, "ab"), (copies, "a")):
        assert_complete(arrived(shop, topic), shop.sold(), parts, once=True)


def made_of(value: str) -> str:
    """Returns the value that ``pair`` makes of one."""
    return f'{{"sale": "{value}", "card": "4111"}}'


def chain_of(copies: str) -> list[Any]:
    """Returns a chain that leaves out every tenth sale, and makes three records of each other."""
    return [
        {"driver": "filter", "drop": {"headers": {SEQUENCE_HEADER: "*5"}}},
        {"driver": "pair", "copies": copies},
        {"driver": "redact", "fields": ["card"]},
        {"driver": "headers", "set": {"seen": "{header.of}{field.sale}"}},
        "identity",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_killed_harvesters_leave_what_the_chain_makes_of_every_row(
    shop: Shop, fleet: Fleet, installed: Mapping[str, str], measure: Measure, delivery: str
) -> None:
    copies = f"{shop.topic}-copies"
    shop.create_topic(name=copies)
    limits = {"sendConcurrency": 2, "maxBatchRecords": 200, "minMetricsInterval": "1s"}
    settings: dict[str, Any] = {"delivery": delivery, "transform": chain_of(copies), "limits": limits}

    def start(name: str) -> Harvester:
        harvester = fleet.start(name, environment=installed, **settings)
        harvester.wait_for("leader acquired", 60)
        return harvester

    with shop.selling():
        for kill in range(KILLS):
            harvester = start(f"killed-{kill}")
            shop.wait_for_sales(200)
            harvester.kill()
            shop.wait_for_sales(100)
        last = start("last")
        shop.wait_for_sales(100)
    shop.wait_until_harvested(120)
    last.leave()
    sold = {each for each in shop.sold() if not str(each[1]).endswith("5")}
    ids = set()
    for topic, parts in ((shop.topic, "ab"), (copies, "a")):
        messages = arrived(shop, topic)
        assert not [each for each in messages if "card" in each.value]
        assert all(
            each.headers["seen"] == f"{each.headers['of']}{json.loads(each.value)['sale']}"
            for each in messages
        )
        assert_complete(messages, sold, parts, once=delivery == "exactly-once")
        ids |= {(each.key, each.headers[SEQUENCE_HEADER], each.headers["outbox-id"]) for each in messages}
        measure(f"records that came twice in {topic[-6:]}", len(messages) - len(sold) * len(parts))
    assert len(ids) == len({each[2] for each in ids}) == 3 * len(sold), (
        "an id names one record, always the same"
    )


def assert_complete(messages: list[Arrived], sold: set[tuple[str, int]], parts: str, *, once: bool) -> None:
    """Checks what arrived in a topic: everything, in order, and nothing else; each once, or rows anew."""
    audit, found = Audit(), defaultdict(list)
    for key, number in sold:
        audit.committed(key, number)
    for each in messages:
        number = int(each.headers[SEQUENCE_HEADER])
        audit.arrived(each.key, number)
        assert json.loads(each.value)["sale"] == f"sale {number}"
        found[each.key].append((number, each.headers["of"]))
    result = audit.result()
    assert result.good, result.summary()  # a row may be repeated, and not behind a later one of its key
    for key, seen in found.items():
        wanted = [(number, part) for number in sorted(n for k, n in sold if k == key) for part in parts]
        assert (seen if once else list(dict.fromkeys(seen))) == wanted
    assert len(messages) - len(sold) * len(parts) <= KILLS * len(CUSTOMERS) * len(parts)
