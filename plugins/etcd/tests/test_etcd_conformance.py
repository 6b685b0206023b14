"""The elector on etcd does what every elector must, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from outbox_etcd import EtcdOptions
from outbox_servers.services import EtcdServer
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest, ServiceUnderTest
from outbox_testkit.proxy import Proxy

SESSION = 3.0


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


class TestEtcd(ElectorConformance):
    @pytest.fixture
    def elector(self, server: EtcdServer, topic: str) -> Iterator[ElectorUnderTest]:
        options = EtcdOptions(topic, [server.endpoint], session_timeout=SESSION)
        with Proxy(lambda: server.port) as proxy:
            proxied = replace(options, endpoints=[f"127.0.0.1:{proxy.port}"])
            service = ServiceUnderTest(server.kill, server.start, proxy, proxied)
            yield ElectorUnderTest("etcd", options, SESSION, service, elections=30)
