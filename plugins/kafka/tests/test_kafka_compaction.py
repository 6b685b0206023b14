"""Compaction of the checkpoint topic keeps the last checkpoint of each lane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.transactional_sender import KafkaTransactionalSender

from .kafka_access import checkpoint_of

EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1",
    "delete.retention.ms": "0",
}
"""A topic whose segments are closed and compacted as soon as possible."""

SECONDS = 120.0
"""Seconds to wait for compaction."""

BACKOFF = "log.cleaner.backoff.ms"


def alter_broker(bootstrap: str, operation: AlterConfigOpType, value: str | None) -> None:
    """Changes how long the only broker waits between two looks for something to compact."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [broker] = admin.list_topics(timeout=20).brokers
    entry = ConfigEntry(BACKOFF, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


@pytest.fixture
def checkpoints(kafka_bootstrap: str, topic: str) -> Iterator[str]:
    """A topic for checkpoints with one partition, which the broker compacts at once."""
    name = f"{topic}-checkpoints"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1, config=EAGER)])[name].result(60)
    alter_broker(kafka_bootstrap, AlterConfigOpType.SET, "50")
    yield name
    alter_broker(kafka_bootstrap, AlterConfigOpType.DELETE, None)


def stored(bootstrap: str, topic: str) -> list[str]:
    """Returns the values of all records of a partition, also of aborted ones."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "all", "isolation.level": "read_uncommitted"}
    with closing(Consumer(settings)) as consumer:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        deadline = time.monotonic() + 60
        offset = -1
        while offset < end - 2:  # the last is the end of a transaction
            assert time.monotonic() < deadline
            if message := consumer.poll(1.0):
                found.append((message.value() or b"").decode())
                offset = message.offset() or 0
    return found


def abort(bootstrap: str, topic: str, key: str) -> None:
    """Writes records with the key of a lane in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-aborting"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, "aborted", key, partition=0)
    producer.flush(20)
    producer.abort_transaction(20)


def test_compaction_keeps_the_last_checkpoint_of_each_lane_among_aborted_ones(
    kafka_bootstrap: str, topic: str, checkpoints: str
) -> None:
    kafka = KafkaPublisher(KafkaOptions({"bootstrap.servers": kafka_bootstrap}, checkpoints))

    def lane(name: str) -> closing[KafkaTransactionalSender]:
        return closing(kafka.open_transactional(f"{topic}.{name}"))

    def surround(name: str, text: str) -> None:
        with lane(name) as sender:
            assert sender.publish([], f"{text} before") == []
            abort(kafka_bootstrap, checkpoints, f"outbox.{topic}.{name}")
            assert sender.publish([], text) == []
            abort(kafka_bootstrap, checkpoints, f"outbox.{topic}.{name}")

    surround("quiet", "quiet last")
    for turn in range(3):
        surround("busy", f"busy {turn}")
    # A segment is closed by the first record behind its age, so others follow until all before are compacted.
    deadline, gone = time.monotonic() + SECONDS, {"quiet last before", "busy 0", "busy 1", "aborted"}
    with lane("other") as other:
        for number in count():
            assert other.publish([], f"other {number}") == []
            left = stored(kafka_bootstrap, checkpoints)
            if gone.isdisjoint(left):
                break
            assert time.monotonic() < deadline, f"not compacted: {left}"
            time.sleep(0.1)
    assert left.count("quiet last") == left.count("busy 2") == 1
    for name, text in (("quiet", "quiet last"), ("busy", "busy 2"), ("other", f"other {number}")):
        with lane(name) as successor:
            assert checkpoint_of(successor) == text
