"""Checkpoints as records of a compacted topic: which one is read, and which topics are refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewTopic,
)
from outbox_api import DriverError, Level, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.transactional_sender import KafkaTransactionalSender

from .kafka_access import alter_topic, checkpoint_of, values

Open = Callable[..., KafkaTransactionalSender]


@pytest.fixture
def checkpoints(kafka_bootstrap: str, topic: str) -> str:
    """A topic for checkpoints with one partition, so that all lanes share it."""
    return create(kafka_bootstrap, f"{topic}-checkpoints", "compact")


@pytest.fixture
def open_lane(kafka_bootstrap: str, topic: str, checkpoints: str) -> Open:
    def open_lane(lane: str, **settings: object) -> KafkaTransactionalSender:
        kafka = {"bootstrap.servers": kafka_bootstrap, **settings}
        return KafkaPublisher(KafkaOptions(kafka, checkpoints)).open_transactional(f"{topic}.{lane}")

    return open_lane


def create(bootstrap: str, name: str, policy: str) -> str:
    wanted = NewTopic(name, 1, config={"cleanup.policy": policy})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([wanted])[name].result()
    return name


def transactional(bootstrap: str, name: str) -> Producer:
    """Returns a producer in a transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    return producer


def test_a_checkpoint_far_behind_those_of_another_lane_is_found(
    kafka_bootstrap: str, checkpoints: str, open_lane: Open
) -> None:
    with closing(open_lane("quiet")) as quiet, closing(open_lane("silent")) as silent:
        assert quiet.publish([], "first") == []
        assert quiet.publish([], "second") == []
        busy = transactional(kafka_bootstrap, f"{checkpoints}-busy")
        for number in range(30_000):
            busy.produce(checkpoints, str(number), "busy", partition=0)
        busy.commit_transaction(20)
        assert checkpoint_of(quiet) == "second"
        assert checkpoint_of(silent) is None


def test_aborted_checkpoints_at_the_end_are_passed_over(
    kafka_bootstrap: str, topic: str, checkpoints: str, open_lane: Open
) -> None:
    with closing(open_lane("0")) as sender:
        assert sender.publish([], "before") == []
    aborted = transactional(kafka_bootstrap, f"outbox.{topic}.0")
    for number in range(500):
        aborted.produce(checkpoints, str(number), f"outbox.{topic}.0", partition=0)
    aborted.flush(20)
    with closing(open_lane("0")) as successor:
        assert checkpoint_of(successor) == "before"


def test_a_checkpoint_behind_an_open_transaction_of_another_lane_is_not_waited_for(
    kafka_bootstrap: str, checkpoints: str, open_lane: Open
) -> None:
    with closing(open_lane("0")) as sender:
        assert sender.publish([], "before") == []
        other = transactional(kafka_bootstrap, f"{checkpoints}-other")
        other.produce(checkpoints, "open", "other", partition=0)
        other.flush(20)
        assert sender.publish([], "after") == []
        assert checkpoint_of(sender) == "after"
        other.abort_transaction(20)


def test_the_checkpoint_of_an_aborted_attempt_is_read(
    kafka_bootstrap: str, topic: str, checkpoints: str, open_lane: Open
) -> None:
    with closing(open_lane("0")) as sender:
        assert sender.publish([], "before") == []
        assert sender.publish([MarkedRecord(1, topic, "k", "1" * 2_000_000)], "aborted") != []
    with closing(open_lane("0")) as successor:
        assert checkpoint_of(successor) == "aborted"


def test_a_topic_that_would_delete_checkpoints_is_refused(
    kafka_bootstrap: str, checkpoints: str, open_lane: Open
) -> None:
    alter_topic(kafka_bootstrap, checkpoints, "cleanup.policy", "delete")
    with pytest.raises(DriverError, match=r"cleanup.policy=delete.*kafka-configs") as caught:
        open_lane("0")
    assert not caught.value.retryable
    kafka = KafkaPublisher(KafkaOptions({"bootstrap.servers": kafka_bootstrap}, checkpoints))
    assert _finding(kafka, transactional=True) is Level.ERROR
    assert _finding(kafka, transactional=False) is None
    alter_topic(kafka_bootstrap, checkpoints, "cleanup.policy", "compact")
    assert _finding(kafka, transactional=True) is Level.OK
    open_lane("0").close()


def _finding(kafka: KafkaPublisher, *, transactional: bool) -> Level | None:
    found = {each.subject: each.level for each in kafka.check(transactional=transactional)}
    return found.get("Kafka checkpoints")


def test_a_topic_that_is_created_keeps_every_checkpoint(kafka_bootstrap: str, topic: str) -> None:
    name = f"{topic}-new"
    kafka = KafkaPublisher(KafkaOptions({"bootstrap.servers": kafka_bootstrap}, name))
    assert _finding(kafka, transactional=True) is Level.OK
    with closing(kafka.open_transactional(f"{topic}.0")) as sender:
        assert sender.publish([], "text") == []
        assert checkpoint_of(sender) == "text"
    assert _finding(kafka, transactional=True) is Level.OK
    [shown] = AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(name).topics.values()
    assert len(shown.partitions) > 8


def test_a_checkpoint_that_its_topic_refuses_is_no_fault_of_the_records(
    kafka_bootstrap: str, topic: str, checkpoints: str, open_lane: Open
) -> None:
    with closing(open_lane("0")) as sender:
        assert sender.publish([MarkedRecord(0, topic, "k", "1")], "before") == []
        alter_topic(kafka_bootstrap, checkpoints, "max.message.bytes", "1000")
        with pytest.raises(
            DriverError, match=f"checkpoint cannot be written to topic '{checkpoints}'"
        ) as caught:
            sender.publish([MarkedRecord(0, topic, "k", "2")], "".join(map(str, range(3000))))
        assert not caught.value.retryable
        # What a record is at fault for, it stays at fault for.
        [failure] = sender.publish([MarkedRecord(0, topic, "k", "3" * 2_000_000)], "small")
        assert not failure.retryable
        assert sender.publish([MarkedRecord(0, topic, "k", "4")], "small") == []
    assert values(kafka_bootstrap, topic, 1) == [1, 4]


def test_a_topic_that_was_deleted_is_said_to_be_gone(
    kafka_bootstrap: str, topic: str, checkpoints: str, open_lane: Open
) -> None:
    with closing(open_lane("0")) as sender:
        assert sender.publish([], "text") == []
        location = sender.location
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.delete_topics([checkpoints])[checkpoints].result()
    other = KafkaPublisher(KafkaOptions({"bootstrap.servers": kafka_bootstrap}))
    with closing(other.open_transactional(f"{topic}.0")) as sender:
        assert checkpoint_of(sender, location) is None
