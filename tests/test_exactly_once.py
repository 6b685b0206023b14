"""Exactly-once delivery on real servers: crashes, poison, another number of lanes, a lost checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from .harvesters import Fleet, Harvester, Measure, until
from .shop import OpenShop, Shop
from .switchboard import Switchboard, recovered, wait_for_lanes
from .topics import place, sequence

SMALL = 1000
"""Bytes of the largest message that the topic takes at first."""


@pytest.fixture
def shop(open_shop: OpenShop, switchboard: Switchboard) -> Shop:
    return open_shop(switchboard.kafka, largest_message=SMALL)


def start(fleet: Fleet, board: Switchboard, name: str, lanes: int = 2, **harvest: Any) -> Harvester:
    """Starts a harvester and waits until all its lanes may publish."""
    limits = {"sendConcurrency": lanes, "maxBatchRecords": 200, "minMetricsInterval": "1s"}
    harvester = fleet.start(name, **{**board.settings, "limits": limits, **harvest})
    harvester.wait_for("leader acquired", 60)
    return harvester


def outbox(harvester: Harvester, *arguments: str) -> Any:
    """Runs a command with the settings of a harvester; returns the JSON that it prints."""
    settings = str(harvester.log.with_suffix(".yaml"))
    done = subprocess.run(
        [sys.executable, "-m", "outbox_core", *arguments, "--json", "-f", settings],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


def left(shop: Shop) -> int:
    with shop.connect() as connection:
        row = connection.execute("SELECT count(*) FROM outbox").fetchone()
    assert row is not None
    return int(row[0])


def test_a_leader_killed_amid_a_backlog_leaves_no_duplicate(
    shop: Shop, fleet: Fleet, switchboard: Switchboard, measure: Measure
) -> None:
    shop.stash(6_000, keys=100)
    first = start(fleet, switchboard, "first")
    until(lambda: left(shop) < 5_400, "the harvest is on", 60)
    killed_at = first.kill()
    assert left(shop), "the leader had finished"
    second = start(fleet, switchboard, "second")
    shop.wait_until_harvested(60)
    measure("killed leader to acquired", second.wait_for("leader acquired", 60).at - killed_at)
    measure("killed leader to an empty outbox", time.time() - killed_at)
    measure("records found in the log", recovered(second))
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0


def test_poison_in_a_batch_parks_its_key_and_the_others_arrive_once(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    missing = f"{shop.topic}-missing"
    with shop.connect() as connection, connection.transaction():
        shop.stash(100, keys=10, start=1, connection=connection)
        shop.sell(connection, "large", 1, "x" * 5 * SMALL)
        shop.sell(connection, "large", 2, "tail")
        shop.sell(connection, "lost", 1, "value", topic=missing)
        shop.sell(connection, "lost", 2, "tail")
        shop.stash(100, keys=10, start=101, connection=connection)
    producer = {
        "delivery.timeout.ms": 4000,
        "topic.metadata.propagation.max.ms": 500,
        "compression.type": "none",
    }
    harvester = start(
        fleet, switchboard, "a", lanes=1, producerKafkaConfig=producer, failures={"parkAfter": 2}
    )
    until(lambda: left(shop) == 4, "all others are delivered", 60)
    letters = outbox(harvester, "parked", "list")["letters"]
    assert {letter["key"] for letter in letters} == {"large", "lost"}
    result = shop.audit()
    assert (result.delivered, result.repeated, result.out_of_order) == (200, 0, 0)

    shop.allow(100_000)
    shop.create_topic(name=missing)
    outbox(harvester, "parked", "retry", "large", "lost")
    until(lambda: not left(shop), "what was parked is delivered", 60)
    result = shop.audit()
    # The first record of "lost" is on the other topic.
    assert (result.lost, result.repeated, result.out_of_order) == (1, 0, 0), result.summary()
    assert len(shop.messages(missing)) == 1
    harvester.leave()


def test_rows_that_exceed_the_bound_are_parked_wherever_they_are_and_no_lane_starts_anew(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    huge = [f"huge-{number}" for number in range(20)]
    with shop.connect() as connection, connection.transaction():
        shop.sell(connection, "passer-by", 1, "value")
        for number in (1, 2):
            for customer in huge:
                shop.sell(connection, customer, number, "x" * (9_000 if number == 1 else 1))
        shop.stash(500, keys=10, connection=connection)
    limits = {"sendConcurrency": 1, "maxLaneBytes": 10_000, "minMetricsInterval": "1s"}
    harvester = start(fleet, switchboard, "a", limits=limits, failures={"parkAfter": 2})
    until(lambda: left(shop) == 2 * len(huge), "all others are delivered", 60)
    letters = outbox(harvester, "parked", "list")["letters"]
    assert {letter["key"] for letter in letters} == set(huge)
    result = shop.audit()
    assert (result.delivered, result.repeated, result.out_of_order) == (501, 0, 0)
    assert not harvester.find("restarts in"), harvester.tail()
    harvester.leave()


def test_what_other_lanes_have_committed_is_purged_when_their_number_changes(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    before = 0
    for turn, lanes in enumerate((1, 3, 2)):
        harvester = start(fleet, switchboard, f"of-{lanes}", lanes)
        wait_for_lanes(shop, lanes)
        assert recovered(harvester) == before, "what was committed and not purged"
        switchboard.mute_commits(lanes)
        shop.stash(60, keys=20, start=1 + 1000 * turn)
        switchboard.wait_until_committed()
        harvester.kill()
        before = left(shop)
        assert before
    last = start(fleet, switchboard, "last", 1)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0
    assert 0 < recovered(last) <= before
    last.leave()


def test_a_lane_whose_checkpoint_is_gone_waits_for_an_operator(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    topic = f"{shop.topic}.checkpoints"
    publisher = {"driver": "kafka", "checkpointTopic": topic}
    first = start(fleet, switchboard, "first", lanes=1, publisher=publisher)
    wait_for_lanes(shop, 1)
    switchboard.mute_commits(1)
    shop.stash(50, keys=10)
    switchboard.wait_until_committed()
    first.kill()
    shop.admin.delete_topics([topic])[topic].result(60)

    stop = {"failures": {"stopAfter": "1s"}, "publisher": publisher}
    refused = fleet.start("refused", **switchboard.settings, **stop)
    assert refused.wait(120) != 0
    assert refused.find("outbox fence forget"), refused.tail()
    assert left(shop) == 50
    outbox(refused, "fence", "forget", "--yes")

    last = start(fleet, switchboard, "last", lanes=1, publisher=publisher)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert (result.lost, result.foreign, result.overtaken) == (0, 0, 0), result.summary()
    assert result.repeated == 50, "which is what forgetting means"
    last.leave()


def settled_ends(shop: Shop) -> dict[int, int]:
    """Returns the topic's ends once nothing arrives any more that a killed process had sent."""
    ends, before = shop.ends(), None
    while ends != before:
        time.sleep(1.0)
        ends, before = shop.ends(), ends
    return ends


