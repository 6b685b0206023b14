"""Batches in transactions on a real broker: atomic, exactly once, and told by the checkpoint."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException
from outbox_api import MAX_CHECKPOINT, DriverError, MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.transactional_sender import KafkaTransactionalSender
from outbox_testkit.produce_requests import ProduceRequests

from .kafka_access import alter_topic, checkpoint_of, committed, found, publisher, values, written

PARTITIONS = 3


def records(topic: str, count: int, first: int = 1) -> list[MarkedRecord]:
    return [MarkedRecord(first + i, topic, f"k{i % 7}", f"{first + i}") for i in range(count)]


@pytest.fixture
def lane(topic: str) -> str:
    """A lane without a checkpoint."""
    return f"{topic}.0"


@pytest.fixture
def sender(kafka_bootstrap: str, topic: str, lane: str) -> KafkaTransactionalSender:
    kafka = publisher(kafka_bootstrap)
    kafka.prepare([topic], PARTITIONS)
    return kafka.open_transactional(lane)


def test_batches_are_published_once_and_in_order(
    kafka_bootstrap: str, topic: str, sender: KafkaTransactionalSender
) -> None:
    assert checkpoint_of(sender) is None
    assert sender.publish(records(topic, 5000), "first") == []
    assert checkpoint_of(sender) == "first"
    assert sender.publish(records(topic, 100, 5001), "first, second") == []
    assert checkpoint_of(sender) == "first, second"
    assert sender.publish([], "none") == []
    assert checkpoint_of(sender) == "none"
    sender.close()
    sender.close()
    messages = committed(kafka_bootstrap, topic, PARTITIONS)
    assert sorted(int(message.value() or b"") for message in messages) == list(range(1, 5101))
    for partition in range(PARTITIONS):
        there = [int(message.value() or b"") for message in messages if message.partition() == partition]
        assert there == sorted(there)
    with pytest.raises(DriverError, match="closed"):
        sender.publish([], "none")


def test_checkpoint_that_is_too_long_is_refused(sender: KafkaTransactionalSender) -> None:
    with pytest.raises(ValueError, match="100001 characters, 100000 fit"):
        sender.publish([], "x" * (MAX_CHECKPOINT + 1))
    assert sender.publish([], "x" * MAX_CHECKPOINT) == []
    sender.close()


def test_checkpoint_at_a_former_place_is_told_from_that_at_the_present_one(
    kafka_bootstrap: str, topic: str, lane: str
) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    former = KafkaPublisher(KafkaOptions(kafka, checkpoint_topic=f"{topic}.checkpoint")).open_transactional(
        lane
    )
    assert former.publish([], "before") == []
    former.close()
    sender = KafkaPublisher(KafkaOptions(kafka)).open_transactional(lane)
    assert former.location != sender.location
    assert checkpoint_of(sender) is None
    assert checkpoint_of(sender, former.location) == "before"
    assert sender.publish([], "after") == []
    assert checkpoint_of(sender, former.location) == "before"
    assert checkpoint_of(sender, sender.location) == checkpoint_of(sender) == "after"
    sender.close()


def test_checkpoint_in_another_cluster_is_not_taken_for_a_missing_one(
    sender: KafkaTransactionalSender,
) -> None:
    with pytest.raises(DriverError, match=r"in the Kafka cluster another.*fence forget") as caught:
        checkpoint_of(sender, "another/outbox.checkpoints/3")
    assert not caught.value.retryable
    sender.close()


def test_failed_batch_leaves_nothing_but_its_culprits(
    kafka_bootstrap: str, topic: str, lane: str, sender: KafkaTransactionalSender
) -> None:
    assert sender.publish(records(topic, 1), "before") == []
    faulty = [
        MarkedRecord(4, topic, "b", "4", partition=99),
        MarkedRecord(5, topic, "b", "5", partition=99),
        MarkedRecord(6, topic, "c", "\ud800"),
        MarkedRecord(7, topic, "d", "7" * 2_000_000),
        MarkedRecord(8, "not a topic!", "e", "8"),
    ]
    sound = [MarkedRecord(3, topic, "a", "3"), MarkedRecord(9, topic, "b", "9")]
    failures = sender.publish([sound[0], *faulty, sound[1]], "batch")
    assert [(failure.record.id, failure.retryable) for failure in failures] == [(8, False)]
    failures = sender.publish([sound[0], *faulty[:-1], sound[1]], "batch")
    assert [failure.record.id for failure in failures] == [4, 6, 7]
    assert [failure.retryable for failure in failures] == [False] * 3
    # The sender works as before, whatever was in flight.
    assert sender.publish(sound, "after") == []
    assert values(kafka_bootstrap, topic, PARTITIONS) == [1, 3, 9]
    sender.close()
    successor = publisher(kafka_bootstrap).open_transactional(lane)
    assert checkpoint_of(successor) == "after"
    successor.close()


def test_record_is_to_blame_that_the_broker_refuses(
    kafka_bootstrap: str, topic: str, sender: KafkaTransactionalSender
) -> None:
    alter_topic(kafka_bootstrap, topic, "max.message.bytes", "20000")
    sizes = [3000] * 10 + [30_000] + [3000] * 10
    batches = [MarkedRecord(i, topic, f"k{i}", os.urandom(size), partition=0) for i, size in enumerate(sizes)]
    [failure] = sender.publish(batches, "batch")
    assert failure.record == batches[10]
    assert not failure.retryable
    assert "max.message.bytes" in failure.reason
    del batches[10]
    assert sender.publish(batches, "batch") == []
    sender.close()
    assert [message.value() for message in committed(kafka_bootstrap, topic, 1)] == [r.value for r in batches]


def test_large_records_fit_together(
    kafka_bootstrap: str, topic: str, sender: KafkaTransactionalSender
) -> None:
    large = [MarkedRecord(i, topic, "k", os.urandom(600_000)) for i in range(6)]
    assert sender.publish(large, "batch") == []
    sender.close()
    assert len(committed(kafka_bootstrap, topic, PARTITIONS)) == 6


def test_batch_leaves_in_one_request_and_does_not_linger(kafka_bootstrap: str, topic: str, lane: str) -> None:
    requests = ProduceRequests()
    kafka = KafkaPublisher(
        KafkaOptions({"bootstrap.servers": kafka_bootstrap, "linger.ms": 5000, **requests.settings})
    )
    kafka.prepare([topic], 1)
    sender = kafka.open_transactional(lane)
    before = requests.count(lambda _: sender.publish([], "none"))
    for number in range(5):
        assert sender.publish(records(topic, 5000, number * 5000), "batch") == []
    # A partition has its own request: one for the records, one for the checkpoint.
    assert requests.count(lambda _: sender.publish([], "none")) - before >= 10
    sender.close()


def test_more_records_than_the_queue_holds(kafka_bootstrap: str, topic: str, lane: str) -> None:
    kafka = publisher(kafka_bootstrap, queue_buffering_max_messages=50, linger_ms=20)
    kafka.prepare([topic], PARTITIONS)
    sender = kafka.open_transactional(lane)
    assert sender.publish(records(topic, 1000), "batch") == []
    sender.close()
    assert values(kafka_bootstrap, topic, PARTITIONS) == list(range(1, 1001))


def test_topic_that_is_missing_names_its_records_and_is_noticed_once_created(
    kafka_bootstrap: str, topic: str, lane: str
) -> None:
    kafka = publisher(kafka_bootstrap, allow_auto_create_topics=False, topic_metadata_propagation_max_ms=500)
    kafka.prepare([topic], PARTITIONS)
    sender = kafka.open_transactional(lane)
    missing = MarkedRecord(2, f"{topic}-missing", "b", "2")
    deadline = time.monotonic() + 60
    while True:
        [failure] = sender.publish([*records(topic, 1), missing, missing._replace(id=3)], "batch")
        assert failure.record == missing
        assert "create the topic" in failure.reason
        if not failure.retryable:
            break
        assert time.monotonic() < deadline, "it has been missing for longer than a new topic is"
    kafka.prepare([missing.topic], 1)
    while sender.publish([missing], "batch"):
        assert time.monotonic() < deadline, "it exists"
    sender.close()
    assert values(kafka_bootstrap, topic, PARTITIONS) == []
    assert values(kafka_bootstrap, missing.topic, 1) == [2]


def test_a_sender_looks_for_its_coordinator_once_it_is_connected(
    kafka_bootstrap: str, lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "outbox.kafka")
    with closing(publisher(kafka_bootstrap, debug="eos").open_transactional(lane)):
        pass
    lines = [record.message for record in caplog.records if record.name == "outbox.kafka"]
    assert any("Querying for transaction coordinator" in line for line in lines)
    too_early = [line for line in lines if "Unable to query for transaction coordinator" in line]
    assert not too_early, "the client asks again only after half a second"


def test_second_sender_fences_the_first(
    kafka_bootstrap: str, topic: str, lane: str, sender: KafkaTransactionalSender
) -> None:
    assert sender.publish(records(topic, 1), "first") == []
    second = publisher(kafka_bootstrap).open_transactional(lane)
    for _ in range(2):
        with pytest.raises(DriverError, match="another producer has opened") as caught:
            sender.publish(records(topic, 10, 2), "batch")
        assert caught.value.retryable
    sender.close()
    assert checkpoint_of(second) == "first"
    assert second.publish(records(topic, 1, 100), "batch") == []
    second.close()
    assert values(kafka_bootstrap, topic, PARTITIONS) == [1, 100]


_DIES = """
import sys
from outbox_api import MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
bootstrap, lane, topic, when = sys.argv[1:]
sender = KafkaPublisher(KafkaOptions({"bootstrap.servers": bootstrap})).open_transactional(lane)
commit = sender._producer.commit
def die(deadline):
    if when == "after":
        commit(deadline)
    print("dying", flush=True)
    sys.stdin.read()
