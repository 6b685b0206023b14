"""Partitions that are added: who has read what was sent before, and by which number keys are sent after."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewPartitions,
)
from outbox_api import DriverError, MarkedRecord, PartitionedPublisher, PartitionedSender, Repartitioned
from outbox_kafka import partition_watch
from outbox_kafka.sender import KafkaSender
from outbox_kafka.topic_cache import TopicCache, TopicStatus
from outbox_kafka.topic_lookup import BackgroundCalls
from outbox_kafka.transactional_sender import KafkaTransactionalSender
from outbox_servers.services import KafkaCluster

from .kafka_access import checkpoint_of, consume, deliver, found, gather, publisher

BEFORE, AFTER = 2, 12
KEYS = [f"key {number}" for number in range(40)]


def records(topic: str, start: int = 0) -> list[MarkedRecord]:
    return [MarkedRecord(number, topic, key, str(number)) for number, key in enumerate(KEYS, start)]


def add(bootstrap: str, topic: str) -> None:
    """Adds partitions as somebody else would."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.create_partitions([NewPartitions(topic, AFTER)]).values()
    future.result()
    for _ in range(1200):
        if len(admin.list_topics(topic).topics[topic].partitions) == AFTER:
            return
        time.sleep(0.05)
    raise AssertionError("no broker tells of the new partitions")


class Lane:
    """A sender of either delivery that has sent a record of each key."""

    def __init__(self, bootstrap: str, topic: str, delivery: str) -> None:
        self.topic = topic
        made = publisher(bootstrap)
        made.prepare([topic], BEFORE)
        self.sender = made.open(topic) if delivery == "records" else made.open_transactional(topic)
        self.number = 0
        self.send()

    def send(self) -> None:
        sent = records(self.topic, self.number)
        self.number += len(sent)
        if isinstance(self.sender, KafkaTransactionalSender):
            assert not self.sender.publish(sent, "checkpoint")
        else:
            deliver(self.sender, *sent)

    def close(self) -> None:
        self.sender.close(5) if isinstance(self.sender, KafkaSender) else self.sender.close()


@pytest.fixture(params=["records", "transactions"])
def lane(kafka_bootstrap: str, topic: str, request: pytest.FixtureRequest) -> Iterator[Lane]:
    opened = Lane(kafka_bootstrap, topic, request.param)
    yield opened
    opened.close()


