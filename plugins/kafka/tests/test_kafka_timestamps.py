"""Timestamps that a broker refuses: the records' own, and those of this machine's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from outbox_api import Deliveries, DriverError, MarkedRecord
from outbox_kafka.timestamps import TimestampLimits, explain

from .kafka_access import alter_topic, gather, publisher

FUTURE = int(time.time() * 1000) + 48 * 3600 * 1000
"""Milliseconds; brokers accept an hour by default."""

FAULTY = {4, 7}
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def records(topic: str) -> list[MarkedRecord]:
    """Returns ten records; two of them have a timestamp that no broker accepts."""
    made = [MarkedRecord(i, topic, f"k{i}", str(i) * 200, partition=0) for i in range(10)]
    for faulty in FAULTY:
        made[faulty] = made[faulty]._replace(timestamp_ms=FUTURE)
    return made


def sound(sent: list[MarkedRecord]) -> list[MarkedRecord]:
    return [record for record in sent if record.id not in FAULTY]


@pytest.fixture
def impatient(topic: str, kafka_bootstrap: str) -> str:
    """A topic that accepts no record from the past, so that this machine's clock always seems to be late."""
    publisher(kafka_bootstrap).prepare([topic], 1)
    alter_topic(kafka_bootstrap, topic, "message.timestamp.before.max.ms", "0")
    return topic


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every topic's limits count as wide enough, so that a refusal means a wrong clock."""
    monkeypatch.setattr("outbox_kafka.timestamps._MAX_CLOCK_ERROR_MS", 0)


def test_only_the_records_fail_that_ask_for_a_time_that_is_refused(kafka_bootstrap: str, topic: str) -> None:
    kafka = publisher(kafka_bootstrap, linger_ms=100)
    kafka.prepare([topic], 1)
    sender, sent = kafka.open("outbox.0"), records(topic)
    sender.send(sent)
    reports = gather(sender, 10)
    assert sender.close(5) == Deliveries()
    assert sorted(reports.delivered) == sound(sent)
    assert {(failure.record.id, failure.retryable) for failure in reports.failed} == {(4, False), (7, False)}
    assert all("INVALID_TIMESTAMP" in failure.reason for failure in reports.failed)


def test_only_the_records_are_to_blame_in_a_transaction(kafka_bootstrap: str, topic: str) -> None:
    kafka = publisher(kafka_bootstrap, linger_ms=100)
    kafka.prepare([topic], 1)
    sender, sent = kafka.open_transactional(topic), records(topic)
    failures = sender.publish(sent, "batch")  # both at once, as the topic's settings tell
    assert [(each.record.id, each.retryable) for each in failures] == [(4, False), (7, False)]
    assert sender.publish(sound(sent), "batch") == []
    sender.close()


