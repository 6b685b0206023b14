"""A leader that alone is cut off from Kafka, while its elector still names it: a standby leads soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from outbox_core.leadership.leader import UNACKNOWLEDGED_SECONDS
from outbox_servers.services import Etcd, KafkaBroker, ZooKeeper

from .faults.proxy import Proxy
from .harvesters import Fleet, Harvester, Measure, until
from .shop import OpenShop, Shop

ACQUIRED, REVOKED, ASIDE = "leader acquired", "leader revoked", "stands aside"
SLACK = 60.0
"""Seconds that a busy machine may take longer."""
LEASE = {"driver": "lease", "sessionTimeout": "5s"}


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with closing(Proxy(lambda: BROKER[0].proxied_port)) as proxy:
        yield proxy


BROKER: list[KafkaBroker] = []
"""The broker, which is known after its proxy."""


@pytest.fixture(scope="module")
def broker(proxy: Proxy) -> Iterator[KafkaBroker]:
    with KafkaBroker(proxy_port=proxy.port) as broker:
        BROKER[:] = [broker]
        yield broker


@pytest.fixture
def cut_off_shop(open_shop: OpenShop, broker: KafkaBroker) -> Shop:
    return open_shop(broker)


@pytest.fixture
def start(
    tmp_path: Path, cut_off_shop: Shop, proxy: Proxy, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Harvester]]:
    """Starts a harvester, which reaches the broker through the proxy or directly."""
    fleet = Fleet(tmp_path, cut_off_shop)

    def start(
        name: str, delivery: str, elector: Mapping[str, Any] = LEASE, *, proxied: bool = False
    ) -> Harvester:
        through = f"127.0.0.1:{proxy.port}" if proxied else cut_off_shop.kafka.bootstrap
        return fleet.start(
            name,
            elector=dict(elector),
            delivery=delivery,
            baseKafkaConfig={"bootstrap.servers": through},
            failures={"stopAfter": "10s"},
        )

    yield start
    proxy.speak()
    fleet.close()


def harvested(shop: Shop) -> Shop:
    shop.wait_until_harvested(SLACK)
    result = shop.audit()
    assert (result.lost, result.foreign) == (0, 0), result.summary()
    return shop


def hand_over(shop: Shop, proxy: Proxy, leader: Harvester, standby: Harvester, measure: Measure) -> None:
    standby.wait_for("joined the election", 120)
    with shop.selling():
        shop.wait_for_sales(100)
        proxy.silence()
        proxy.cut()
        cut_at = shop.deliveries()[-1]
        acquired_at = standby.wait_for(ACQUIRED, UNACKNOWLEDGED_SECONDS + SLACK, cut_at).at
        shop.wait_for_sales(100)
        until(lambda: shop.deliveries()[-1] > acquired_at, "records flow", SLACK)
        leader.wait_for(ASIDE, SLACK, cut_at)
    harvested(shop)
    measure("cut off to acquired by another", acquired_at - cut_at)
    proxy.speak()
    leader.wait_for("joined the election again", SLACK, acquired_at)
    assert leader.count(ACQUIRED) == 1
    assert standby.count(ACQUIRED) == 1


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_healthy_standby_replaces_a_leader_that_alone_is_cut_off_from_the_broker(
    cut_off_shop: Shop, proxy: Proxy, start: Callable[..., Harvester], measure: Measure, delivery: str
) -> None:
    leader = start("a", delivery, proxied=True)
    leader.wait_for(ACQUIRED, 120)
    hand_over(cut_off_shop, proxy, leader, start("b", delivery), measure)


@pytest.mark.slow
def test_the_same_with_etcd(
    cut_off_shop: Shop, proxy: Proxy, start: Callable[..., Harvester], measure: Measure, etcd_server: Etcd
) -> None:
    elector = {"driver": "etcd", "sessionTimeout": "5s", "endpoints": [etcd_server.endpoint]}
    leader = start("a", "exactly-once", elector, proxied=True)
    leader.wait_for(ACQUIRED, 120)
    hand_over(cut_off_shop, proxy, leader, start("b", "exactly-once", elector), measure)


@pytest.mark.slow
def test_the_same_with_zookeeper(
    cut_off_shop: Shop,
    proxy: Proxy,
    start: Callable[..., Harvester],
    measure: Measure,
    zookeeper_server: ZooKeeper,
) -> None:
    elector = {"driver": "zookeeper", "sessionTimeout": "5s", "hosts": zookeeper_server.hosts}
    leader = start("a", "at-least-once", elector, proxied=True)
    leader.wait_for(ACQUIRED, 120)
    hand_over(cut_off_shop, proxy, leader, start("b", "at-least-once", elector), measure)


@pytest.mark.slow
def test_while_the_broker_is_away_from_all_nobody_thrashes_and_afterwards_one_leads(
    cut_off_shop: Shop, proxy: Proxy, start: Callable[..., Harvester], measure: Measure
) -> None:
    harvesters = [start("a", "at-least-once", proxied=True)]
    harvesters[0].wait_for(ACQUIRED, 120)
    harvesters.append(start("b", "at-least-once", proxied=True))
    harvesters[1].wait_for("joined the election", 120)
    with cut_off_shop.selling():
        cut_off_shop.wait_for_sales(100)
        proxy.silence()
        proxy.cut()
        cut_at = cut_off_shop.deliveries()[-1]
        for each in harvesters:
            each.wait_for(ASIDE, 2 * UNACKNOWLEDGED_SECONDS + SLACK, cut_at)
        assert sum(each.count(ACQUIRED) for each in harvesters) == 2
        proxy.speak()
        back_at = cut_off_shop.deliveries()[-1]
        until(lambda: cut_off_shop.deliveries()[-1] > back_at, "records flow", SLACK)
    harvested(cut_off_shop)
    assert all(each.running for each in harvesters)
