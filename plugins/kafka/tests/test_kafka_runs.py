"""Runs of a key: what is in the log, and what is reported, whatever becomes of a record amid a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    AdminClient,
    NewPartitions,
    ResourceType,
)
from outbox_api import MarkedRecord, RunSender
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.sender import KafkaSender
from outbox_servers.services.kafka import KafkaBroker
from outbox_servers.services.secured_kafka import SecuredKafka

from .kafka_access import alter_topic, deliver, gather, grant, publisher
from .run_senders import (
    PARTITIONS,
    Sent,
    check_prefixes,
    gather_all,
    hand,
    run,
    runs,
    send_runs,
    wait_until_ready,
)

pytestmark = pytest.mark.slow

OTHERS = 5
"""Keys beside that of which a record is refused."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that does not create topics on first use."""
    with KafkaBroker(auto_create_topics=False) as broker:
        yield broker


def known(kafka: KafkaPublisher, topic: str, partitions: int = 1) -> KafkaSender:
    """Returns a sender that knows that the topic exists."""
    kafka.prepare([topic], partitions)
    sender = kafka.open("outbox.0")
    sender._topics.existing.add(topic)
    return sender


@pytest.mark.parametrize(("count", "size"), [(1, 0), (300, 0), (200, 10_000)])
def test_runs_arrive_in_order_in_a_partition_each(
    broker: KafkaBroker, topic: str, count: int, size: int
) -> None:
    sender = known(publisher(broker.bootstrap), topic, PARTITIONS)
    wanted = runs(topic, OTHERS, count, size)
    sent = send_runs(sender, wanted)
    sender.close(5)
    assert not sent.failed
    assert {each.key: each.partition for each in sent.delivered}.keys() == {each[0].key for each in wanted}
    assert len({(each.key, each.partition) for each in sent.delivered}) == OTHERS
    assert check_prefixes(broker.bootstrap, wanted, sent, PARTITIONS) == OTHERS * count


def test_the_first_record_of_an_unknown_topic_names_no_partition(broker: KafkaBroker, topic: str) -> None:
    kafka = publisher(broker.bootstrap)
    kafka.prepare([topic], 1)
    sender = kafka.open("outbox.0")
    assert isinstance(sender, RunSender)
    wait_until_ready(sender)
    sender.send_runs([MarkedRecord(1, topic, "k", "1")], [])
    [first] = gather(sender, 1).delivered
    assert first.partition is None
    sender.send_runs([MarkedRecord(2, topic, "k", "2")], [])
    [first] = gather(sender, 1).delivered
    assert first.partition == 0
    sender.close(5)


@pytest.mark.parametrize("where", ["topic", "client"])
def test_a_record_that_is_too_large(broker: KafkaBroker, topic: str, where: str) -> None:
    settings = {"message_max_bytes": 30_000} if where == "client" else {}
    sender = known(publisher(broker.bootstrap, linger_ms=5, **settings), topic)
    alter_topic(broker.bootstrap, topic, "max.message.bytes", "30000" if where == "topic" else "1000000")
    wanted = runs(topic, OTHERS, 200, 100)
    culprit = wanted[2][100] = wanted[2][100]._replace(value=b"000100" + os.urandom(50_000))
    sent = send_runs(sender, wanted)
    failed = sent.failed_ids()
    assert {each.id for each in wanted[2][100:]} <= failed
    if where == "client":
        assert failed == {each.id for each in wanted[2][100:]}
        assert [each.retryable for each in sent.failed if each.record.id == culprit.id] == [False]
        assert not any(each.suspect for each in sent.failed)
    else:
        assert all(each.retryable and each.suspect != each.innocent for each in sent.failed)
        assert [each.suspect for each in sent.failed if each.record.id == culprit.id] == [True]
    check_prefixes(broker.bootstrap, wanted, sent)
    check_next(sender, broker, f"{topic}-next")