def test_what_a_topic_has_refused_is_foreseen_until_it_permits_it(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = publisher(kafka_bootstrap, linger_ms=100)
    kafka.prepare([topic], 1)
    sender, sent = kafka.open_transactional(topic), records(topic)
    assert len(sender.publish(sent, "batch")) == len(FAULTY)
    with monkeypatch.context() as patched:
        patched.setattr(sender._producer, "begin", None)  # no transaction is begun
        assert {each.record.id for each in sender.publish(sent, "batch")} == FAULTY
    alter_topic(kafka_bootstrap, topic, "message.timestamp.after.max.ms", str(100 * 3600 * 1000))
    monkeypatch.setattr("outbox_kafka.timestamps._FRESH_SECONDS", 0.0)
    assert sender.publish(sent, "batch") == []
    sender.close()


def test_only_the_records_are_to_blame_in_a_transaction_where_nobody_tells_what_a_topic_permits(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kafka.timestamps._limits", lambda *_: None)
    kafka = publisher(kafka_bootstrap, linger_ms=100)
    kafka.prepare([topic], 1)
    sender, sent = kafka.open_transactional(topic), records(topic)
    for number in 4, 7:
        [failure] = sender.publish(sent, "batch")
        assert (failure.record.id, failure.retryable) == (number, False)
        assert sender._chunk_bytes is None  # small chunks are for the search only
        sent = [record for record in sent if record.id != number]
    assert sender.publish(sent, "batch") == []
    sender.close()


@pytest.mark.parametrize(
    "change",
    [{"headers": [("a\0", "v")]}, {"partition": 2**40}, {"value": "v" * 2_000_000}, {"value": "\ud800"}],
)
def test_a_record_that_the_client_refuses_lets_no_other_be_blamed_for_a_refused_batch(
    kafka_bootstrap: str, topic: str, change: dict[str, Any]
) -> None:
    kafka = publisher(kafka_bootstrap, linger_ms=100)
    kafka.prepare([topic], 1)
    sender, sent = kafka.open_transactional(topic), records(topic)
    sent.append(sent[-1]._replace(id=10, key="k10", **change))
    blamed = []
    while failures := sender.publish(sent, "batch"):
        blamed += [failure.record.id for failure in failures]
        sent = [record for record in sent if record.id not in blamed]
    assert sorted(blamed) == [*sorted(FAULTY), 10]
    sender.close()


def test_a_wrong_clock_ends_the_sender_and_fails_no_record(
    kafka_bootstrap: str, impatient: str, strict: None
) -> None:
    sender = publisher(kafka_bootstrap).open("outbox.0")

    def insist() -> None:
        for number in range(200):  # a record that arrives within the same millisecond is accepted
            sender.send([MarkedRecord(number, impatient, "k", "v")])
            assert sender.poll(1).failed == []

    with pytest.raises(DriverError, match=f"this machine's clock.*'{impatient}'.*behind") as caught:
        insist()
    assert not caught.value.retryable
    sender.close(0)


def test_a_wrong_clock_ends_the_transactional_sender_and_fails_no_record(
    kafka_bootstrap: str, impatient: str, strict: None
) -> None:
    sender = publisher(kafka_bootstrap).open_transactional(impatient)

    def insist() -> None:
        for number in range(200):
            assert sender.publish([MarkedRecord(number, impatient, "k", "v")], "batch") == []

    with pytest.raises(DriverError, match="this machine's clock") as caught:
        insist()
    assert not caught.value.retryable
    sender.close()


def test_a_topic_that_no_clock_can_satisfy_holds_up_no_other(kafka_bootstrap: str, impatient: str) -> None:
    kafka, other = publisher(kafka_bootstrap), f"{impatient}-other"
    kafka.prepare([other], 1)
    sender, failures = kafka.open("outbox.0"), []
    for number in range(200):
        sender.send([MarkedRecord(number, impatient, "k", "v"), MarkedRecord(number, other, "o", "v")])
        reports = gather(sender, 2)
        assert other in {record.topic for record in reports.delivered}
        failures += reports.failed
        if failures:
            break
    assert [(failure.record.topic, failure.retryable) for failure in failures] == [(impatient, True)]
    assert "permits 0 ms before" in failures[0].reason
    sender.close(5)


@pytest.mark.parametrize(
    ("bounds", "clock", "says"),
    [
        (TimestampLimits(2**63 - 1, 3_600_000), True, "it is more than 3600 s ahead of the broker's"),
        (TimestampLimits(60_000, 2**63 - 1), True, "it is more than 60 s behind the broker's"),
        (TimestampLimits(7_200_000, 3_600_000), True, "more than 3600 s ahead of or more than 7200 s behind"),
        (TimestampLimits(2**63 - 1, 2**63 - 1), True, "far from the broker's"),
        (TimestampLimits(59_999, 3_600_000), False, "permits 59999 ms before"),
        (None, True, "or look at message.timestamp.before.max.ms"),
    ],
)
def test_the_limits_of_the_topic_show_the_cause(
    bounds: TimestampLimits | None, clock: bool, says: str
) -> None:
    assert explain("t", bounds, NOW).clock_is_wrong is clock
    assert says in explain("t", bounds, NOW).reason
    assert "2026-07-01T12:00:00Z" in explain("t", bounds, NOW).reason
