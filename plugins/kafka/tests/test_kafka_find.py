"""What a new owner of a lane finds in the log of a transaction with an unknown outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewTopic,
)
from outbox_api import DriverError, Found, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.trace import HEADER, Trace
from outbox_kafka.transactional_sender import KafkaTransactionalSender

from .kafka_access import alter_topic, publisher

PARTITIONS = 3
TIME_MS = int(time.time() * 1000)


class Lane:
    """A lane whose last transaction is torn: others have committed a part, and aborted the rest.

    Args:
        bootstrap: The broker.
        topic: The topic of the records, which exists.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.name = f"{topic}.0"
        self._bootstrap = bootstrap
        with closing(publisher(bootstrap).open_transactional(self.name)) as sender:
            _, self._checkpoints, number = sender.location.split("/")
        self._partition = int(number)

    def transaction(
        self, records: Sequence[MarkedRecord], trace: Trace, *, commits: bool, checkpoint: bool = False
    ) -> None:
        """Publishes a part of the transaction, of which the checkpoint may be one."""
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": f"{self.name}.{commits}"}
        producer = Producer({**settings, "partitioner": "consistent"})
        producer.init_transactions(20)
        producer.begin_transaction()
        for record in records:
            timestamp = record.timestamp_ms or trace.time_ms
            place = -1 if record.partition is None else record.partition
            producer.produce(record.topic, record.value, record.key, place, timestamp=timestamp)
        if checkpoint:
            producer.produce(
                self._checkpoints,
                "attempted",
                f"outbox.{self.name}",
                self._partition,
                headers={HEADER: trace.text()},
            )
        producer.flush(20)
        if commits:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)

    def open(self) -> closing[KafkaTransactionalSender]:
        """Opens the lane."""
        return closing(publisher(self._bootstrap).open_transactional(self.name))

    def find(self, records: Sequence[MarkedRecord]) -> Found:
        """Opens the lane, and looks for records of its last attempt."""
        with self.open() as sender:
            attempt = sender.attempt()
            assert attempt is not None
            assert attempt.checkpoint == "attempted"
            return sender.find(records, attempt.trace)


@pytest.fixture
def lane(kafka_bootstrap: str, topic: str) -> Lane:
    publisher(kafka_bootstrap).prepare([topic], PARTITIONS)
    return Lane(kafka_bootstrap, topic)


def records(topic: str, *keys: str) -> list[MarkedRecord]:
    return [MarkedRecord(number, topic, key, "equal") for number, key in enumerate(keys, 1)]


@pytest.mark.parametrize("checkpoint", [True, False], ids=["committed", "aborted"])
def test_records_of_a_torn_transaction_are_found_whatever_became_of_its_checkpoint(
    lane: Lane, *, checkpoint: bool
) -> None:
    trace = Trace(TIME_MS, {})
    ours = records(lane.topic, *"abcdefab")
    committed = [record for record in ours if record.key in "ace"]
    aborted = [record for record in ours if record.key not in "ace"]
    lane.transaction(committed, trace, commits=True, checkpoint=checkpoint)
    lane.transaction(aborted, trace, commits=False, checkpoint=not checkpoint)
    found = lane.find(ours)
    assert sorted(found.published) == [record.id for record in committed]
    assert not found.undecided


def test_a_partition_may_have_committed_the_beginning_of_its_records(lane: Lane) -> None:
    ours = records(lane.topic, *"aabcabb")
    trace = Trace(TIME_MS, {})
    lane.transaction(ours[:4], trace, commits=True, checkpoint=True)
    lane.transaction(ours[4:], trace, commits=False)
    found = lane.find(ours)
    assert sorted(found.published) == [1, 2, 3, 4]
    assert not found.undecided


def test_records_of_another_time_or_with_other_content_are_not_ours(lane: Lane) -> None:
    ours = records(lane.topic, *"abc")
    lane.transaction(ours, Trace(TIME_MS - 1, {}), commits=True)
    lane.transaction(ours, Trace(TIME_MS + 1, {}), commits=True)
    lane.transaction([each._replace(value="other") for each in ours], Trace(TIME_MS, {}), commits=True)
    lane.transaction(ours, Trace(TIME_MS, {}), commits=False, checkpoint=True)
    assert lane.find(ours) == Found([])


