"""Harvesters with the elector ``lease``: nothing else but the outbox's own database says who leads."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_servers.services import Kafka, PostgresServer

from .harvesters import Fleet, Harvester, Measure, until
from .shop import Shop

SESSION = 5.0
"""Seconds: longer than what keeps a process of a busy machine from confirming its lease."""
LEASE = {"driver": "lease", "sessionTimeout": f"{SESSION:g}s"}
ACQUIRED = "leader acquired"
AWAY = 6.0
"""Seconds for which the database is away."""
SLACK = 60.0
"""Seconds that a busy machine may take longer."""
MOST_LINES = 60
"""Of the log of a process whose database was away, without statistics."""


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def leader_of(competitors: list[Harvester], since: float = 0.0) -> Harvester:
    found: list[Harvester] = until(
        lambda: [each for each in competitors if each.find(ACQUIRED, since)], "one leads", SESSION + SLACK
    )
    return found[0]


def join(fleet: Fleet, name: str, delivery: str, table: str = "outbox") -> Harvester:
    harvester = fleet.start(name, elector=LEASE, delivery=delivery, outboxTable=table)
    harvester.wait_for("joined the election", 120)
    return harvester


@pytest.mark.slow
def test_a_killed_leader_is_replaced_and_one_that_stops_hands_over(
    shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    delivery, spelling = "exactly-once", "public.outbox"
    competitors = [join(fleet, "a", delivery)]
    leader = leader_of(competitors)
    # Were another spelling of the table another election, it would lead as well.
    competitors = [join(fleet, "b", delivery, spelling)]
    with shop.selling():
        shop.wait_for_sales(100)
        if competitors[0].find(ACQUIRED):  # it was too slow to confirm its lease, or there are two elections
            leader.wait_for("leader fenced", SLACK)
            leader, competitors = competitors[0], [leader]
        killed_at = leader.kill()
        competitors.append(join(fleet, "c", delivery))
        leader = leader_of(competitors, killed_at)
        killed = leader.wait_for(ACQUIRED, 60, killed_at).at - killed_at
        shop.wait_for_sales(100)
        competitors.remove(leader)
        if competitors[0].find(ACQUIRED, killed_at):  # it was too slow again
            leader, competitors = competitors[0], [leader]
        left_at = leader.send(signal.SIGTERM)
        successor = leader_of(competitors, left_at)
        left = successor.wait_for(ACQUIRED, 60, left_at).at - left_at
        assert leader.wait(60) == 0
        shop.wait_for_sales(100)
    shop.wait_until_harvested(60)
    result = shop.audit()
    assert result.good, result.summary()
    assert result.repeated == 0
    measure("killed leader to acquired", killed)
    measure("SIGTERM to acquired", left)


@pytest.mark.slow
def test_leadership_returns_when_the_database_does(
    own_server: PostgresServer, kafka_broker: Kafka, topic: str, tmp_path: Path, measure: Measure
) -> None:
    shop = Shop(own_server.create_database("shop"), kafka_broker, topic)
    shop.open()
    fleet = Fleet(tmp_path, shop)
    try:
        competitors = [join(fleet, name, "at-least-once") for name in "ab"]
        leader = leader_of(competitors)
        with shop.selling():
            shop.wait_for_sales(100)
            gone_at = time.time()
            own_server.stop("immediate")
            leader.wait_for("leader fenced", SESSION + SLACK, gone_at)
            time.sleep(max(0.0, gone_at + AWAY - time.time()))
            own_server.start()
            back_at = time.time()
            leader_of(competitors, gone_at)
            shop.wait_for_sales(100)
        shop.wait_until_harvested(60)
        result = shop.audit()
        assert result.good, result.summary()
        measure(
            "database back to first delivery", next(at for at in shop.deliveries() if at >= back_at) - back_at
        )
        for each in competitors:
            said = [line.text for line in each.lines() if "records/s" not in line.text]
            assert len(said) < MOST_LINES, "\n".join(said)
            each.leave()
    finally:
        fleet.close()