def test_a_live_outbox_changes_its_delivery_and_changes_back(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    with shop.selling():
        first = start(fleet, switchboard, "once")
        wait_for_lanes(shop, 2)
        shop.wait_for_sales(100)
        switchboard.mute_commits(2)
        switchboard.wait_until_committed()
        first.kill()
        ends_once = shop.ends()

        second = start(fleet, switchboard, "at-least-once", delivery="at-least-once")
        assert recovered(second) > 0, "what was committed and not purged"
        shop.wait_for_sales(100)
        with shop.connect() as connection, connection.transaction():
            # Deliveries continue, purges wait.
            connection.execute("SELECT FROM outbox_fence FOR UPDATE")
            until(lambda: shop.ends() != ends_once, "at-least-once delivery is on", 60)
            shop.wait_for_sales(30)
            second.kill()
        begins_again = settled_ends(shop)

        start(fleet, switchboard, "once-again")
        wait_for_lanes(shop, 2)
        shop.wait_for_sales(100)
    shop.wait_until_harvested(60)

    result = shop.audit()
    assert (result.lost, result.foreign, result.overtaken) == (0, 0, 0), result.summary()
    arrivals: dict[tuple[bytes | None, int | None], list[bool]] = {}
    for message in shop.messages():
        part, offset = place(message)
        once = offset < ends_once[part] or offset >= begins_again[part]
        arrivals.setdefault((message.key(), sequence(message)), []).append(once)
    after_a_transaction = [sale for sale, modes in arrivals.items() if True in modes[:-1]]
    assert not after_a_transaction, "what a transaction has committed came again"
