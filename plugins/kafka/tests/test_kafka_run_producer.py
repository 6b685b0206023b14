"""The producer of runs without a broker: its settings, and records that nobody acknowledges."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from outbox_api import MarkedRecord
from outbox_kafka import runs as runs_module
from outbox_kafka.sender import KafkaSender

from .kafka_access import gather, publisher
from .run_senders import run

NOBODY = "127.0.0.1:1"


@pytest.fixture
def closing() -> Iterator[list[KafkaSender]]:
    senders: list[KafkaSender] = []
    yield senders
    for each in senders:
        each.close(0)


def opened(closing: list[KafkaSender], **settings: object) -> KafkaSender:
    """Returns a sender that knows the topic 't'."""
    sender = publisher(NOBODY, **settings).open("outbox.0")
    sender._topics.existing.add("t")
    closing.append(sender)
    return sender


def follow(sender: KafkaSender, records: list[MarkedRecord]) -> None:
    """Sends records as if the first of their runs had been delivered."""
    sender._runs.open()
    sender.send_runs([], records)


class Fake:
    """A client that has failed for good: it raises, and reports nothing."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.polls = 0

    def __len__(self) -> int:
        return 1

    def produce(self, *_: object) -> None:
        """Takes everything."""

    def poll(self, timeout: float) -> None:
        self.polls += 1
        time.sleep(min(timeout, 0.05))
        if self.polls == 1:
            raise KafkaException(KafkaError(KafkaError._FATAL, "sequence lost", fatal=True))
        if self.polls == 2:
            raise SystemError("a callback was called with an exception set")

    def flush(self, timeout: float) -> None:
        self.poll(timeout)

    def purge(self, **_: bool) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    def close(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"max_in_flight_requests_per_connection": 5, "max_in_flight": 4},
        {"max_in_flight": 4},
        {"delivery_timeout_ms": 1000, "message_timeout_ms": 2000},
        {"message_timeout_ms": 2000},
        {"enable_gapless_guarantee": False},
    ],
)
def test_settings_that_runs_need_replace_those_of_the_user(
    closing: list[KafkaSender], monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    made: list[Fake] = []

    def make(settings: Mapping[str, Any]) -> Fake:
        made.append(Fake(settings))
        return made[0]

    monkeypatch.setattr(runs_module, "Producer", make)
    sender = opened(closing, **given)
    sender.send_runs(run("t", "k", 1), [])
    [fake] = made
    named = {name: fake.settings.get(name) for name in (*runs_module._TIMEOUTS, *runs_module._IN_FLIGHT)}
    assert named == {
        "delivery.timeout.ms": "0",
        "message.timeout.ms": None,
        "max.in.flight.requests.per.connection": "1",
        "max.in.flight": None,
    }
    assert fake.settings["enable.gapless.guarantee"] == "true"
    assert fake.settings["client.id"] == "outbox.0.runs"


def test_a_client_that_has_failed_ends_alone(
    closing: list[KafkaSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for a second for the rest; then all fail, and the next run has another."""
    monkeypatch.setattr(runs_module, "Producer", Fake)
    sender = opened(closing, delivery_timeout_ms=100_000)
    records = [MarkedRecord(each, "t", f"k{each}", "v", partition=0) for each in range(5)]
    follow(sender, records)
    began = time.monotonic()
    reports = gather(sender, 5)
    assert time.monotonic() - began >= 1, "and not only after their time-out"
    assert sorted(failure.record.id for failure in reports.failed) == [*range(5)]
    assert all(failure.innocent and "sequence lost" in failure.reason for failure in reports.failed)
    assert sender._runs._producer is None
    assert sender._error is None


def test_nothing_follows_while_the_client_cannot_be_opened(
    closing: list[KafkaSender], tmp_path: Path
) -> None:
    certificate = tmp_path / "ca.pem"
    sender = opened(closing)
    sender._runs._settings["ssl.ca.location"] = str(certificate)
    sender._runs._settings["security.protocol"] = "ssl"
    follow(sender, run("t", "k", 1))
    [failure] = sender.poll(0).failed
    assert failure.retryable
    assert failure.innocent
    assert not sender._runs.ready


def test_what_a_new_producer_may_not_send_yet_is_not_at_fault(closing: list[KafkaSender]) -> None:
    """The producer that had sent the first record has failed because of another key."""
    sender = opened(closing)
    sender.send_runs([], [each._replace(partition=0) for each in run("t", "k", 2)])
    failed = sender.poll(0).failed
    assert [each.innocent and each.retryable for each in failed] == [True, True]


def test_what_has_no_room_in_the_client_fails(closing: list[KafkaSender]) -> None:
    sender = opened(closing, queue_buffering_max_messages=5, delivery_timeout_ms=500)
    records = [MarkedRecord(each, "t", f"k{each}", "v", partition=each) for each in range(12)]
    follow(sender, records)
    full = sender.poll(0)
    assert [failure.record for failure in full.failed] == records[5:]
    assert not any(failure.suspect for failure in full.failed)
    late = gather(sender, 5)
    assert [failure.record for failure in late.failed] == records[:5]


def test_a_run_that_nobody_acknowledges_fails_after_the_time_out(closing: list[KafkaSender]) -> None:
    sender, records = opened(closing, delivery_timeout_ms=700), run("t", "k", 1)
    follow(sender, records)
    began, cpu = time.monotonic(), time.thread_time()
    [failure] = gather(sender, 1).failed
    assert failure.innocent, "it was not sent"
    assert time.monotonic() - began >= 0.7
    assert time.thread_time() - cpu < 0.3, "it spins"
    assert not sender._runs


def test_a_sender_is_not_settled_while_runs_are_out(closing: list[KafkaSender]) -> None:
    sender = opened(closing)
    follow(sender, run("t", "k", 1))
    assert not sender._settle(sender._open_producer().producer, 0.1)


class Written:
    """A message that was written."""

    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize(("ready", "partition"), [(False, None), (True, 3)])
def test_a_record_that_names_its_partition_leads_no_run_until_the_client_is_ready(
    closing: list[KafkaSender], monkeypatch: pytest.MonkeyPatch, ready: bool, partition: int | None
) -> None:
    monkeypatch.setattr(runs_module.RunProducer, "ready", ready)
    sender, record = opened(closing), MarkedRecord(1, "t", "k", "v", partition=3)
    sender._on_first_delivery(record, None, Written(3, 7))  # type: ignore[arg-type]  # all that is asked of it
    [delivered] = sender.poll(0).delivered
    assert delivered.partition == partition


def test_what_has_waited_for_another_hides_no_older_record(
    closing: list[KafkaSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest record without a report tells when the client is given up."""
    sender = opened(closing)
    records = [MarkedRecord(each, "t", f"k{each}", "v", partition=each // 2) for each in range(4)]
    follow(sender, records)
    runs = sender._runs
    assert runs._producer is not None
    runs._on_delivery(records[0], None, Written(0, 7))  # type: ignore[arg-type]  # all that is asked of it
    runs.poll(0, flushes=False)
    times = [since for _, since in runs._out.values()]
    assert len(times) == 3
    assert times == sorted(times)
