"""Exactly-once delivery when settings change that name a lane at the broker: table, checkpoint topic."""

from __future__ import annotations

from typing import Any

import pytest

from .harvesters import Fleet, Harvester
from .shop import OpenShop, Shop
from .switchboard import Switchboard, recovered, wait_for_lanes

SPELLINGS = ("outbox", "public.outbox")
RECORDS = 50
TURNS = 8
pytestmark = pytest.mark.slow

PORTION = 4_000
"""Records of one transaction, more than a leader publishes before the next one."""


@pytest.fixture
def shop(open_shop: OpenShop, switchboard: Switchboard) -> Shop:
    return open_shop(switchboard.kafka)


def start(fleet: Fleet, board: Switchboard, name: str, **harvest: Any) -> Harvester:
    limits = {"sendConcurrency": 1, "maxBatchRecords": 200, "minMetricsInterval": "1s"}
    harvester = fleet.start(name, **{**board.settings, "limits": limits, **harvest})
    harvester.wait_for("leader acquired", 60)
    return harvester


def lead_once(shop: Shop, fleet: Fleet, board: Switchboard, name: str, **harvest: Any) -> None:
    """Lets a harvester lead and hand over: its lane's checkpoint stays, and is empty."""
    harvester = start(fleet, board, name, **harvest)
    wait_for_lanes(shop, 1)
    harvester.leave()


def publish_and_die(shop: Shop, board: Switchboard, harvester: Harvester, first: int = 1) -> None:
    """Lets a harvester publish records, and end before the reply to its commit."""
    shop.stash(1, keys=10, start=first)
    shop.wait_until_harvested(60)  # it publishes, and the fence notes that
    board.mute_commits(1)
    shop.stash(RECORDS, keys=10, start=first + 1)
    board.wait_until_committed()
    harvester.kill()


def test_two_spellings_of_one_table_harvest_it_once(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    for spelling in SPELLINGS:
        lead_once(shop, fleet, switchboard, f"{spelling}-before", outboxTable=spelling)
    # Both lead in turn: there is no election.
    both = [start(fleet, switchboard, spelling, outboxTable=spelling) for spelling in SPELLINGS]
    sold = 0
    while sum("leader acquired" in line.text for each in both for line in each.lines()) < TURNS:
        shop.stash(PORTION, keys=100, start=sold + 1)
        sold += PORTION
    both[0].kill()
    shop.wait_until_harvested(120)
    result = shop.audit()
    assert result.good, result.summary()
    assert (result.repeated, result.out_of_order) == (0, 0)


def test_a_successor_that_spells_the_table_otherwise_finds_what_is_in_the_log(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    lead_once(shop, fleet, switchboard, "before", outboxTable=SPELLINGS[1])
    first = start(fleet, switchboard, "first", outboxTable=SPELLINGS[0])
    publish_and_die(shop, switchboard, first)
    second = start(fleet, switchboard, "second", outboxTable=SPELLINGS[1])
    shop.wait_until_harvested(60)
    second.leave()
    assert recovered(second) == RECORDS
    assert shop.audit().repeated == 0


def test_a_checkpoint_of_old_is_told_from_the_one_that_was_written_last(
    shop: Shop, fleet: Fleet, switchboard: Switchboard
) -> None:
    other = {"driver": "kafka", "checkpointTopic": f"{shop.topic}.checkpoint"}
    lead_once(shop, fleet, switchboard, "first", publisher=other)
    second = start(fleet, switchboard, "second")
    publish_and_die(shop, switchboard, second)
    third = start(fleet, switchboard, "third", publisher=other)
    shop.wait_until_harvested(60)
    publish_and_die(shop, switchboard, third, first=100)
    fourth = start(fleet, switchboard, "fourth")
    shop.wait_until_harvested(60)
    fourth.leave()
    assert [recovered(each) for each in (second, third, fourth)] == [0, RECORDS, RECORDS]
    assert shop.audit().repeated == 0
