"""Requests that the network delays for longer than every timeout."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from outbox_api import DriverError, MarkedRecord
from outbox_servers.services.kafka import KafkaBroker

from .frame_proxy import PRODUCE, FrameProxy
from .kafka_access import checkpoint_of, consume, deliver, found, publisher

pytestmark = pytest.mark.slow


class Place:
    """A broker, and the proxy in front of it."""

    def __init__(self) -> None:
        self.proxy = FrameProxy(lambda: self.broker.proxied_port)
        # Like brokers before KIP-890, which do not verify that a transaction exists.
        verification = {"transaction.partition.verification.enable": "false"}
        # A producer aborts its transaction itself, before the broker would, even if a test delays it.
        patience = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000"}
        self.broker = KafkaBroker(proxy_port=self.proxy.port, properties=verification | patience)
        self.through = f"127.0.0.1:{self.proxy.port}"


@pytest.fixture(scope="module")
def location() -> Iterator[Place]:
    location = Place()
    with location.broker:
        yield location
    location.proxy.close()


def numbered(topic: str, *numbers: int) -> list[MarkedRecord]:
    return [MarkedRecord(number, topic, "k", str(number)) for number in numbers]


@pytest.mark.parametrize("restart", [True, False], ids=["restarted lane", "same lane"])
def test_what_the_network_delays_is_refused_behind_what_the_lane_has_sent_since(
    location: Place, topic: str, restart: bool
) -> None:
    kafka = publisher(location.through)
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    deliver(sender, *numbered(topic, 1))
    location.proxy.hold(PRODUCE)
    sender.send([MarkedRecord(2, topic, "k", "2")])
    assert location.proxy.held.wait(60)
    if restart:
        sender.close(0)
        sender = kafka.open("outbox.0")
    location.proxy.cut()
    deliver(sender, *numbered(topic, 2, 3, 4))
    location.proxy.release()
    # Once a later record is delivered, the broker has handled the delayed one.
    time.sleep(0.5)
    deliver(sender, *numbered(topic, 5))
    sender.close(5)
    there = arrived(location, topic)
    assert there == sorted(there)
    assert set(there) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("opened_first", [False, True])
def test_a_checkpoint_that_comes_after_its_transaction_was_aborted_leaves_no_doubt(
    location: Place, topic: str, monkeypatch: pytest.MonkeyPatch, opened_first: bool
) -> None:
    monkeypatch.setattr("outbox_kafka.checkpoint._MARGIN_SECONDS", 5.0)
    kafka = publisher(location.through, delivery_timeout_ms=1500, transaction_timeout_ms=2500)
    kafka.prepare([topic], 1)
    sender = kafka.open_transactional(topic)
    assert sender.publish([MarkedRecord(1, topic, "k", "1")], "first") == []
    location.proxy.hold(PRODUCE)
    late = MarkedRecord(2, topic, "k", "2")
    with contextlib.suppress(DriverError):  # whichever of the two requests it is that is held
        assert sender.publish([late], "second") != []
    assert location.proxy.held.is_set()
    sender.close()
    if opened_first:
        sender = kafka.open_transactional(topic)
    location.proxy.release()
    time.sleep(0.5)  # nothing shows that the broker has handled it
    if not opened_first:
        sender = kafka.open_transactional(topic)
    assert checkpoint_of(sender) == ("first" if opened_first else "second")
    assert found(sender, [late]) == []
    sender.close()


def arrived(location: Place, topic: str) -> list[int]:
    """Returns the numbers of all records of the topic."""
    reader = Consumer({"bootstrap.servers": location.broker.bootstrap, "group.id": "reader"})
    _, count = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    reader.close()
    return [int(message.value() or b"") for message in consume(location.broker.bootstrap, topic, count)]
