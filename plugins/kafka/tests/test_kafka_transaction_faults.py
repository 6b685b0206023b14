"""Transactions against brokers that freeze, die, or refuse."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    ResourceType,
)
from outbox_api import AccessDenied, DriverError, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.secured_kafka import SecuredKafka

from .kafka_access import checkpoint_of, committed, found, grant, publisher

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that tests freeze and kill."""
    with KafkaBroker() as broker:
        yield broker


@pytest.mark.parametrize("fault", ["freeze", "kill"])
@pytest.mark.parametrize("moment", ["deliver", "commit"])
def test_lost_broker_is_an_error_in_bounded_time_and_later_the_checkpoint_tells(
    broker: KafkaBroker, topic: str, fault: str, moment: str
) -> None:
    kafka = publisher(broker.bootstrap, delivery_timeout_ms=2000, transaction_timeout_ms=4000)
    kafka.prepare([topic], 1)
    sender = kafka.open_transactional(f"{topic}.0")
    assert sender.publish([MarkedRecord(1, topic, "k", "1")], "first") == []
    strike = broker.pause if fault == "freeze" else broker.kill
    commit = sender._producer.commit

    def struck(deadline: float) -> None:
        strike()
        commit(deadline)

    if moment == "commit":
        sender._producer.commit = struck  # type: ignore[method-assign]
    else:
        strike()
    began = time.monotonic()
    records = [MarkedRecord(number, topic, "k", str(number)) for number in range(2, 12)]
    try:
        failures = sender.publish(records, "second")
    except DriverError as error:
        assert error.retryable  # noqa: PT017 - one of two outcomes
        assert "is unknown" in str(error)  # noqa: PT017
    else:
        # If nothing had reached the broker, there was nothing to abort.
        assert moment == "deliver"
        assert failures
        assert all(failure.retryable for failure in failures)
    sender.close()
    assert time.monotonic() - began < 60
    if fault == "freeze":
        broker.resume()
    else:
        broker.start()
    successor = _open_at_last(kafka, f"{topic}.0")
    arrived = found(successor, records)
    assert not arrived or moment == "commit"
    assert successor.publish([MarkedRecord(99, topic, "k", "99")], "third") == []
    successor.close()
    there = [int(message.value() or b"") for message in committed(broker.bootstrap, topic, 1)]
    assert there == [1, *arrived, 99]


def _open_at_last(kafka: KafkaPublisher, lane: str):
    for _ in range(3):
        try:
            return kafka.open_transactional(lane)
        except DriverError as error:
            assert error.retryable  # noqa: PT017
    return kafka.open_transactional(lane)


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with SecuredKafka() as broker:
        yield broker


def test_every_permission_that_is_missing_is_named(secured: SecuredKafka, topic: str) -> None:
    kafka = KafkaPublisher(KafkaOptions(secured.settings("right")))
    free = publisher(secured.bootstrap)
    free.prepare([topic, f"{topic}-other"], 1)
    free.open_transactional("warm").close()  # creates the topic of the checkpoints

    def refusal() -> str:
        with pytest.raises(AccessDenied) as caught:
            kafka.open_transactional("a")
        assert not caught.value.retryable
        return str(caught.value)

    grant(secured, ResourceType.TOPIC, "outbox.checkpoints", AclOperation.DESCRIBE)
    assert "grant DESCRIBE_CONFIGS on the topic" in refusal()
    grant(secured, ResourceType.TOPIC, "outbox.checkpoints", AclOperation.DESCRIBE_CONFIGS)
    assert "transactional id" in refusal()
    grant(secured, ResourceType.TRANSACTIONAL_ID, "outbox.", AclOperation.WRITE, AclOperation.DESCRIBE)
    # One topic is visible but not writable, the other is writable.
    grant(secured, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    grant(secured, ResourceType.TOPIC, f"{topic}-other", AclOperation.WRITE)
    other = MarkedRecord(1, f"{topic}-other", "o", "v")
    assert "checkpoint cannot be written to topic 'outbox.checkpoints'" in refusal()
    grant(secured, ResourceType.TOPIC, "outbox.checkpoints", AclOperation.WRITE)
    sender = kafka.open_transactional("a")
    assert sender.publish([], "none") == []
    with pytest.raises(AccessDenied, match="grant READ on the topic"):
        checkpoint_of(sender)
    grant(secured, ResourceType.TOPIC, "outbox.checkpoints", AclOperation.READ)
    assert checkpoint_of(sender) == "none"  # needs no permission for any group
    [failure] = sender.publish([other, MarkedRecord(2, topic, "k", "v"), other], "none")
    assert failure.record.id == 2
    assert not failure.retryable
    assert "grant WRITE on the topic" in failure.reason
    assert sender.publish([other], "some") == []
    with pytest.raises(AccessDenied, match="grant READ on the topic"):
        found(sender, [other])
    grant(secured, ResourceType.TOPIC, f"{topic}-other", AclOperation.READ)
    assert found(sender, [other]) == [1]
    sender.close()
