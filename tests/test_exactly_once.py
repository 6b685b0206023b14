"""Exactly-once delivery on real servers: crashes, poison, another number of lanes, a lost checkpoint."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # left out of its types

from .harvesters import Fleet, Harvester, Measure, until
from .shop import OpenShop, Shop
from .switchboard import Switchboard, recovered, wait_for_lanes
from .topics import ends, messages, place, sequence

SMALL = 1000
"""Bytes of the largest message that the topic takes at first."""

HOLD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF (SELECT count(*) FROM outbox) < 2000 THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER held AFTER DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION hold()
"""
"""Lets purges of the last rows wait while the test holds a lock: however late it is, there is a backlog."""


@pytest.fixture
def shop(request: pytest.FixtureRequest, open_shop: OpenShop) -> Shop:
    if "switchboard" in request.fixturenames:
        return open_shop(request.getfixturevalue("switchboard").kafka, largest_message=SMALL)
    return open_shop(request.getfixturevalue("kafka_broker"), largest_message=SMALL)


def start(fleet: Fleet, name: str, lanes: int = 2, **harvest: Any) -> Harvester:
    """Starts a harvester and waits until it leads; a broker without a processor may be silent for long."""
    limits = {"sendConcurrency": lanes, "maxBatchRecords": 200, "minMetricsInterval": "1s"}
    harvester = fleet.start(name, **{"delivery": "exactly-once", "limits": limits, **harvest})
    harvester.wait_for("leader acquired", 180)
    return harvester


def parked(shop: Shop, harvester: Harvester, keys: set[str]) -> None:
    """Waits until these keys are parked, and no others."""
    letters = "SELECT count(DISTINCT kafka_key) FROM outbox_dead_letters"
    with shop.connect() as connection:
        until(lambda: connection.execute(letters).fetchone() == (len(keys),), "keys are parked", 120)
    assert {letter["key"] for letter in harvester.outbox("parked", "list")["letters"]} == keys


def left(shop: Shop) -> int:
    with shop.connect() as connection:
        row = connection.execute("SELECT count(*) FROM outbox").fetchone()
    assert row is not None
    return int(row[0])