sender._producer.commit = die
sender.publish([MarkedRecord(i, topic, f"k{i}", str(i)) for i in range(100)], "theirs")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_checkpoint_tells_what_became_of_one_that_was_killed(
    kafka_bootstrap: str, topic: str, lane: str, when: str
) -> None:
    kafka = publisher(kafka_bootstrap)
    kafka.prepare([topic], PARTITIONS)
    with subprocess.Popen(
        [sys.executable, "-c", _DIES, kafka_bootstrap, lane, topic, when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"dying\n"
        process.send_signal(signal.SIGKILL)
    sender = kafka.open_transactional(lane)
    assert checkpoint_of(sender) == "theirs"
    theirs = [MarkedRecord(i, topic, f"k{i}", str(i)) for i in range(100)]
    assert found(sender, theirs) == (list(range(100)) if when == "after" else [])
    # No open transaction blocks readers of committed messages any longer.
    assert sender.publish([MarkedRecord(1000, topic, "k", "1000")], "none") == []
    sender.close()
    assert values(kafka_bootstrap, topic, PARTITIONS) == [*(range(100) if when == "after" else ()), 1000]


def test_answer_that_is_lost_is_no_commit_and_no_abort(
    kafka_bootstrap: str, topic: str, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit succeeds, but the client receives an error: the worst case."""
    kafka = publisher(kafka_bootstrap)
    sender = kafka.open_transactional(lane)
    retry = sender._producer._retry
    aborted: list[bool] = []
    mapping_lost = KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING, "lost", txn_requires_abort=True)

    def lose(deadline: float, call: object) -> None:
        retry(deadline, call)  # type: ignore[arg-type]
        raise KafkaException(mapping_lost)

    monkeypatch.setattr(sender._producer, "abort", lambda: aborted.append(True))
    commit = sender._producer.commit

    def commit_unheard(deadline: float) -> None:
        monkeypatch.setattr(sender._producer, "_retry", lose)
        commit(deadline)

    monkeypatch.setattr(sender._producer, "commit", commit_unheard)
    with pytest.raises(DriverError, match="is unknown") as caught:
        sender.publish(records(topic, 3), "sent")
    assert caught.value.retryable
    assert not aborted
    sender.close()
    successor = kafka.open_transactional(lane)
    assert checkpoint_of(successor) == "sent"
    assert found(successor, records(topic, 3)) == [1, 2, 3]
    successor.close()


def test_transaction_that_takes_too_long_is_over(kafka_bootstrap: str, topic: str, lane: str) -> None:
    kafka = publisher(kafka_bootstrap, delivery_timeout_ms=3000, transaction_timeout_ms=4000)
    kafka.prepare([topic], PARTITIONS)
    sender = kafka.open_transactional(lane)
    commit = sender._producer.commit

    def late(deadline: float) -> None:
        # The broker has the records, and then ends the transaction: nothing before their end is open.
        give_up = time.monotonic() + 60
        while written(kafka_bootstrap, topic, PARTITIONS) < 3:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        committed(kafka_bootstrap, topic, PARTITIONS)
        commit(deadline)

    sender._producer.commit = late  # type: ignore[method-assign]
    with pytest.raises(DriverError) as caught:
        sender.publish(records(topic, 3), "batch")
    assert caught.value.retryable
    sender.close()
    successor = kafka.open_transactional(lane)
    assert found(successor, records(topic, 3)) == []
    successor.close()
    assert values(kafka_bootstrap, topic, PARTITIONS) == []


def test_lanes_and_their_checkpoints_are_their_own(kafka_bootstrap: str, topic: str) -> None:
    kafka = publisher(kafka_bootstrap)
    one, two = kafka.open_transactional(f"{topic}.0"), kafka.open_transactional(f"{topic}.1")
    assert one.publish(records(topic, 1), "first") == []
    assert two.publish(records(topic, 1), "second") == []
    assert (checkpoint_of(one), checkpoint_of(two)) == ("first", "second")
    one.close()
    two.close()
