"""How the tests talk to Kafka."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message, TopicPartition
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.sender import KafkaSender
from outbox_sdk import Deliveries


def publisher(bootstrap: str, **settings: object) -> KafkaPublisher:
    """Makes a publisher; settings are named with underscores for dots."""
    kafka = {
        "bootstrap.servers": bootstrap,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return KafkaPublisher(KafkaOptions(kafka))


def gather(sender: KafkaSender, count: int, limit: float = 20) -> Deliveries:
    """Polls until ``count`` records are reported."""
    gathered, deadline = Deliveries(), time.monotonic() + limit
    while len(gathered.delivered) + len(gathered.failed) < count:
        assert time.monotonic() < deadline, f"only {gathered} after {limit} s"
        reports = sender.poll(1)
        gathered.delivered += reports.delivered
        gathered.failed += reports.failed
    return gathered


def consume(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    """Reads ``count`` messages from the topic's beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages: list[Message] = []
    deadline = time.monotonic() + 20
    while len(messages) < count:
        assert time.monotonic() < deadline
        messages += consumer.consume(count - len(messages), timeout=0.5)
    consumer.close()
    return messages
