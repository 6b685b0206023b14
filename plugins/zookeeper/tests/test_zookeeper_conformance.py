"""The elector on ZooKeeper does what every elector must, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from outbox_servers.services import ZooKeeperServer
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest, ServiceUnderTest
from outbox_testkit.proxy import Proxy
from outbox_zookeeper import ZooKeeperOptions

SESSION = 3.0


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


class TestZooKeeper(ElectorConformance):
    @pytest.fixture
    def elector(self, server: ZooKeeperServer, topic: str) -> Iterator[ElectorUnderTest]:
        options = ZooKeeperOptions(hosts=server.hosts, leader_group_id=topic, session_timeout=SESSION)
        with Proxy(lambda: server.port) as proxy:
            proxied = replace(options, hosts=f"127.0.0.1:{proxy.port}")
            service = ServiceUnderTest(server.kill, server.start, proxy, proxied)
            yield ElectorUnderTest("zookeeper", options, SESSION, service)
