"""What transactions and checkpoints need of settings and of a broker; without a broker."""

from __future__ import annotations

import pytest
from outbox_api import ConfigError, DriverError, Level, MarkedRecord
from outbox_kafka.check_transactions import TransactionLog, transaction_findings
from outbox_kafka.settings import producer_settings, transactional_settings
from outbox_kafka.topics import unfit
from outbox_kafka.transactional_sender import chunks

from .kafka_access import publisher


def test_transaction_outlasts_its_deliveries() -> None:
    settings = transactional_settings({}, "outbox.a")
    assert settings["transactional.id"] == "outbox.a"
    assert int(settings["delivery.timeout.ms"]) < int(settings["transaction.timeout.ms"]) <= 15_000
    assert transactional_settings({"message.timeout.ms": 20_000}, "n")["transaction.timeout.ms"] == "27000"
    assert transactional_settings({"retry.backoff.ms": 7}, "n")["retry.backoff.ms"] == "7"
    publisher("b:1", transaction_timeout_ms=9000)


@pytest.mark.parametrize(
    "kafka",
    [
        {"transaction.timeout.ms": 8000},
        {"delivery.timeout.ms": 60_000, "transaction.timeout.ms": 30_000},
        {"message.timeout.ms": 0},
    ],
)
def test_transaction_that_its_deliveries_outlast_is_refused(kafka: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="must be greater"):
        transactional_settings(kafka, "outbox.a")
    kafka = {name.replace(".", "_"): value for name, value in kafka.items()}
    with pytest.raises(ConfigError, match="must be greater"):
        publisher("b:1", **kafka).open_transactional("a")


def test_contradiction_shows_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError, match="must be greater"):
        publisher("b:1", transaction_timeout_ms=1000)


def test_mock_of_a_broker_is_refused() -> None:
    with pytest.raises(DriverError, match="real Kafka") as caught:
        publisher("", test_mock_num_brokers=1).open_transactional("a")
    assert not caught.value.retryable


def test_chunks_keep_order_and_limit() -> None:
    records = [
        MarkedRecord(i, "t", "k", "v" * size) for i, size in enumerate([10, 500, 10, 10, 10, 500, 500])
    ]
    assert list(chunks(records, None)) == [records]
    assert list(chunks([], None)) == [[]]
    assert [len(chunk) for chunk in chunks(records, 100)] == [1, 1, 3, 1, 1]
    assert [len(chunk) for chunk in chunks(records, 0)] == [1] * 7
    assert [record for chunk in chunks(records, 100) for record in chunk] == records


_LOG = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
_SINGLE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
_NONE, _UNSEEN = TransactionLog(missing=True), TransactionLog()


@pytest.mark.parametrize(
    ("broker", "brokers", "log", "level"),
    [
        (_LOG, 3, _NONE, Level.OK),
        (_LOG, 2, _NONE, Level.ERROR),
        (_LOG, 2, _UNSEEN, Level.WARNING),
        (_LOG, 2, TransactionLog(replicas=3, min_in_sync=2), Level.OK),
        (_LOG, 1, TransactionLog(replicas=1, min_in_sync=1), Level.OK),
        (_LOG, 3, TransactionLog(replicas=1, min_in_sync=2), Level.ERROR),
        (_LOG | {"transaction.state.log.min.isr": "4"}, 3, _UNSEEN, Level.ERROR),
        (_SINGLE, 3, _NONE, Level.WARNING),
        ({"transaction.max.timeout.ms": "10000"}, 1, _NONE, Level.ERROR),
    ],
)
def test_what_exactly_once_needs_of_a_broker_is_judged(
    broker: dict[str, str], brokers: int, log: TransactionLog, level: Level
) -> None:
    [finding] = transaction_findings(broker, brokers, producer_settings({}), log)
    assert finding.level is level
    assert bool(finding.cure) == (level is not Level.OK)
    assert level is Level.OK or "xactly-once" in finding.message


def test_the_session_of_several_brokers_is_named_as_it_may_tear_transactions() -> None:
    broker = {"broker.session.timeout.ms": "9000"}
    [finding] = transaction_findings(broker, 3, producer_settings({}), TransactionLog())
    assert finding.level is Level.OK
    assert "within 9000 ms" in finding.message
    assert not list(transaction_findings(broker, 1, producer_settings({}), TransactionLog()))


@pytest.mark.parametrize(
    ("config", "cure"),
    [
        ({"cleanup.policy": "compact"}, None),
        ({"cleanup.policy": "compact", "max.message.bytes": "1048588"}, None),
        ({"cleanup.policy": "compact,delete"}, "cleanup.policy=compact"),
        ({"cleanup.policy": "delete", "max.message.bytes": "1000"}, "cleanup.policy=compact"),
        ({}, "cleanup.policy=compact"),
        ({"cleanup.policy": "compact", "max.message.bytes": "100000"}, "max.message.bytes=1000000"),
    ],
)
def test_topic_that_would_lose_checkpoints_or_refuse_them_is_unfit(
    config: dict[str, str], cure: str | None
) -> None:
    problem = unfit("c", config)
    assert (problem is None) == (cure is None)
    assert problem is None or problem.cure.endswith(f"--entity-name c --add-config {cure}")


def test_what_exactly_once_needs_of_the_settings_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_kafka.check._TIMEOUT", 0.1)
    kafka = publisher("127.0.0.1:1", message_timeout_ms=0)
    [found] = [each for each in kafka.check(transactional=True) if each.subject == "Kafka transactions"]
    assert found.level is Level.ERROR
    assert "'transaction.timeout.ms'" in found.message
    assert "'message.timeout.ms'" in found.message
    assert found.cure
    assert "Kafka transactions" not in {each.subject for each in kafka.check(transactional=False)}


def test_mock_of_a_broker_is_an_error_for_exactly_once_alone() -> None:
    mock = publisher("", test_mock_num_brokers=1)
    assert [each.cure for each in mock.check(transactional=True) if each.level is Level.ERROR] == [
        "remove test.mock.num.brokers: exactly-once delivery needs a real Kafka"
    ]
    assert Level.ERROR not in {each.level for each in mock.check(transactional=False)}