def test_what_the_topic_stamps_is_found_by_its_content_behind_the_end_before(
    kafka_bootstrap: str, lane: Lane
) -> None:
    alter_topic(kafka_bootstrap, lane.topic, "message.timestamp.type", "LogAppendTime")
    ours = records(lane.topic, *"abcdef")
    with lane.open() as sender:
        assert sender.publish(ours, "attempted") == []
        assert sender.publish([each._replace(id=each.id + 10) for each in ours[:3]], "attempted") == []
        attempt = sender.attempt()
        assert attempt is not None
        assert sum(Trace.parse(attempt.trace).ends[lane.topic].values()) >= len(ours)
    again = [each._replace(id=each.id + 10) for each in ours]
    found = lane.find(again)
    assert (sorted(found.published), found.undecided) == ([11, 12, 13], ())


def test_what_others_have_published_too_is_not_decided(kafka_bootstrap: str, lane: Lane) -> None:
    alter_topic(kafka_bootstrap, lane.topic, "message.timestamp.type", "LogAppendTime")
    ours = records(lane.topic, *"ab")
    ends = {lane.topic: dict.fromkeys(range(PARTITIONS), 0)}
    lane.transaction(ours[:1], Trace(TIME_MS, ends), commits=True)
    lane.transaction(ours, Trace(TIME_MS, ends), commits=True, checkpoint=True)
    found = lane.find(ours)
    assert (found.published, found.undecided, found.committed) == ([2], [1], True)
    assert "of others" in found.reason


def test_what_others_have_published_is_not_taken_for_an_aborted_record(
    kafka_bootstrap: str, lane: Lane
) -> None:
    alter_topic(kafka_bootstrap, lane.topic, "message.timestamp.type", "LogAppendTime")
    ours = records(lane.topic, *"ab")
    trace = Trace(TIME_MS, {lane.topic: dict.fromkeys(range(PARTITIONS), 0)})
    lane.transaction(ours, trace, commits=False, checkpoint=True)
    lane.transaction(ours[:1], trace, commits=True)
    found = lane.find(ours)
    assert (found.published, found.undecided, found.committed) == ([], [1], False)


def test_a_row_that_was_changed_meanwhile_keeps_its_place(lane: Lane) -> None:
    ours = records(lane.topic, *"aab")
    lane.transaction(ours[:2], Trace(TIME_MS, {}), commits=True, checkpoint=True)
    changed = [each._replace(value="changed") if each.id == 1 else each for each in ours]
    found = lane.find(changed)
    assert (sorted(found.published), found.undecided) == ([1, 2], ())


def test_rows_with_a_timestamp_of_their_own_are_told_by_it(lane: Lane) -> None:
    ours = [each._replace(timestamp_ms=TIME_MS - each.id) for each in records(lane.topic, *"aab")]
    with lane.open() as sender:
        assert sender.publish([ours[0], ours[2]], "attempted") == []
        assert sender.publish([ours[1]], "attempted") == []
    found = lane.find(ours[1:])
    assert (found.published, found.undecided) == ([2], ())


@pytest.mark.parametrize("commits", [True, False])
def test_of_a_topic_that_is_gone_nothing_is_decided(
    kafka_bootstrap: str, lane: Lane, *, commits: bool
) -> None:
    ours = [*records(lane.topic, *"ab"), MarkedRecord(9, f"{lane.topic}-gone", "k", "v")]
    lane.transaction(ours[:2], Trace(TIME_MS, {}), commits=commits, checkpoint=True)
    found = lane.find(ours)
    assert found.published == ([1, 2] if commits else [])
    assert (found.undecided, found.committed) == ([9], commits)
    assert "does not exist" in found.reason


@pytest.fixture
def compacted(kafka_bootstrap: str, topic: str) -> Iterator[Lane]:
    name = f"{topic}-compacted"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1, config={"cleanup.policy": "compact"})])[name].result(60)
    yield Lane(kafka_bootstrap, name)
    admin.delete_topics([name])