def check_next(sender: KafkaSender, broker: KafkaBroker, topic: str) -> None:
    """Checks that the sender sends the next runs."""
    publisher(broker.bootstrap).prepare([topic], 1)
    sender._topics.existing.add(topic)
    wanted = runs(topic, OTHERS, 100)
    sent = send_runs(sender, wanted)
    assert not sent.failed
    check_prefixes(broker.bootstrap, wanted, sent)
    sender.close(5)


def test_a_topic_that_takes_small_batches_only(broker: KafkaBroker, topic: str) -> None:
    sender = known(publisher(broker.bootstrap), topic)
    alter_topic(broker.bootstrap, topic, "max.message.bytes", "3000")
    for number in range(7):
        wanted = [
            [each._replace(key=f"{number}-{each.key}", value=os.urandom(50)) for each in run_]
            for run_ in runs(topic, OTHERS, 500)
        ]
        sent = send_runs(sender, wanted)
        if not sent.failed:
            break
    assert not sent.failed
    assert not sender._runs._error
    sender.close(5)


@pytest.mark.parametrize(
    "odd",
    [
        {"headers": (("a\0b", "1"),)},
        {"timestamp_ms": 0},
        {"value": "\ud800"},
    ],
    ids=["header", "time", "text"],
)
def test_a_record_that_the_client_refuses(broker: KafkaBroker, topic: str, odd: dict[str, Any]) -> None:
    sender = known(publisher(broker.bootstrap), topic)
    wanted = runs(topic, OTHERS, 20)
    first = [each[0] for each in wanted]
    sent = Sent()
    wait_until_ready(sender)
    sender.send_runs(first, [])
    reports = gather(sender, OTHERS)
    assert [each.partition for each in reports.delivered] == [0] * OTHERS
    following = [each._replace(partition=0) for run_ in wanted for each in run_[1:]]
    place = next(at for at, each in enumerate(following) if each.id == wanted[2][10].id)
    following[place] = following[place]._replace(**odd)
    sender.send_runs([], following)
    sent.add(gather(sender, len(following)))
    sent.delivered += reports.delivered
    assert sent.failed_ids() == {each.id for each in wanted[2][10:]}
    assert [each.retryable for each in sent.failed] == [False] + [True] * 9
    assert not any(each.suspect for each in sent.failed)
    check_prefixes(broker.bootstrap, wanted, sent)
    check_next(sender, broker, f"{topic}-next")


