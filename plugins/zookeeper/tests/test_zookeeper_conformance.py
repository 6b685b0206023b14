"""The elector on ZooKeeper does what every elector must, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from outbox_servers.services import ZooKeeper, ZooKeeperServer
from outbox_testkit.conformance import ElectorUnderTest, ServiceUnderTest
from outbox_testkit.conformance.failover import FailoverConformance
from outbox_testkit.conformance.handover import HandOverConformance
from outbox_testkit.proxy import Proxy
from outbox_zookeeper import ZooKeeperOptions

pytestmark = pytest.mark.slow

SESSION = 8.0
"""Seconds: a leader that a busy machine halts for three seconds leads on."""


class TestZooKeeper(HandOverConformance):
    @pytest.fixture
    def elector(self, zookeeper_server: ZooKeeper, topic: str) -> ElectorUnderTest:
        options = ZooKeeperOptions(zookeeper_server.hosts, leader_group_id=topic, session_timeout=SESSION)
        return ElectorUnderTest("zookeeper", options, SESSION, elections=50)

    test_a_killed_leader_is_replaced_whoever_joins_meanwhile = (
        FailoverConformance.test_a_killed_leader_is_replaced_whoever_joins_meanwhile
    )
    test_who_comes_and_goes_does_not_disturb_the_leader = None  # type: ignore[assignment]  # slow: see below


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.mark.slow
class TestZooKeeperFailover(FailoverConformance):
    @pytest.fixture
    def elector(self, server: ZooKeeperServer, topic: str) -> Iterator[ElectorUnderTest]:
        options = ZooKeeperOptions(server.hosts, leader_group_id=topic, session_timeout=SESSION)
        with Proxy(lambda: server.port) as proxy:
            proxied = replace(options, hosts=f"127.0.0.1:{proxy.port}")
            service = ServiceUnderTest(server.kill, server.start, proxy, proxied)
            yield ElectorUnderTest("zookeeper", options, SESSION, service)

    test_a_killed_leader_is_replaced_whoever_joins_meanwhile = None  # type: ignore[assignment]  # see above
    test_who_comes_and_goes_does_not_disturb_the_leader = (
        HandOverConformance.test_who_comes_and_goes_does_not_disturb_the_leader
    )