def test_of_a_compacted_topic_a_record_may_be_gone_where_a_later_one_has_its_key(compacted: Lane) -> None:
    lane, trace = compacted, Trace(TIME_MS, {compacted.topic: {0: 0}})
    ours = [*records(lane.topic, *"abc"), MarkedRecord(4, lane.topic, "d", None)]
    lane.transaction(ours, trace, commits=False, checkpoint=True)
    lane.transaction([MarkedRecord(9, lane.topic, "b", "later")], Trace(TIME_MS + 9, {}), commits=True)
    found = lane.find(ours)
    assert (found.published, found.undecided, found.committed) == ([], [2, 4], False)


def test_of_a_compacted_topic_the_last_record_of_a_key_tells_of_all(compacted: Lane) -> None:
    lane = compacted
    ours = [each._replace(value=str(each.id)) for each in records(lane.topic, *"aab")]
    lane.transaction(ours[1:2], Trace(TIME_MS, {lane.topic: {0: 0}}), commits=True, checkpoint=True)
    found = lane.find(ours)
    assert (sorted(found.published), found.undecided) == ([1, 2], ())


def test_of_a_compacted_topic_one_of_equal_records_does_not_tell_which_it_is(compacted: Lane) -> None:
    lane = compacted
    ours = records(lane.topic, *"aab")
    lane.transaction(ours[1:2], Trace(TIME_MS, {lane.topic: {0: 0}}), commits=True, checkpoint=True)
    found = lane.find(ours)
    assert (found.published, found.undecided, found.committed) == ([1], [2], True)


def test_a_key_with_several_partitions_has_a_fate_in_each(kafka_bootstrap: str, topic: str) -> None:
    name = f"{topic}-compacted"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 2, config={"cleanup.policy": "compact"})])[name].result(60)
    lane, trace = Lane(kafka_bootstrap, name), Trace(TIME_MS, {name: {0: 0, 1: 0}})
    ours = [each._replace(partition=each.id % 2) for each in records(name, *"aa")]
    lane.transaction(ours[:1], trace, commits=True, checkpoint=True)
    lane.transaction(ours[1:], trace, commits=False)
    assert lane.find(ours) == Found([1])


def test_a_transaction_that_stays_open_is_waited_for_and_then_an_error(
    kafka_bootstrap: str, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kafka.checkpoint._MARGIN_SECONDS", 0)
    ours = records(lane.topic, *"ab")
    other = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": f"{lane.topic}-other"})
    other.init_transactions(20)
    other.begin_transaction()
    for partition in range(PARTITIONS):
        other.produce(lane.topic, "open", partition=partition)
    other.flush(20)
    lane.transaction(ours, Trace(TIME_MS, {}), commits=True, checkpoint=True)
    kafka = {
        "bootstrap.servers": kafka_bootstrap,
        "delivery.timeout.ms": 4000,
        "transaction.timeout.ms": 5000,
    }
    with closing(KafkaPublisher(KafkaOptions(kafka)).open_transactional(lane.name)) as sender:
        attempt = sender.attempt()
        assert attempt is not None
        with pytest.raises(DriverError, match="a transaction is open") as caught:
            sender.find(ours, attempt.trace)
        assert caught.value.retryable
        with suppress(Exception):
            other.abort_transaction(20)
        assert sorted(sender.find(ours, attempt.trace).published) == [1, 2]


def test_records_are_found_behind_deleted_ones_where_a_look_up_by_time_ends(
    kafka_bootstrap: str, topic: str
) -> None:
    name = f"{topic}-cut"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1, config={"segment.bytes": "1048576"})])[name].result(60)
    others = Producer({"bootstrap.servers": kafka_bootstrap})
    others.produce(name, "of a clock that is ahead", partition=0, timestamp=TIME_MS + 3_000_000)
    others.flush(20)
    for number in range(20):  # until another segment begins
        others.produce(name, bytes([number]) * 200_000, partition=0, timestamp=TIME_MS - 1000)
        others.flush(20)
    admin.delete_records([TopicPartition(name, 0, 1)])[TopicPartition(name, 0, 1)].result(20)
    lane, ours = Lane(kafka_bootstrap, name), records(name, *"ab")
    with lane.open() as sender:
        assert sender.publish(ours, "attempted") == []
    assert sorted(lane.find(ours).published) == [1, 2]
