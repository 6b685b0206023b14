"""Delivery of records to a real broker."""

from __future__ import annotations

import time

import pytest
from outbox_api import Deliveries, DriverError, Failure, Header, Level, MarkedRecord
from outbox_kafka.sender import KafkaSender
from outbox_kafka.settings import producer_settings
from outbox_testkit.produce_requests import ProduceRequests

from .kafka_access import consume, gather, publisher


def test_record_arrives_byte_for_byte(kafka_bootstrap: str, topic: str) -> None:
    headers: list[Header] = [("a", "1"), ("a", b"\x00\xff"), ("ü", "é"), ("none", None), ("empty", "")]
    records = [
        MarkedRecord(1, topic, "ключ", "wert ✓", headers),
        MarkedRecord(2, topic, "", b"\x00\x01", tuple(headers)),
        MarkedRecord(3, topic, "tomb", None),
        MarkedRecord(4, topic, "blank", "", timestamp_ms=1_600_000_000_123),
    ]
    sender = publisher(kafka_bootstrap).open("outbox.0")
    sender.send(records)
    assert gather(sender, 4) == Deliveries(delivered=records)
    assert sender.close(5) == Deliveries()
    first, second, third, fourth = consume(kafka_bootstrap, topic, 4)
    sent = [("a", b"1"), ("a", b"\x00\xff"), ("ü", "é".encode()), ("none", None), ("empty", b"")]
    assert (first.key(), first.value(), first.headers()) == ("ключ".encode(), "wert ✓".encode(), sent)
    assert (second.key(), second.value(), second.headers()) == (b"", b"\x00\x01", sent)
    assert (third.key(), third.value(), third.headers()) == (b"tomb", None, None)
    assert (fourth.key(), fourth.value(), fourth.timestamp()[1]) == (b"blank", b"", 1_600_000_000_123)


@pytest.mark.parametrize(
    "faulty",
    [
        MarkedRecord(1, "not a topic!", "k", "v"),
        MarkedRecord(1, "", "k", "v"),
        MarkedRecord(1, "t\0t", "k", "v"),
        MarkedRecord(1, "{topic}", "k", "\ud800"),
        MarkedRecord(1, "{topic}", "k", "v", [("h", 1)]),  # type: ignore[list-item]  # the fault itself
        MarkedRecord(1, "{topic}", "k", "v" * 2_000_000),
        MarkedRecord(1, "{topic}", "k", "v", partition=99),
        MarkedRecord(1, "{topic}", "k", "v", partition=2**40),
        MarkedRecord(1, "{topic}", "k", "v", partition=-1),
        MarkedRecord(1, "{topic}", "k", "v", partition=-2),
        MarkedRecord(1, "{topic}", "k", "v", timestamp_ms=2**70),
        MarkedRecord(1, "{topic}", "k", "v", timestamp_ms=0),
        MarkedRecord(1, "{topic}", "k", "v", timestamp_ms=-1),
        MarkedRecord(1, "{topic}", "k", "v", timestamp_ms=-5),
        MarkedRecord(1, "{topic}", "k", "v", [("tenant\0x", "admin")]),
        MarkedRecord(1, "{topic}", "k", "v", [("\ud800", "v")]),
        MarkedRecord(1, "{topic}", "k", "v", [("h", "\ud800")]),
        MarkedRecord(1, "{topic}", "\ud800", "v"),
        MarkedRecord(1, "t\ud800", "k", "v"),
    ],
    ids=[
        "bad topic",
        "no topic",
        "nul",
        "surrogate",
        "header",
        "large",
        "partition",
        "far partition",
        "any partition",
        "no partition",
        "timestamp",
        "no time",
        "no timestamp",
        "time before 1970",
        "header with NUL",
        "header with a surrogate",
        "surrogate in a header",
        "key with a surrogate",
        "topic with a surrogate",
    ],
)
def test_record_that_cannot_be_sent_fails_alone(
    kafka_bootstrap: str, topic: str, faulty: MarkedRecord
) -> None:
    faulty = faulty._replace(topic=faulty.topic.replace("{topic}", topic))
    sound = MarkedRecord(2, topic, "l", "v")
    sender = publisher(kafka_bootstrap).open("outbox.0")
    sender.send([faulty, sound])
    reports = gather(sender, 2)
    sender.close(5)
    assert reports.delivered == [sound]
    assert [(failure.record, failure.retryable) for failure in reports.failed] == [(faulty, False)]
    batches = publisher(kafka_bootstrap).open_transactional(f"{topic}.0")
    [failure] = batches.publish([faulty, sound], "checkpoint")
    assert (failure.record, failure.retryable) == (faulty, False)
    assert batches.publish([sound], "checkpoint") == []
    batches.close()


