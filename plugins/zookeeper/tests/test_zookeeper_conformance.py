"""The election on ZooKeeper does what every elector must, on a real server."""

from __future__ import annotations

import pytest
from outbox_servers.services import ZooKeeper
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest
from outbox_zookeeper import ZooKeeperOptions

SESSION = 3.0


class TestZooKeeper(ElectorConformance):
    @pytest.fixture
    def elector(self, zookeeper_server: ZooKeeper, topic: str) -> ElectorUnderTest:
        options = ZooKeeperOptions(
            hosts=zookeeper_server.hosts, leader_group_id=topic, session_timeout=SESSION
        )
        return ElectorUnderTest("zookeeper", options, SESSION)