def test_a_topic_that_is_deleted_amid_runs(broker: KafkaBroker, topic: str) -> None:
    sender = known(publisher(broker.bootstrap), topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def delete() -> None:
        for future in admin.delete_topics([topic]).values():
            future.result()
        time.sleep(0.5)

    sent = send_runs(sender, runs(topic, OTHERS, 100), between=delete)
    assert len(sent.failed) == OTHERS * 99
    check_next(sender, broker, f"{topic}-next")


def test_an_unknown_topic(broker: KafkaBroker, topic: str) -> None:
    sender = publisher(broker.bootstrap).open("outbox.0")
    sender.send_runs([MarkedRecord(1, f"{topic}-missing", "k", "1")], [])
    [failure] = gather(sender, 1).failed
    assert "does not exist" in failure.reason or "Unknown topic" in failure.reason
    check_next(sender, broker, f"{topic}-next")


@pytest.mark.parametrize("partition", [99, -3])
def test_a_partition_that_there_is_not(broker: KafkaBroker, topic: str, partition: int) -> None:
    sender = known(publisher(broker.bootstrap), topic)
    sender.send_runs([MarkedRecord(1, topic, "k", "1", partition=partition)], [])
    [failure] = gather(sender, 1).failed
    assert failure.reason
    check_next(sender, broker, f"{topic}-next")


def test_a_topic_without_permission(topic: str) -> None:
    with SecuredKafka() as secured:
        publisher(secured.bootstrap).prepare([topic, f"{topic}-next"], 1)
        grant(secured, ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
        grant(secured, ResourceType.TOPIC, f"{topic}-next", AclOperation.WRITE, AclOperation.DESCRIBE)
        grant(secured, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        sender = KafkaPublisher(KafkaOptions(secured.settings("right"))).open("outbox.0")
        sender._topics.existing |= {topic, f"{topic}-next"}
        sender.send_runs([MarkedRecord(1, topic, "k", "1"), MarkedRecord(2, f"{topic}-next", "j", "1")], [])
        reports = gather(sender, 2)
        assert "authorization failed" in reports.failed[0].reason
        check_next(sender, secured, f"{topic}-next")


@pytest.mark.parametrize("seconds", [5, 20])
def test_a_broker_that_is_frozen_amid_runs(broker: KafkaBroker, topic: str, seconds: int) -> None:
    sender = known(publisher(broker.bootstrap), topic, PARTITIONS)
    wanted = runs(topic, OTHERS, 1000, 500)
    with ThreadPoolExecutor() as pool:

        def freeze() -> None:
            broker.pause()

            def thaw() -> None:
                time.sleep(seconds)
                broker.resume()

            pool.submit(thaw)

        sent = send_runs(sender, wanted, between=freeze)
    time.sleep(1)  # what it had received is written by now
    assert bool(sent.failed) == (seconds > 8), "it is given up after the time-out"
    check_prefixes(broker.bootstrap, wanted, sent, PARTITIONS)
    check_next(sender, broker, f"{topic}-next")


def test_nobody_spins_while_the_broker_is_away(broker: KafkaBroker, topic: str) -> None:
    sender, sent = known(publisher(broker.bootstrap), topic), Sent()
    first, others = run(topic, "k", 1), run(topic, "k", 20, first=1)
    wait_until_ready(sender)
    hand(sender, sent, first, [])
    gather_all(sender, sent, 30)
    broker.pause()
    hand(sender, sent, [], [each._replace(partition=0) for each in others])
    spent: list[float] = []
    for alone in (False, True):
        if alone:
            sender.send([MarkedRecord(99, topic, "alone", "0")])
            sent.handed.append(99)
        began, cpu = time.monotonic(), time.thread_time()
        while time.monotonic() < began + 2:
            assert not sender.poll(0.1).failed
        spent.append(time.thread_time() - cpu)
    broker.resume()
    gather_all(sender, sent, 30)
    sender.close(1)
    assert not sent.failed
    assert spent[0] < 0.2
    assert spent[1] < 0.6


def test_nothing_follows_until_the_client_is_ready(broker: KafkaBroker, topic: str) -> None:
    sender = known(publisher(broker.bootstrap), topic)
    deliver(sender, MarkedRecord(0, topic, "k", "0"))
    sender.send_runs([MarkedRecord(1, topic, "k", "1")], [])
    [first] = gather(sender, 1).delivered
    assert first.partition is None
    wait_until_ready(sender)
    sender.send_runs([MarkedRecord(2, topic, "k", "2")], [])
    [first] = gather(sender, 1).delivered
    assert first.partition == 0
    sender.close(5)


def test_partitions_that_are_added_amid_runs(broker: KafkaBroker, topic: str) -> None:
    """The client that sends first records may know of them before the one that sends the others."""
    sender = known(publisher(broker.bootstrap), topic)
    send_runs(sender, runs(topic, 1, 10))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result()
    sent, others = Sent(), [each._replace(partition=PARTITIONS - 1) for each in run(topic, "k", 3, first=100)]
    hand(sender, sent, [], others)
    gather_all(sender, sent, 30)
    assert [(each.retryable, each.innocent) for each in sent.failed] == [(True, True)] * 3
    wait_until_ready(sender)
    hand(sender, again := Sent(), [], others)
    gather_all(sender, again, 30)
    assert not again.failed
    sender.close(5)


def test_a_topic_that_is_created_again_does_not_know_the_producer(broker: KafkaBroker, topic: str) -> None:
    sender = known(publisher(broker.bootstrap), topic)
    send_runs(sender, runs(topic, 1, 100))
    place = (topic, 0)
    assert place in sender._runs._known
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result()
    publisher(broker.bootstrap).prepare([topic], 1)
    sent = Sent()
    hand(sender, sent, run(topic, "k", 1, first=100), [])
    gather_all(sender, sent, 30)
    assert place not in sender._runs._known
    sender.close(5)
