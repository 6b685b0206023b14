"""Values that Kafka's client could take for others: they arrive as they are, and a search finds them."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Message
from outbox_api import MarkedRecord
from outbox_kafka.matches import octets

from .kafka_access import committed, consume, deliver, publisher

PARTITIONS = 2
SOUND = [
    MarkedRecord(1, "", "empty header", "v", [("", "x")]),
    MarkedRecord(2, "", "header without a value", "v", [("a", None)]),
    MarkedRecord(3, "", "headers without content", "v", [("a", ""), ("a", b"")]),
    MarkedRecord(4, "", "header with NUL", "v", [("a", "x\0y"), ("a", b"x\0y"), ("b", "z")]),
    MarkedRecord(5, "", "", "the empty key"),
    MarkedRecord(6, "", "a\0b", "a\0b"),
    MarkedRecord(7, "", "tombstone", None),
    MarkedRecord(8, "", "no content", ""),
    MarkedRecord(9, "", "no bytes", b""),
    MarkedRecord(10, "", "partition 0", "v", partition=0),
    MarkedRecord(11, "", "partition 1", "v", partition=1),
    MarkedRecord(12, "", "1970", "v", timestamp_ms=1),
]
"""Records whose topic is missing."""


def content(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.headers() or []


def as_sent(record: MarkedRecord) -> tuple[object, ...]:
    headers = [(name, octets(value)) for name, value in record.headers]
    return octets(record.key), octets(record.value), headers


@pytest.fixture
def sound(kafka_bootstrap: str, topic: str) -> list[MarkedRecord]:
    publisher(kafka_bootstrap).prepare([topic], PARTITIONS)
    return [record._replace(topic=topic) for record in SOUND]


def test_odd_values_arrive_as_they_are(kafka_bootstrap: str, topic: str, sound: list[MarkedRecord]) -> None:
    sender = publisher(kafka_bootstrap).open("outbox.0")
    deliver(sender, *sound)
    sender.close(5)
    arrived = consume(kafka_bootstrap, topic, len(sound), PARTITIONS)
    assert sorted(map(repr, map(content, arrived))) == sorted(map(repr, map(as_sent, sound)))


def test_odd_values_of_a_transaction_arrive_as_they_are_and_are_found(
    kafka_bootstrap: str, topic: str, sound: list[MarkedRecord]
) -> None:
    kafka = publisher(kafka_bootstrap)
    with closing(kafka.open_transactional(topic)) as sender:
        assert sender.publish(sound, "batch") == []
    arrived = committed(kafka_bootstrap, topic, PARTITIONS)
    assert sorted(map(repr, map(content, arrived))) == sorted(map(repr, map(as_sent, sound)))
    with closing(kafka.open_transactional(topic)) as sender:
        attempt = sender.attempt()
        assert attempt is not None
        found = sender.find(sound, attempt.trace)
    assert sorted(found.published) == [record.id for record in sound]
    assert not found.undecided