def partitions(bootstrap: str, topic: str, count: int) -> Sequence[dict[str, int]]:
    """Returns key → partition, for each time that all keys were sent."""
    found: list[dict[str, int]] = [{} for _ in range(count // len(KEYS))]
    for message in consume(bootstrap, topic, count, AFTER):
        key, value, partition = message.key(), message.value(), message.partition()
        assert key is not None
        assert value is not None
        assert partition is not None
        found[int(value) // len(KEYS)][key.decode()] = partition
    return found


def test_after_a_refresh_keys_go_where_a_new_client_sends_them(
    lane: Lane, kafka_bootstrap: str, topic: str
) -> None:
    add(kafka_bootstrap, topic)
    lane.send()
    lane.sender.refresh()
    lane.send()
    assert not lane.sender.take_repartitioned()
    before, stale, after = partitions(kafka_bootstrap, topic, 3 * len(KEYS))
    assert stale == before  # so the client does not learn of it in time by itself
    fresh = Producer({"bootstrap.servers": kafka_bootstrap, "partitioner": "consistent_random"})
    expected: dict[str, int] = {}

    def note(_error: object, message: Message) -> None:
        expected[(message.key() or b"").decode()] = message.partition() or 0

    for key in KEYS:
        fresh.produce(topic, b"0", key, on_delivery=note)
    fresh.flush()
    assert after == expected
    assert sum(after[key] != before[key] for key in KEYS) > len(KEYS) / 2


def test_partitions_that_others_add_are_told_of_once_keys_have_moved(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_watch, "WATCH_SECONDS", 0.2)
    for delivery in ("records", "transactions"):
        opened = Lane(kafka_bootstrap, f"{topic}-{delivery}", delivery)
        assert isinstance(opened.sender, PartitionedSender)
        add(kafka_bootstrap, opened.topic)
        told: list[Repartitioned] = []
        deadline, more = time.monotonic() + 60, 20  # looks, of which none tells it again
        while more:
            opened.send()
            told += opened.sender.take_repartitioned()
            assert time.monotonic() < deadline
            more -= bool(told)
            time.sleep(0.02)
        assert told == [Repartitioned(opened.topic, BEFORE, AFTER)]
        opened.close()


def test_a_look_at_many_topics_is_many_short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_watch, "_PAUSE_SECONDS", 0.0)
    cache, background, asked, answers = TopicCache(1.0), BackgroundCalls(), list[str](), list[int]()
    cache.existing |= {f"topic {number}" for number in range(10_000)}
    said = {"topic": TopicStatus.EXISTS}

    def look_up(topics: Collection[str], _: Collection[str]) -> dict[str, TopicStatus]:
        asked.extend(topics)
        return said

    watch = partition_watch.PartitionWatch(cache, look_up, background)
    watch._due = 0.0
    watch.poll()
    background.submit(lambda: len(asked), answers.append)  # for a record
    while len(asked) < 10_000 or background:
        background.poll()
        watch.poll()
    assert answers == [20]
    assert set(asked) == cache.existing
    watch._due, said["topic"] = 0.0, TopicStatus.UNKNOWN
    watch.poll()
    while background:
        background.poll()
        watch.poll()
    assert len(asked) == 10_020  # brokers that do not answer are left alone


def test_what_is_added_in_a_pause_is_not_told(lane: Lane, kafka_bootstrap: str, topic: str) -> None:
    lane.sender._watch._due = 0.0
    add(kafka_bootstrap, topic)
    if isinstance(lane.sender, KafkaSender):
        poll: Callable[[], object] = partial(lane.sender.poll, 0.01)
    else:
        lane.sender._watch.poll()
        poll = lane.sender._background.poll
    deadline = time.monotonic() + 60
    while lane.sender._topics.partitions[topic] != AFTER:
        assert time.monotonic() < deadline, "it has not learnt of them"
        poll()
        time.sleep(0.01)
    lane.sender.refresh()
    lane.send()
    lane.send()
    assert not lane.sender.take_repartitioned()


def test_after_a_refresh_nothing_is_sent_before_the_broker_has_answered(
    lane: Lane, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.sender.refresh()
    [record, *_] = records(topic)

    def silent(*_: object) -> dict[str, TopicStatus]:
        return {topic: TopicStatus.UNKNOWN}

    if isinstance(lane.sender, KafkaSender):
        monkeypatch.setattr(lane.sender._lookup, "_look_up", silent)
        lane.sender.send([record])
        [failed] = gather(lane.sender, 1).failed
    else:
        monkeypatch.setattr(lane.sender, "_look_up", silent)
        [failed] = lane.sender.publish([record], "checkpoint")
    assert failed.retryable
    monkeypatch.undo()
    lane.send()


class Group:
    """A consumer group that reads committed records one by one."""

    def __init__(self, bootstrap: str, name: str, topic: str) -> None:
        own = {"group.id": name, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **own})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(BEFORE)])

    def read(self, count: int) -> None:
        while count:
            message = self._consumer.poll(1)
            if message is not None and message.error() is None:
                self._consumer.commit(message=message, asynchronous=False)
                count -= 1

    def close(self) -> None:
        self._consumer.close()


