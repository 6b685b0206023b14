"""Partitions of keys: one for each key, and the same as Java clients choose if so configured."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from outbox_api import MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher

from .kafka_access import consume, gather

PARTITIONS = 12

MURMUR2: Mapping[str, int] = {
    # From the tests of Kafka's own Java client (UtilsTest.testMurmur2): key → hash.
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def partitions_of(bootstrap: str, topic: str, keys: list[str], **settings: str) -> dict[str, set[int]]:
    publisher = KafkaPublisher(KafkaOptions({"bootstrap.servers": bootstrap, **settings}))
    publisher.prepare([topic], PARTITIONS)
    sender = publisher.open("outbox.0")
    # Each in a request of its own: a sticky partitioner changes the partition between requests.
    for number, key in enumerate(keys):
        sender.send([MarkedRecord(number, topic, key, "v")])
        gather(sender, 1)
    sender.close(5)
    found: dict[str, set[int]] = {}
    for message in consume(bootstrap, topic, len(keys), PARTITIONS):
        name, partition = message.key(), message.partition()
        assert name is not None
        assert partition is not None
        found.setdefault(name.decode(), set()).add(partition)
    return found


@pytest.mark.parametrize("partitioner", ["murmur2", "murmur2_random"])
def test_murmur2_agrees_with_java(kafka_bootstrap: str, topic: str, partitioner: str) -> None:
    found = partitions_of(kafka_bootstrap, topic, list(MURMUR2), partitioner=partitioner)
    # Java's DefaultPartitioner: Utils.toPositive(hash) % partitions.
    assert found == {key: {(value & 0x7FFFFFFF) % PARTITIONS} for key, value in MURMUR2.items()}


@pytest.mark.parametrize("partitioner", [None, "consistent_random", "murmur2_random", "fnv1a_random"])
def test_every_key_has_one_partition(kafka_bootstrap: str, topic: str, partitioner: str | None) -> None:
    settings = {"partitioner": partitioner} if partitioner else {}
    keys = ["", "a", "b", "c"] * 8
    found = partitions_of(kafka_bootstrap, topic, keys, **settings, **{"sticky.partitioning.linger.ms": "0"})
    assert {key: len(partitions) for key, partitions in found.items()} == {"": 1, "a": 1, "b": 1, "c": 1}
