"""Records that the client reports as delivered because of later ones, although the broker refused them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
from outbox_api import Deliveries, MarkedRecord
from outbox_kafka.sender import KafkaSender
from outbox_servers.services.kafka import KafkaBroker

from .frame_proxy import FrameProxy, first_refused
from .kafka_access import alter_topic, consume, deliver, gather, publisher

pytestmark = pytest.mark.slow

_EXPIRATION_SECONDS = 1.0
_ONE_BY_ONE = {"linger_ms": 0, "batch_num_messages": 1}


class Proxied(NamedTuple):
    """A broker that forgets producers quickly, and the proxy in front of it."""

    broker: KafkaBroker
    proxy: FrameProxy

    def open(self, topic: str, settings: Mapping[str, object]) -> KafkaSender:
        kafka = publisher(f"127.0.0.1:{self.proxy.port}", **settings)
        kafka.prepare([topic], 1)
        return kafka.open("outbox.0")

    def check(self, sender: KafkaSender, records: list[MarkedRecord], reports: Deliveries) -> None:
        """Checks that the first record is reported as what it is, and that it comes once it is sent again."""
        first, *others = records
        assert reports.delivered == others
        [failure] = reports.failed
        assert failure.record == first
        assert failure.retryable
        assert "without an offset" in failure.reason
        deliver(sender, first)
        assert self.keys(first.topic, len(records)) == [each.key for each in (*others, first)]

    def keys(self, topic: str, count: int) -> list[str]:
        """Returns the keys of the topic's first messages."""
        messages = consume(self.broker.bootstrap, topic, count)
        return [(message.key() or b"").decode() for message in messages]


@pytest.fixture(scope="module")
def proxied() -> Iterator[Proxied]:
    proxy = FrameProxy(lambda: broker.proxied_port)
    forgetting = {
        "producer.id.expiration.ms": str(round(1000 * _EXPIRATION_SECONDS)),
        "producer.id.expiration.check.interval.ms": "100",
    }
    with KafkaBroker(proxy_port=proxy.port, properties=forgetting) as broker:
        yield Proxied(broker, proxy)
    proxy.close()


def made(topic: str, size: int, count: int = 5) -> list[MarkedRecord]:
    """Returns records with a key each, whose values do not compress."""
    values = random.Random(1)
    return [MarkedRecord(number, topic, str(number), values.randbytes(size)) for number in range(count)]


@pytest.mark.parametrize(
    ("settings", "size"), [(_ONE_BY_ONE, 10), ({}, 600_000)], ids=["batches of one", "default batches"]
)
def test_refused_first_request_of_a_producer(
    proxied: Proxied, topic: str, settings: Mapping[str, object], size: int
) -> None:
    sender, records = proxied.open(topic, settings), made(topic, size)
    proxied.proxy.alter_request = first_refused(topic)
    sender.send(records)
    proxied.check(sender, records, gather(sender, len(records)))
    sender.close(5)


def test_refused_request_of_a_producer_that_the_broker_has_forgotten(proxied: Proxied, topic: str) -> None:
    sender, records = proxied.open(topic, _ONE_BY_ONE), made(topic, 10)
    deliver(sender, MarkedRecord(99, topic, "before", ""))
    time.sleep(_EXPIRATION_SECONDS + 1)
    proxied.proxy.alter_request = first_refused(topic)
    sender.send(records)
    reports = gather(sender, len(records))
    deliver(sender, records[0])
    assert [failure.record for failure in reports.failed] == records[:1]
    assert proxied.keys(topic, 6) == ["before", "1", "2", "3", "4", "0"]
    sender.close(5)


def test_refused_first_request_of_the_producer_without_batches(proxied: Proxied, topic: str) -> None:
    sender, records = proxied.open(topic, {}), made(topic, 40_000)
    alter_topic(proxied.broker.bootstrap, topic, "max.message.bytes", "100000")
    proxied.proxy.alter_request = first_refused(topic, client=".unbatched")
    sender.send(records)
    proxied.check(sender, records, gather(sender, len(records)))
    sender.close(5)


def test_sender_that_is_closed_meanwhile(proxied: Proxied, topic: str) -> None:
    sender, records = proxied.open(topic, _ONE_BY_ONE), made(topic, 10)
    proxied.proxy.alter_request = first_refused(topic)
    sender.send(records)
    reports = sender.close(10)
    sender = proxied.open(topic, _ONE_BY_ONE)
    proxied.check(sender, records, reports)
    sender.close(5)