def test_a_group_has_read_all_once_it_has_committed_the_last_record(
    lane: Lane, kafka_bootstrap: str, topic: str
) -> None:
    """With transactions, the last record of a partition is not at its end."""
    made = publisher(kafka_bootstrap)
    assert isinstance(made, PartitionedPublisher)
    about, name = made.topic(topic), f"{topic}-group"
    other = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": f"{topic}-other"})
    other.init_transactions()
    other.begin_transaction()
    for partition in range(BEFORE):
        for _ in range(20):
            other.produce(topic, b"aborted", partition=partition)
    other.flush()
    other.abort_transaction()
    ends = about.ends()
    assert sorted(ends) == list(range(BEFORE))
    assert about.unread(name, ends) is None
    with closing(Group(kafka_bootstrap, name, topic)) as group:
        group.read(len(KEYS) - 1)
        left = about.unread(name, ends)
        assert left is not None
        assert left > 0
        assert name in about.groups()
        group.read(1)
        assert about.unread(name, ends) == 0
    assert about.count() == BEFORE


def test_partitions_are_added_and_shown_by_every_broker(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = publisher(kafka_bootstrap)
    about = made.topic(topic)
    assert about.count() == 0
    made.prepare([topic], BEFORE)
    assert about.ends() == {}
    for _ in range(2):
        about.grow(AFTER)
        assert about.count() == AFTER
    monkeypatch.setattr("outbox_kafka.partitions._SHOWN_SECONDS", 0.2)
    with pytest.raises(DriverError, match=f"of {AFTER} partitions with a leader, not of {AFTER - 1}"):
        about.grow(AFTER - 1)


def test_a_group_that_is_committing_in_a_transaction_has_a_position(kafka_bootstrap: str, topic: str) -> None:
    made = publisher(kafka_bootstrap)
    made.prepare([topic], BEFORE)
    about, group = made.topic(topic), f"{topic}-group"
    client = {"bootstrap.servers": kafka_bootstrap}
    sent = Producer(client)
    sent.produce(topic, b"value", b"key", partition=0)
    sent.flush()
    reader = Consumer({**client, "group.id": group})
    reader.subscribe([topic])
    while not reader.assignment():
        reader.poll(0.1)
    reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    writer = Producer({**client, "transactional.id": topic})
    writer.init_transactions()
    writer.begin_transaction()
    writer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], reader.consumer_group_metadata())
    ends = about.ends()
    assert about.unread(group, ends) == 1
    assert group in about.groups()
    writer.commit_transaction()
    while about.unread(group, ends):
        time.sleep(0.05)
    assert about.unread(group, ends) == 0
    reader.close()


@pytest.mark.parametrize("timestamp_ms", [None, 1_700_000_000_000])
def test_a_recovery_finds_records_in_old_and_new_partitions(
    kafka_bootstrap: str, topic: str, timestamp_ms: int | None
) -> None:
    """An attempt with times of its own is found by the ends of partitions, of which some did not exist."""
    made = publisher(kafka_bootstrap)
    made.prepare([topic], BEFORE)
    sent = [each._replace(timestamp_ms=timestamp_ms) for each in records(topic)]
    first, never = sent[: len(sent) // 2], sent[len(sent) // 2 :]
    with closing(made.open_transactional(topic)) as sender:
        assert not sender.publish(first, "before")
    add(kafka_bootstrap, topic)
    with closing(made.open_transactional(topic)) as sender:
        assert found(sender, sent) == [each.id for each in first]
        assert not sender.publish(never, "after")
    with closing(made.open_transactional(topic)) as sender:
        assert checkpoint_of(sender) == "after"
        assert found(sender, never) == [each.id for each in never]


@pytest.mark.slow
def test_a_broker_that_does_not_answer_holds_the_command_up_until_it_is_back(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kafka.partitions._SHOWN_SECONDS", 3.0)
    with KafkaCluster() as cluster:
        made = publisher(cluster.bootstrap)
        made.prepare([topic], BEFORE)
        about = made.topic(topic)
        about.grow(BEFORE + 1)
        frozen = cluster.brokers[2]
        frozen.pause()
        with pytest.raises(DriverError):
            about.grow(AFTER)
        frozen.resume()
        monkeypatch.undo()
        about.grow(AFTER)
        assert about.count() == AFTER