def test_full_queue_fails_the_rest_of_the_batch(kafka_bootstrap: str, topic: str) -> None:
    sender = publisher(kafka_bootstrap, queue_buffering_max_messages=3, linger_ms=200).open("outbox.0")
    records = [MarkedRecord(i, topic, f"k{i}", "v") for i in range(6)]
    sender.send(records)
    reports = gather(sender, 6)
    sender.close(5)
    assert reports.delivered == records[:3]
    assert reports.failed == [Failure(record, "Local: Queue full", retryable=True) for record in records[3:]]


def test_poll_returns_with_the_first_report(kafka_bootstrap: str, topic: str) -> None:
    sender = publisher(kafka_bootstrap).open("outbox.0")
    sender.send([MarkedRecord(1, topic, "k", "v")])
    gather(sender, 1)
    began = time.monotonic()
    sender.send([MarkedRecord(2, topic, "k", "v")])
    assert len(sender.poll(120).delivered) == 1
    assert time.monotonic() - began < 100
    began = time.monotonic()
    assert sender.poll(0.3) == Deliveries()
    assert time.monotonic() - began > 0.29
    sender.close(5)


def test_wave_leaves_in_one_request_and_does_not_linger(kafka_bootstrap: str, topic: str) -> None:
    linger, requests = 5, ProduceRequests()  # only a flush ends a wave
    kafka = {"bootstrap.servers": kafka_bootstrap, "linger.ms": 1000 * linger, **requests.settings}
    sender = KafkaSender("outbox.0", producer_settings(kafka), flush_seconds=linger)
    sender.send([MarkedRecord(0, topic, "k", "v")])
    gather(sender, 1)
    before = requests.count(sender.poll)
    for wave in range(10):
        sender.send([MarkedRecord(number, topic, f"k{number}", f"v{wave}") for number in range(1, 2001)])
        assert len(gather(sender, 2000).delivered) == 2000
    assert requests.count(sender.poll) - before == 10
    sender.close(5)


def test_close_delivers_what_is_under_way(kafka_bootstrap: str, topic: str) -> None:
    records = [MarkedRecord(number, topic, f"k{number}", "v" * 1000) for number in range(2000)]
    sender = publisher(kafka_bootstrap, linger_ms=500).open("outbox.0")
    sender.send(records)
    assert sender.close(10) == Deliveries(delivered=records)
    assert sender.close(10) == Deliveries()
    with pytest.raises(DriverError, match="closed"):
        sender.send(records)


def test_prepare_creates_what_is_missing(kafka_bootstrap: str, topic: str) -> None:
    other = f"{topic}-other"
    kafka = publisher(kafka_bootstrap)
    assert kafka.prepare([topic, other, topic], 3) == [topic, other]
    assert kafka.prepare([topic, other], 3) == []
    sender = kafka.open("outbox.0")
    sender.send([MarkedRecord(number, topic, "k", "v", partition=number) for number in range(3)])
    assert len(gather(sender, 3).delivered) == 3
    sender.close(5)


@pytest.mark.parametrize("transactional", [False, True])
def test_check_finds_nothing_wrong_with_a_sound_broker(kafka_bootstrap: str, transactional: bool) -> None:
    findings = publisher(kafka_bootstrap).check(transactional=transactional)
    subjects = {finding.subject for finding in findings}
    assert subjects >= {"Kafka broker", "Kafka idempotence", "Kafka replication"}
    assert ({"Kafka transactions", "Kafka checkpoints"} <= subjects) == transactional
    assert [finding for finding in findings if finding.level is not Level.OK] == []
