"""NELI does what every elector must, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from outbox_neli_kafka import NeliOptions
from outbox_servers.services import KafkaBroker
from outbox_testkit.conformance import ElectorUnderTest, ServiceUnderTest
from outbox_testkit.conformance.failover import FailoverConformance
from outbox_testkit.conformance.handover import HandOverConformance
from outbox_testkit.proxy import Proxy

pytestmark = pytest.mark.slow

SESSION = 8.0
"""Seconds: a leader that a busy machine halts for three seconds leads on."""


def options(bootstrap: str, group: str) -> NeliOptions:
    return NeliOptions({"bootstrap.servers": bootstrap}, leader_group_id=group, session_timeout=SESSION)


class TestNeli(HandOverConformance):
    @pytest.fixture
    def elector(self, kafka_bootstrap: str, topic: str) -> ElectorUnderTest:
        return ElectorUnderTest("neli-kafka", options(kafka_bootstrap, topic), SESSION)

    test_a_killed_leader_is_replaced_whoever_joins_meanwhile = (
        FailoverConformance.test_a_killed_leader_is_replaced_whoever_joins_meanwhile
    )
    test_who_comes_and_goes_does_not_disturb_the_leader = None  # type: ignore[assignment]  # slow: see below
    test_leadership_passes_through_hundreds_of_candidates = None  # type: ignore[assignment]  # likewise


@pytest.fixture(scope="module")
def kafka() -> Iterator[tuple[KafkaBroker, Proxy]]:
    """A broker, and a proxy to it that it tells its clients to use, if they come that way."""
    brokers: list[KafkaBroker] = []
    with Proxy(lambda: brokers[0].proxied_port) as proxy, KafkaBroker(proxy_port=proxy.port) as broker:
        brokers.append(broker)
        yield broker, proxy


@pytest.mark.slow
class TestNeliFailover(FailoverConformance):
    @pytest.fixture
    def elector(self, kafka: tuple[KafkaBroker, Proxy], topic: str) -> ElectorUnderTest:
        broker, proxy = kafka
        service = ServiceUnderTest(
            broker.kill, broker.start, proxy, options(f"127.0.0.1:{proxy.port}", topic)
        )
        # 200 elections take minutes on a busy machine, as a group of ten settles twice for each.
        return ElectorUnderTest("neli-kafka", options(broker.bootstrap, topic), SESSION, service, elections=8)

    test_a_killed_leader_is_replaced_whoever_joins_meanwhile = None  # type: ignore[assignment]  # see above
    test_who_comes_and_goes_does_not_disturb_the_leader = (
        HandOverConformance.test_who_comes_and_goes_does_not_disturb_the_leader
    )
    test_leadership_passes_through_hundreds_of_candidates = (
        HandOverConformance.test_leadership_passes_through_hundreds_of_candidates
    )
