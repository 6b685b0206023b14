"""Brokers that are unavailable, refuse, or do not have the topic."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    ResourceType,
)
from outbox_api import Deliveries, DriverError, Finding, Level, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.check import broker_findings
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.secured_kafka import SecuredKafka

from .kafka_access import alter_topic, deliver, gather, grant, publisher

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[KafkaBroker]:
    """A broker that does not create topics on first use."""
    with KafkaBroker(auto_create_topics=False) as broker:
        yield broker


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with SecuredKafka() as broker:
        yield broker


def test_only_the_record_that_is_too_large_fails(strict_broker: KafkaBroker, topic: str) -> None:
    kafka = publisher(strict_broker.bootstrap, linger_ms=100)
    kafka.prepare([topic], 1)
    alter_topic(strict_broker.bootstrap, topic, "max.message.bytes", "20000")
    sizes = [3000] * 10 + [30_000] + [3000] * 10
    records = [MarkedRecord(i, topic, f"k{i}", os.urandom(size)) for i, size in enumerate(sizes)]
    sender = kafka.open("outbox.0")
    sender.send(records)
    reports = gather(sender, len(records))
    assert sender.close(5) == Deliveries()
    assert sorted(reports.delivered) == [record for record in records if len(record.value or "") == 3000]
    [failure] = reports.failed
    assert failure.record == records[10]
    assert not failure.retryable
    assert "max.message.bytes" in failure.reason


def test_nobody_waits_for_a_broker_that_does_not_answer(strict_broker: KafkaBroker, topic: str) -> None:
    kafka = publisher(strict_broker.bootstrap, delivery_timeout_ms=1500)
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    deliver(sender, MarkedRecord(1, topic, "k", "v"))
    strict_broker.pause()
    began = time.monotonic()
    for number in range(20):
        sender.send([MarkedRecord(number, f"{topic}-{number}", "k", "v")])
        assert sender.poll(0) == Deliveries()
    assert time.monotonic() - began < 25, "as long as the deliveries of the 20 topics take"
    reports = gather(sender, 20)
    sender.close(0)
    strict_broker.resume()
    assert not reports.delivered
    assert all(failure.retryable for failure in reports.failed)


def test_broker_that_goes_and_comes_back(
    strict_broker: KafkaBroker, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    record = MarkedRecord(1, topic, "k", "v")
    kafka = publisher(strict_broker.bootstrap, delivery_timeout_ms=1500)
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    deliver(sender, record)
    strict_broker.stop()
    with caplog.at_level(logging.WARNING, "outbox.kafka"):
        sender.send([record])
        [failure] = gather(sender, 1).failed
    assert failure.retryable
    assert "timed out" in failure.reason
    assert any("brokers are down" in line for line in caplog.messages)
    strict_broker.start()
    deliver(sender, record)
    sender.close(5)


def test_nobody_there(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    monkeypatch.setattr("outbox_kafka.topics._TIMEOUT", 1.0)
    monkeypatch.setattr("outbox_kafka.check._TIMEOUT", 1.0)
    kafka = publisher(NOBODY)
    began = time.monotonic()
    sender = kafka.open("outbox.0")
    sender.send([MarkedRecord(1, topic, "k", "v")])
    assert sender.poll(0.1) == Deliveries()
    assert sender.close(0.3) == Deliveries()  # the outcome is unknown: no report
    assert time.monotonic() - began < 10
    with pytest.raises(DriverError, match=f"cannot reach Kafka at {NOBODY}") as caught:
        kafka.prepare([topic], 1)
    assert caught.value.retryable
    findings = kafka.check(transactional=True)
    assert [finding.subject for finding in findings if finding.level is Level.ERROR] == ["Kafka broker"]
    assert capfd.readouterr().err == ""


def test_wrong_password_ends_the_sender(secured: SecuredKafka, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "outbox.kafka")
    kafka = KafkaPublisher(KafkaOptions(secured.settings("hunter2")))
    sender = kafka.open("outbox.0")
    with pytest.raises(DriverError, match="check the credentials") as caught:
        sender.poll(60)
    assert not caught.value.retryable
    with pytest.raises(DriverError, match="check the credentials"):
        sender.send([])
    assert sender.close(1) == Deliveries()
    with pytest.raises(DriverError, match=r"cannot reach Kafka .* Authentication") as refused:
        kafka.prepare(["topic"], 1)
    assert not refused.value.retryable
    findings = kafka.check(transactional=False)
    assert [finding.level for finding in findings].count(Level.ERROR) == 1
    assert "hunter2" not in f"{caplog.text} {caught.value} {refused.value} {findings}"


def test_lack_of_permission_fails_the_record(secured: SecuredKafka, topic: str) -> None:
    publisher(secured.bootstrap).prepare([topic], 1)
    # Otherwise it is a race whether the topic or the producer as a whole is refused first.
    grant(secured, ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    kafka = KafkaPublisher(KafkaOptions(secured.settings("right")))
    sender = kafka.open("outbox.0")
    sender.send([MarkedRecord(1, topic, "k", "v")])
    [failure] = gather(sender, 1).failed
    sender.close(1)
    assert not failure.retryable
    assert "grant WRITE on the topic" in failure.reason
    with pytest.raises(DriverError, match="cannot create topic") as caught:
        kafka.prepare([f"{topic}-other"], 1)
    assert not caught.value.retryable
    findings = [each for each in kafka.check(transactional=True) if each.level is not Level.OK]
    assert [(each.subject, each.level) for each in findings] == [
        ("Kafka topics", Level.WARNING),
        ("Kafka checkpoints", Level.ERROR),
        ("Kafka transactional ids", Level.WARNING),
        ("Kafka broker settings", Level.WARNING),
    ]
    assert ["grant DESCRIBE_CONFIGS" in each.cure for each in findings] == [False, True, False, True]


def test_fatal_error_is_raised_after_the_reports_before_it(kafka_bootstrap: str, topic: str) -> None:
    sender = publisher(kafka_bootstrap).open("outbox.0")
    record = MarkedRecord(1, topic, "k", "v")
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence lost", fatal=True)
    sender._on_delivery(record, fatal, None)  # type: ignore[arg-type]  # a report that no broker makes on demand
    [failure] = sender.poll(0).failed
    assert failure.record == record
    assert failure.retryable
    with pytest.raises(DriverError, match="open a new sender") as caught:
        sender.poll(0)
    assert caught.value.retryable
    assert pickle.loads(pickle.dumps(caught.value)).retryable
    sender.close(1)


@pytest.mark.parametrize(
    ("broker", "brokers", "subject", "level"),
    [
        ({"default.replication.factor": "3", "min.insync.replicas": "1"}, 3, "replication", Level.WARNING),
        ({"default.replication.factor": "3", "min.insync.replicas": "2"}, 3, "replication", Level.OK),
        ({"default.replication.factor": "1", "min.insync.replicas": "2"}, 1, "replication", Level.ERROR),
        ({"unclean.leader.election.enable": "true"}, 3, "leader election", Level.WARNING),
        ({"auto.create.topics.enable": "false"}, 1, "topic creation", Level.OK),
    ],
)
def test_broker_settings_are_judged(broker: dict[str, str], brokers: int, subject: str, level: Level) -> None:
    [finding] = broker_findings(broker, brokers)
    assert (finding.subject, finding.level) == (f"Kafka {subject}", level)
    assert bool(finding.cure) == (level is not Level.OK)


def test_the_size_limit_of_a_topic_counts_and_not_the_brokers(kafka_bootstrap: str, topic: str) -> None:
    large, small = f"{topic}-large", f"{topic}-small"
    publisher(kafka_bootstrap).prepare([large, small], 1)
    alter_topic(kafka_bootstrap, large, "max.message.bytes", "5000000")

    def size(*topics: str) -> Finding:
        options = KafkaOptions(
            {"bootstrap.servers": kafka_bootstrap, "message.max.bytes": 5_000_000}, topics=topics
        )
        return next(
            each
            for each in KafkaPublisher(options).check(transactional=False)
            if each.subject == "Kafka message size"
        )

    assert size(large).level is Level.OK
    assert size(large).message == "the client sends up to 5,000,000 bytes, and topics take that"
    assert size(large, small).level is Level.OK
    assert f"'{small}' takes less, up to 1,048,588" in size(large, small).message
    assert size(small).level is Level.WARNING
    assert size(f"{topic}-missing").level is Level.WARNING
    assert "raise max.message.bytes of the topics" in size(small).cure


def test_late_delivery_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_kafka.check._TIMEOUT", 0.1)
    findings = publisher(NOBODY, delivery_timeout_ms=10_000).check(transactional=False)
    assert ("Kafka delivery timeout", Level.WARNING) in [(f.subject, f.level) for f in findings]
