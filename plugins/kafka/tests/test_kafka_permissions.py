"""`outbox check` finds permissions that are missing for topics and transactional ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    ResourceType,
)
from outbox_api import Finding, Level
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.check_topics import topic_findings, topics_to_check
from outbox_kafka.check_transactions import judged
from outbox_kafka.topics import Access
from outbox_servers.services.secured_kafka import SecuredKafka

from .kafka_access import grant, publisher


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with SecuredKafka() as broker:
        yield broker


def check(broker: SecuredKafka, subject: str, *topics: str, transactional: bool = False) -> Sequence[Finding]:
    kafka = KafkaPublisher(KafkaOptions(broker.settings("right"), topics=topics or ("*",)))
    return [each for each in kafka.check(transactional=transactional) if each.subject == subject]


def test_a_topic_that_may_not_be_written_to_is_found(secured: SecuredKafka, topic: str) -> None:
    seen, writable, hidden = f"{topic}-seen", f"{topic}-writable", f"{topic}-hidden"
    publisher(secured.bootstrap).prepare([seen, writable, hidden, "outbox-x.neli"], 1)
    [finding] = check(secured, "Kafka topics")
    assert finding.level is Level.WARNING
    assert "user 'app' sees no topic" in finding.message

    grant(secured, ResourceType.TOPIC, seen, AclOperation.DESCRIBE)
    grant(secured, ResourceType.TOPIC, "outbox", AclOperation.DESCRIBE)  # not topics of records
    [finding] = check(secured, "Kafka topics")
    assert finding.level is Level.WARNING
    assert f"user 'app' may not write to '{seen}'" in finding.message
    assert f"--allow-principal User:app --operation Write --topic {seen}" in finding.cure

    grant(secured, ResourceType.TOPIC, writable, AclOperation.WRITE)
    refused, permitted = check(secured, "Kafka topics", hidden, f"{topic}-w*")
    assert (refused.level, permitted.level) == (Level.ERROR, Level.OK)
    assert f"user 'app' may not write to '{hidden}'" in refused.message
    assert f"user 'app' may write to '{writable}'" in permitted.message
    grant(secured, ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    [idempotence] = check(secured, "Kafka idempotence", seen)
    assert idempotence.level is Level.WARNING
    [idempotence] = check(secured, "Kafka idempotence")
    assert idempotence.level is Level.OK
    assert "permitted by WRITE on a topic" in idempotence.message
    [missing] = check(secured, "Kafka topics", f"{writable}-later")
    assert missing.level is Level.OK
    assert "not created yet" in missing.message


def test_a_topic_that_may_be_written_to_and_not_read_is_found_for_exactly_once(
    secured: SecuredKafka, topic: str
) -> None:
    name = f"{topic}-unreadable"
    publisher(secured.bootstrap).prepare([name], 1)
    grant(secured, ResourceType.TOPIC, name, AclOperation.WRITE)
    [finding] = check(secured, "Kafka topics", name)
    assert finding.level is Level.OK, "at-least-once delivery reads nothing"
    [finding] = check(secured, "Kafka topics", name, transactional=True)
    assert finding.level is Level.ERROR
    assert f"user 'app' may not read '{name}'" in finding.message
    assert f"--allow-principal User:app --operation Read --topic {name}" in finding.cure
    [finding] = check(secured, "Kafka topics", f"{topic}-unread*", transactional=True)
    assert finding.level is Level.WARNING
    grant(secured, ResourceType.TOPIC, name, AclOperation.READ)
    [finding] = check(secured, "Kafka topics", name, transactional=True)
    assert finding.level is Level.OK


def test_topics_for_dead_letters_that_may_not_be_written_to_are_found(
    secured: SecuredKafka, topic: str
) -> None:
    seen, missing = f"{topic}-letters-seen", f"{topic}-letters-missing"
    publisher(secured.bootstrap).prepare([seen], 1)
    grant(secured, ResourceType.TOPIC, f"{topic}-letters", AclOperation.DESCRIBE)
    options = KafkaOptions(secured.settings("right"), dead_letter_topics=[seen, missing])

    def findings() -> Sequence[Finding]:
        found = KafkaPublisher(options).check(transactional=False)
        return [each for each in found if each.subject == "Kafka dead letters"]

    refused, absent = findings()
    assert refused.level is absent.level is Level.WARNING
    assert f"user 'app' may not write to '{seen}': dead letters are in their table only" in refused.message
    assert f"--allow-principal User:app --operation Write --topic {seen}" in refused.cure
    assert f"'{missing}' not created yet" in absent.message
    grant(secured, ResourceType.TOPIC, f"{topic}-letters", AclOperation.WRITE)
    [absent] = findings()
    publisher(secured.bootstrap).prepare([missing], 1)
    [fine] = findings()
    assert (fine.level, fine.message) == (Level.OK, f"copies go to '{seen}', '{missing}'")


def test_a_transactional_id_that_may_not_be_used_is_found(secured: SecuredKafka) -> None:
    publisher(secured.bootstrap).open_transactional("warm").close()  # creates the log of transactions
    subject = "Kafka transactional ids"
    [finding] = check(secured, subject, transactional=True)
    assert finding.level is Level.WARNING
    assert "--transactional-id outbox. --resource-pattern-type prefixed" in finding.cure
    grant(secured, ResourceType.TRANSACTIONAL_ID, "outbox.", AclOperation.WRITE, AclOperation.DESCRIBE)
    [finding] = check(secured, subject, transactional=True)
    assert finding.level is Level.OK
    assert check(secured, subject) == []


def test_which_topics_are_checked() -> None:
    visible = ["sales", "stock", "__consumer_offsets", "outbox-public.outbox-1.neli", "checkpoints"]
    assert topics_to_check(["*"], visible, "checkpoints") == ["sales", "stock"]
    assert topics_to_check(["sal*", "new"], visible, "checkpoints") == ["new", "sales"]


def test_what_cannot_be_seen_is_said() -> None:
    access = {f"t{number}": Access.HIDDEN for number in range(7)}
    [finding] = topic_findings(["*"], access, {}, restricted=True)
    assert finding.level is Level.WARNING
    assert "'t4' and 2 more topics cannot be seen" in finding.message
    assert list(topic_findings(["*"], {}, {}, restricted=False)) == []
    finding = judged(KafkaError(KafkaError._TIMED_OUT), {"sasl.password": "secret"})
    assert finding.level is Level.WARNING
    assert "cannot be looked at" in finding.message
