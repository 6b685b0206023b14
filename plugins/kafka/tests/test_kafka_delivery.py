"""What a sender does with records, against a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.sender import KafkaSender
from outbox_sdk import Deliveries, Failure, Header, MarkedRecord


def open_sender(bootstrap: str, **settings: object) -> KafkaSender:
    kafka = {
        "bootstrap.servers": bootstrap,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return KafkaPublisher(KafkaOptions(kafka)).open("outbox.0")


def gather(sender: KafkaSender, count: int, limit: float = 20) -> Deliveries:
    gathered, deadline = Deliveries(), time.monotonic() + limit
    while len(gathered.delivered) + len(gathered.failed) < count:
        assert time.monotonic() < deadline, f"only {gathered} after {limit} s"
        reports = sender.poll(1)
        gathered.delivered += reports.delivered
        gathered.failed += reports.failed
    return gathered


def consume(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages: list[Message] = []
    deadline = time.monotonic() + 20
    while len(messages) < count:
        assert time.monotonic() < deadline
        messages += consumer.consume(count - len(messages), timeout=0.5)
    consumer.close()
    return messages


def test_record_arrives_byte_for_byte(kafka_bootstrap: str, topic: str) -> None:
    headers: list[Header] = [("a", "1"), ("a", b"\x00\xff"), ("ü", "é"), ("none", None), ("empty", "")]
    records = [
        MarkedRecord(1, topic, "ключ", "wert ✓", headers),
        MarkedRecord(2, topic, "", b"\x00\x01", tuple(headers)),
        MarkedRecord(3, topic, "tomb", None),
        MarkedRecord(4, topic, "blank", "", timestamp_ms=1_600_000_000_123),
    ]
    sender = open_sender(kafka_bootstrap)
    sender.send(records)
    assert gather(sender, 4) == Deliveries(delivered=records)
    assert sender.close(5) == Deliveries()
    first, second, third, fourth = consume(kafka_bootstrap, topic, 4)
    sent = [("a", b"1"), ("a", b"\x00\xff"), ("ü", "é".encode()), ("none", None), ("empty", b"")]
    assert (first.key(), first.value(), first.headers()) == ("ключ".encode(), "wert ✓".encode(), sent)
    assert (second.key(), second.value(), second.headers()) == (b"", b"\x00\x01", sent)
    assert (third.key(), third.value(), third.headers()) == (b"tomb", None, None)
    assert (fourth.key(), fourth.value(), fourth.timestamp()[1]) == (b"blank", b"", 1_600_000_000_123)


@pytest.mark.parametrize(
    "faulty",
    [
        MarkedRecord(1, "not a topic!", "k", "v"),
        MarkedRecord(1, "", "k", "v"),
        MarkedRecord(1, "t\0t", "k", "v"),
        MarkedRecord(1, "{topic}", "k", "\ud800"),
        MarkedRecord(1, "{topic}", "k", "v", [("h", 1)]),  # type: ignore[list-item]  # the fault itself
        MarkedRecord(1, "{topic}", "k", "v" * 2_000_000),
        MarkedRecord(1, "{topic}", "k", "v", partition=99),
        MarkedRecord(1, "{topic}", "k", "v", partition=2**40),
        MarkedRecord(1, "{topic}", "k", "v", timestamp_ms=2**70),
    ],
    ids=[
        "bad topic",
        "no topic",
        "nul",
        "surrogate",
        "header",
        "large",
        "partition",
        "far partition",
        "timestamp",
    ],
)
def test_record_that_cannot_be_sent_fails_alone(
    kafka_bootstrap: str, topic: str, faulty: MarkedRecord
) -> None:
    faulty = faulty._replace(topic=faulty.topic.replace("{topic}", topic))
    sound = MarkedRecord(2, topic, "k", "v")
    sender = open_sender(kafka_bootstrap)
    sender.send([faulty, sound])
    reports = gather(sender, 2)
    sender.close(5)
    assert reports.delivered == [sound]
    assert [(failure.record, failure.retryable) for failure in reports.failed] == [(faulty, False)]


def test_full_queue_fails_the_rest_of_the_batch(kafka_bootstrap: str, topic: str) -> None:
    sender = open_sender(kafka_bootstrap, queue_buffering_max_messages=3, linger_ms=200)
    records = [MarkedRecord(i, topic, f"k{i}", "v") for i in range(6)]
    sender.send(records)
    reports = gather(sender, 6)
    sender.close(5)
    assert reports.delivered == records[:3]
    assert reports.failed == [Failure(record, "Local: Queue full", retryable=True) for record in records[3:]]
