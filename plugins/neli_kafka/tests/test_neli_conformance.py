"""NELI does what every elector must, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from outbox_neli_kafka import NeliOptions
from outbox_servers.services import KafkaBroker
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest, ServiceUnderTest
from outbox_testkit.proxy import Proxy

SESSION = 4.0
"""Seconds: short, but more than the pauses of a busy machine; by default brokers permit 6 s."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[KafkaBroker, Proxy]]:
    """A broker, and a proxy to it that it tells its clients to use, if they come that way."""
    brokers: list[KafkaBroker] = []
    with Proxy(lambda: brokers[0].proxied_port) as proxy, KafkaBroker(proxy_port=proxy.port) as broker:
        brokers.append(broker)
        yield broker, proxy


class TestNeli(ElectorConformance):
    @pytest.fixture
    def elector(self, kafka: tuple[KafkaBroker, Proxy], topic: str) -> ElectorUnderTest:
        broker, proxy = kafka

        def options(bootstrap: str) -> NeliOptions:
            return NeliOptions(
                {"bootstrap.servers": bootstrap}, leader_group_id=topic, session_timeout=SESSION
            )

        proxied = options(f"127.0.0.1:{proxy.port}")
        return ElectorUnderTest(
            "neli-kafka",
            options(broker.bootstrap),
            SESSION,
            ServiceUnderTest(broker.kill, broker.start, proxy, proxied),
            elections=8,  # 200 take minutes on a busy machine, as a group of ten settles twice for each
        )
