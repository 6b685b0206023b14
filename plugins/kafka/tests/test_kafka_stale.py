"""What librdkafka has cached for five minutes of a topic does not decide what becomes of a later record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    NewPartitions,
    ResourceType,
)
from outbox_api import Failure, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_servers.services import Kafka
from outbox_servers.services.secured_kafka import SecuredKafka

from .kafka_access import gather, grant, publisher

PATIENCE = 100.0
"""Seconds; a cached answer would last for five minutes."""

Deliver = Callable[[MarkedRecord], list[Failure]]
"""Sends a record; returns its failure, if it fails."""


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with SecuredKafka() as broker:
        yield broker


def delivering(kafka: KafkaPublisher, *, transactional: bool) -> tuple[Deliver, Callable[[], object]]:
    """Opens a sender; returns how it delivers and how it is closed."""
    if transactional:
        opened = kafka.open_transactional("outbox.0")
        return lambda record: opened.publish([record], "ids"), opened.close
    sender = kafka.open("outbox.0")

    def deliver(record: MarkedRecord) -> list[Failure]:
        sender.send([record])
        return gather(sender, 1).failed

    return deliver, lambda: sender.close(0)


def until_delivered(deliver: Deliver, record: MarkedRecord) -> None:
    deadline = time.monotonic() + PATIENCE
    while failures := deliver(record):
        assert time.monotonic() < deadline, failures
        time.sleep(0.2)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_partition_that_was_added_is_used(kafka_broker: Kafka, topic: str, transactional: bool) -> None:
    kafka = publisher(kafka_broker.bootstrap)
    kafka.prepare([topic], 1)
    deliver, close = delivering(kafka, transactional=transactional)
    until_delivered(deliver, MarkedRecord(1, topic, "k", "v"))
    second = MarkedRecord(2, topic, "k", "v", partition=1)
    assert deliver(second)
    admin = kafka_broker.admin()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
    until_delivered(deliver, second)
    close()


@pytest.mark.parametrize("transactional", [False, True])
def test_a_permission_that_is_granted_is_used(secured: SecuredKafka, topic: str, transactional: bool) -> None:
    publisher(secured.bootstrap).prepare([topic], 1)
    grant(secured, ResourceType.TOPIC, "outbox.", AclOperation.ALL)
    grant(secured, ResourceType.TRANSACTIONAL_ID, "outbox.", AclOperation.ALL)
    kafka = KafkaPublisher(KafkaOptions(secured.settings("right")))
    if transactional:
        publisher(secured.bootstrap).open_transactional("warm").close()  # creates the topic of checkpoints
    deliver, close = delivering(kafka, transactional=transactional)
    record = MarkedRecord(1, topic, "k", "v")
    [failure] = deliver(record)
    assert "TOPIC_AUTHORIZATION_FAILED" in failure.reason
    grant(secured, ResourceType.TOPIC, topic, AclOperation.ALL)
    until_delivered(deliver, record)
    close()
