"""Requests that the network delays for longer than anybody waits for them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from outbox_kafka.sender import KafkaSender
from outbox_sdk import MarkedRecord
from outbox_testkit.services.kafka import KafkaBroker

from .frame_proxy import PRODUCE, FrameProxy
from .kafka_talk import consume, gather, publisher


class Place:
    """A broker, and the proxy before it."""

    def __init__(self) -> None:
        self.proxy = FrameProxy(lambda: self.broker.proxied_port)
        self.broker = KafkaBroker(proxy_port=self.proxy.port)
        self.through = f"127.0.0.1:{self.proxy.port}"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place()
    with place.broker:
        yield place
    place.proxy.close()


def deliver(sender: KafkaSender, topic: str, *numbers: int) -> None:
    """Sends records one after the other, each until it is delivered."""
    deadline = time.monotonic() + 60
    for number in numbers:
        sender.send([MarkedRecord(number, topic, "k", str(number))])
        while not gather(sender, 1).delivered:
            assert time.monotonic() < deadline
            sender.send([MarkedRecord(number, topic, "k", str(number))])


@pytest.mark.parametrize("restart", [True, False], ids=["restarted lane", "same lane"])
def test_what_the_network_delays_is_refused_behind_what_the_lane_has_sent_since(
    place: Place, topic: str, restart: bool
) -> None:
    kafka = publisher(place.through)
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    deliver(sender, topic, 1)
    place.proxy.hold(PRODUCE)
    sender.send([MarkedRecord(2, topic, "k", "2")])
    assert place.proxy.held.wait(10)
    if restart:
        sender.close(0)
        sender = kafka.open("outbox.0")
    place.proxy.cut()
    deliver(sender, topic, 2, 3, 4)
    place.proxy.release()
    # A record behind the delayed one shows that the broker has looked at that.
    time.sleep(0.5)
    deliver(sender, topic, 5)
    sender.close(5)
    there = arrived(place, topic)
    assert there == sorted(there)
    assert set(there) == {1, 2, 3, 4, 5}


def arrived(place: Place, topic: str) -> list[int]:
    """Returns the numbers of all records of the topic."""
    reader = Consumer({"bootstrap.servers": place.broker.bootstrap, "group.id": "reader"})
    _, count = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    reader.close()
    return [int(message.value() or b"") for message in consume(place.broker.bootstrap, topic, count)]