def test_a_leader_killed_amid_a_backlog_leaves_no_duplicate(
    shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    shop.stash(6_000, keys=100)
    with shop.connect() as connection:
        connection.execute(HOLD)
        connection.execute("SELECT pg_advisory_lock(1)")
        first = start(fleet, "first")
        until(lambda: left(shop) < 5_400, "the harvest is on", 60)
        killed_at = first.kill()
        assert left(shop), "the leader had finished"
    second = start(fleet, "second")
    shop.wait_until_harvested(60)
    measure("killed leader to acquired", second.wait_for("leader acquired", 60).at - killed_at)
    measure("killed leader to an empty outbox", time.time() - killed_at)
    measure("records found in the log", recovered(second))
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0


def test_rows_whose_partition_is_minus_one_are_found_in_the_log(shop: Shop, fleet: Fleet) -> None:
    purging = "FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
    with shop.connect() as connection:
        columns = (f"ADD {name} BIGINT DEFAULT -1" for name in ("kafka_partition", "kafka_timestamp"))
        connection.execute(f"ALTER TABLE outbox {', '.join(columns)}")
        shop.stash(100, keys=100)
        connection.execute(HOLD.replace("EACH STATEMENT", "EACH ROW"))  # not for purges of nothing
        connection.execute("SELECT pg_advisory_lock(1)")
        first = start(fleet, "first", lanes=1)
        waits = f"SELECT count(*) {purging}"
        until(lambda: connection.execute(waits).fetchone() == (1,), "the batch is to be purged", 60)
        first.kill()
        connection.execute(f"SELECT pg_terminate_backend(pid) {purging}")
    second = start(fleet, "second", lanes=1)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert result.good, result.summary()
    assert (result.repeated, recovered(second)) == (0, 100)


def test_poison_in_a_batch_parks_its_key_and_the_others_arrive_once(shop: Shop, fleet: Fleet) -> None:
    # The first use of a topic creates it, unless there is one whose name is the same to the broker's metrics.
    missing, in_the_way = f"{shop.topic}.missing", f"{shop.topic}_missing"
    shop.create_topic(name=in_the_way)
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
    harvester = start(fleet, "a", lanes=1, producerKafkaConfig=producer, failures={"parkAfter": 2})
    until(lambda: left(shop) == 4, "all others are delivered", 120)
    parked(shop, harvester, {"large", "lost"})
    result = shop.audit()
    assert (result.delivered, result.repeated, result.out_of_order) == (200, 0, 0)

    shop.allow(100_000)
    shop.admin.delete_topics([in_the_way])[in_the_way].result(60)
    with suppress(KafkaException):  # a lane's client may be first: it still asks for the topic
        shop.admin.create_topics([NewTopic(missing, 1)])[missing].result(60)
    harvester.outbox("parked", "retry", "large", "lost")
    until(lambda: not left(shop), "what was parked is delivered", 60)
    result = shop.audit()
    # The first record of "lost" is on the other topic.
    assert (result.lost, result.repeated, result.out_of_order) == (1, 0, 0), result.summary()
    assert len(messages(shop.kafka.bootstrap, missing, ends(shop.admin, missing, 1))) == 1
    harvester.leave()


def test_keys_that_fail_for_a_while_hold_up_no_other(shop: Shop, fleet: Fleet) -> None:
    # No topic can be created whose name is the same to the metrics of brokers; clients wait for it to appear.
    missing, in_the_way = f"{shop.topic}.missing", f"{shop.topic}_missing"
    shop.create_topic(name=in_the_way)
    with shop.connect() as connection, connection.transaction():
        for number in range(20):
            shop.sell(connection, f"waits {number}", 1, "value", topic=missing)
    harvester = start(fleet, "a", lanes=1)
    harvester.wait_for("was not delivered", 60)
    for start_at in range(1, 100, 10):
        shop.stash(10, keys=10, start=start_at)
        until(lambda: left(shop) == 20, "the others are delivered", 25)  # those that fail take 30 s
    shop.admin.delete_topics([in_the_way])[in_the_way].result(60)
    with suppress(KafkaException):  # the lane's client may be first: it still asks for the topic
        shop.admin.create_topics([NewTopic(missing, 1)])[missing].result(60)
    until(lambda: not left(shop), "all is delivered", 60)
    assert len(messages(shop.kafka.bootstrap, missing, ends(shop.admin, missing, 1))) == 20
    harvester.leave()


def test_rows_that_exceed_the_bound_are_parked_wherever_they_are_and_no_lane_starts_anew(
    shop: Shop, fleet: Fleet
) -> None:
    huge = [f"huge-{number}" for number in range(20)]
    with shop.connect() as connection, connection.transaction():
        shop.sell(connection, "passer-by", 1, "value")
        for number in (1, 2):
            for customer in huge:
                shop.sell(connection, customer, number, "x" * (9_000 if number == 1 else 1))
        shop.stash(500, keys=10, connection=connection)
    limits = {"sendConcurrency": 1, "maxLaneBytes": 10_000, "minMetricsInterval": "1s"}
    harvester = start(fleet, "a", limits=limits, failures={"parkAfter": 2})
    until(lambda: left(shop) == 2 * len(huge), "all others are delivered", 120)
    parked(shop, harvester, set(huge))
    result = shop.audit()
    assert (result.delivered, result.repeated, result.out_of_order) == (501, 0, 0)
    assert not harvester.find("restarts in"), harvester.tail()
    harvester.leave()


@pytest.mark.slow
def test_what_other_lanes_have_committed_is_purged_when_their_number_changes(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    before = 0
    for turn, lanes in enumerate((1, 3, 2)):
        harvester = start(fleet, f"of-{lanes}", lanes, **switchboard.settings)
        wait_for_lanes(shop, lanes)
        until(lambda: recovered(harvester) == before, f"it finds {before} rows in the log", 60)  # noqa: B023
        switchboard.mute_commits(lanes)
        shop.stash(60, keys=20, start=1 + 1000 * turn)
        switchboard.wait_until_committed()
        harvester.kill()
        before = left(shop)
        assert before
    last = start(fleet, "last", 1, **switchboard.settings)
    shop.wait_until_harvested(60)
    last.leave()
    assert 0 < recovered(last) <= before
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0


@pytest.mark.slow
def test_a_lane_whose_checkpoint_is_gone_waits_for_an_operator(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    topic = f"{shop.topic}.checkpoints"
    settings = {**switchboard.settings, "publisher": {"driver": "kafka", "checkpointTopic": topic}}
    first = start(fleet, "first", lanes=1, **settings)
    wait_for_lanes(shop, 1)
    switchboard.mute_commits(1)
    shop.stash(50, keys=10)
    switchboard.wait_until_committed()
    first.kill()
    shop.admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in shop.admin.list_topics(timeout=60).topics, "its topic is gone", 60)

    refused = fleet.start("refused", **settings, failures={"stopAfter": "1s"})
    assert refused.wait(120) != 0
    assert refused.find("outbox fence forget"), refused.tail()
    assert left(shop) == 50
    refused.outbox("fence", "forget", "--yes")

    last = start(fleet, "last", lanes=1, **settings)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert (result.lost, result.foreign, result.overtaken) == (0, 0, 0), result.summary()
    assert result.repeated == 50, "which is what forgetting means"
    last.leave()


def settled_ends(shop: Shop, board: Switchboard) -> dict[int, int]:
    """Returns the topic's ends once nothing arrives any more that a killed process had sent."""
    board.wait_until_forwarded()
    ends, before = shop.ends(), None
    while ends != before:
        time.sleep(3.0)  # what the broker has received it appends soon
        ends, before = shop.ends(), ends
    return ends


def test_a_live_outbox_changes_its_delivery_and_changes_back(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    with shop.selling():
        first = start(fleet, "once", **switchboard.settings)
        wait_for_lanes(shop, 2)
        shop.wait_for_sales(100)
        switchboard.mute_commits(2)
        switchboard.wait_until_committed()
        first.kill()
        ends_once = shop.ends()

        at_least_once = {**switchboard.settings, "delivery": "at-least-once"}
        second = start(fleet, "at-least-once", **at_least_once)
        until(lambda: recovered(second), "what was committed and not purged is found in the log", 60)
        until(lambda: shop.ends() != ends_once, "at-least-once delivery is on", 60)
        shop.wait_for_sales(100)
        with shop.connect() as connection, connection.transaction():
            # What is marked is delivered, and its purge waits.
            connection.execute("SELECT FROM outbox_fence FOR UPDATE")
            shop.wait_for_sales(30)
            second.kill()
        begins_again = settled_ends(shop, switchboard)

        start(fleet, "once-again", **switchboard.settings)
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
