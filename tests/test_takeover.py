"""Several harvesters of one outbox: who leads after the leader is killed, leaves, or is frozen."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from .harvesters import RUN, SHORT_RUNS, Fleet, Harvester, Measure, until
from .shop import CUSTOMERS, Shop

SESSION = 10.0
"""Seconds: longer than a busy machine keeps a process waiting."""
NELI = {"driver": "neli-kafka", "sessionTimeout": f"{SESSION:g}s", "heartbeatTimeout": "6s"}
PATIENT = {"driver": "neli-kafka", "sessionTimeout": "90s", "heartbeatTimeout": "45s"}
HANDOVER = 60.0
"""Seconds for a handover: less than a patient session, which is what others would wait for otherwise."""
ACQUIRED = "leader acquired"


def start(fleet: Fleet, names: str) -> list[Harvester]:
    """Starts a leader, and standbys with a patient session; returns them once the group counts them all."""
    leader = fleet.start(names[0], elector=NELI, limits=SHORT_RUNS)
    leader.wait_for(ACQUIRED, 120)
    standbys = [fleet.start(name, elector=PATIENT, limits=SHORT_RUNS) for name in names[1:]]
    until(lambda: fleet.members() == len(names), "all competitors are in the group", 120)
    return [leader, *standbys]


def leaders(competitors: Sequence[Harvester], since: float = 0.0) -> list[Harvester]:
    return [each for each in competitors if each.find(ACQUIRED, since)]


def successor(standbys: Sequence[Harvester], since: float, timeout: float) -> Harvester:
    found: list[Harvester] = until(lambda: leaders(standbys, since), "a successor leads", timeout)
    return found[0]


def first_delivery(shop: Shop, since: float) -> float:
    return next(at for at in shop.deliveries() if at >= since)


def test_a_successor_leads_when_the_leader_is_killed_and_when_it_leaves(
    shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    leader, *standbys = start(fleet, "abc")
    with shop.selling():
        shop.wait_for_sales(300)
        killed_at = leader.kill()
        second = successor(standbys, killed_at, SESSION + 60)
        second_at = second.wait_for(ACQUIRED, 60, killed_at).at
        shop.wait_for_sales(300)

        standbys.remove(second)
        left_at = second.send(signal.SIGTERM)
        third = successor(standbys, left_at, HANDOVER)
        third_at = third.wait_for(ACQUIRED, 60, left_at).at
        assert second.wait(120) == 0
        gone = second.lines()[-1]
        assert "stopped" in gone.text
        shop.wait_for_sales(300)
    shop.wait_until_harvested(60)

    result = shop.audit()
    assert result.good, result.summary()
    # Only records that the killed leader had in flight may arrive twice: at most one run of each key.
    assert result.repeated <= RUN * len(CUSTOMERS)
    measure("records that came twice", result.repeated)
    measure("killed leader to acquired", second_at - killed_at)
    measure("killed leader to first delivery", first_delivery(shop, second_at) - killed_at)
    measure("SIGTERM to acquired", third_at - left_at)
    measure("SIGTERM to first delivery", first_delivery(shop, third_at) - left_at)
    measure("SIGTERM to the end of the process", gone.at - left_at)


def test_a_leader_that_stood_still_is_fenced_and_stands_by(
    shop: Shop, fleet: Fleet, measure: Measure
) -> None:
    frozen, standby = start(fleet, "ab")
    shop.postgres.watch()
    with shop.selling():
        shop.wait_for_sales(300)
        until(lambda: shop.postgres.touches(0).get(frozen.name), "the leader harvests", 60)
        frozen_at = frozen.send(signal.SIGSTOP)
        new = successor([standby], frozen_at, SESSION + 60)
        acquired_at = new.wait_for(ACQUIRED, 60, frozen_at).at
        until(lambda: shop.postgres.touches(acquired_at).get(new.name), "the successor harvests", 60)
        thawed_at = frozen.send(signal.SIGCONT)
        fenced = frozen.wait_for("leader fenced", 60, thawed_at)
        shop.wait_for_sales(300)
        until(lambda: shop.postgres.touches(thawed_at).get(new.name), "the successor harvests on", 60)
        assert not shop.postgres.touches(thawed_at).get(frozen.name), "a fenced leader changed rows"

        # It has become a standby by itself, and takes over when the leader leaves.
        until(lambda: frozen.running and fleet.members() == 2, "it is back in the group", 60)
        left_at = new.send(signal.SIGTERM)
        again_at = frozen.wait_for(ACQUIRED, HANDOVER, left_at).at
        shop.wait_for_sales(100)
    shop.wait_until_harvested(60)

    result = shop.audit()
    # Records that the frozen process had handed to its Kafka client may still arrive, behind later ones.
    assert (result.lost, result.foreign, result.overtaken) == (0, 0, 0), result.summary()
    assert result.stale <= len(CUSTOMERS)
    measure("records that came twice", result.repeated)
    measure("records that came again behind a later one of their key", result.reappeared)
    measure("frozen leader to acquired", acquired_at - frozen_at)
    measure("thawed to fenced", fenced.at - thawed_at)
    measure("SIGTERM to acquired by the former leader", again_at - left_at)
