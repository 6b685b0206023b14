"""Complete audits: a ledger on disk compared with topics of a real broker."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from outbox_api import OutboxError
from outbox_audit import Comparison, Entry, Isolation, Ledger, Result, compare, read_entries

Message = tuple[str, str, int]
"""Topic, key and number."""


def publish(bootstrap: str, messages: Iterable[Message]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for topic, key, number in messages:
        producer.produce(topic, b"", key.encode(), headers=[("Seq", str(number).encode())])
    producer.flush()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def write(ledger: Path, *lines: object) -> None:
    ledger.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def results(found: list[Comparison]) -> dict[tuple[str, ...], Result]:
    return {comparison.topics: comparison.result for comparison in found}


def test_a_ledger_can_name_topics(ledger: Path) -> None:
    with Ledger(ledger) as written:
        written.write([("a", 1, "orders"), ("a", 2), ("b", 3, None)])
    assert ledger.read_text() == '["a", 1, "orders"]\n["a", 2]\n["b", 3]\n'
    assert list(read_entries(ledger)) == [Entry("a", 1, "orders"), Entry("a", 2), Entry("b", 3)]


def test_topics_that_the_ledger_names_are_audited_apart(
    ledger: Path, kafka_bootstrap: str, topic: str
) -> None:
    """The same key and number in two topics are two records, and each topic has its own defects."""
    orders, payments = f"{topic}.orders", f"{topic}.payments"
    publish(kafka_bootstrap, [(orders, "k", 0), (orders, "k", 1), (payments, "k", 1), (payments, "k", 0)])
    write(ledger, ["k", 0, orders], ["k", 1, orders], ["k", 0, payments], ["k", 1, payments])
    kafka = {"bootstrap.servers": kafka_bootstrap}
    read: list[int] = []
    found = results(compare(ledger, (), kafka, progress=read.append))
    assert sum(read) == 8
    assert found[orders,].good
    assert found[payments,].overtaken == 1
    assert list(results(compare(ledger, [orders], kafka))) == [(orders,)]


def test_topics_that_the_ledger_does_not_name_are_audited_as_one(
    ledger: Path, kafka_bootstrap: str, topic: str
) -> None:
    one, other = f"{topic}.one", f"{topic}.other"
    publish(kafka_bootstrap, [(one, "a", 0), (other, "b", 0), (other, "b", 1)])
    write(ledger, ["a", 0], ["b", 0], ["b", 1])
    kafka = {"bootstrap.servers": kafka_bootstrap}
    [comparison] = compare(ledger, [one, other, one], kafka)
    assert comparison.topics == (one, other)
    assert comparison.result.good
    [comparison] = compare(ledger, [other], kafka)
    assert comparison.result.lost == 1


def test_settings_of_a_producer_are_taken_too(ledger: Path, kafka_bootstrap: str, topic: str) -> None:
    publish(kafka_bootstrap, [(topic, "a", 0)])
    write(ledger, ["a", 0, topic])
    kafka = {"bootstrap.servers": kafka_bootstrap, "linger.ms": "5", "compression.type": "lz4"}
    assert compare(ledger, (), kafka)[0].result.good


def test_what_was_aborted_is_compared_on_demand(ledger: Path, kafka_bootstrap: str, topic: str) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap}
    producer = Producer({**kafka, "transactional.id": topic})
    producer.init_transactions()
    for finish in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"", b"a", headers=[("Seq", b"0")])
        producer.flush()
        finish()
    write(ledger, ["a", 0, topic])
    assert compare(ledger, (), kafka)[0].result.exactly_once
    assert compare(ledger, (), kafka, isolation=Isolation.READ_UNCOMMITTED)[0].result.duplicates == 1


@pytest.mark.parametrize(
    ("lines", "topics", "told"),
    [
        ([["a", 0]], [], "names no topic"),
        ([], [], "names no topic"),
        ([["a", 0, "x"], ["a", 1]], [], "a topic in some of its lines and none in others"),
        ([["a", 0, "x"]], ["y"], "no record of topic 'y'"),
        ([["a", 0, "x"], ["a", 0, "x"]], [], "sequence 0 was committed twice"),
        ([["a", 0, 7]], [], 'ledger:1: expected a line like \\["key", 7\\]'),
    ],
)
def test_a_ledger_that_cannot_be_used(
    lines: list[object], topics: list[str], told: str, ledger: Path
) -> None:
    write(ledger, *lines)
    with pytest.raises(OutboxError, match=told):
        compare(ledger, topics, {})


def test_a_ledger_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(OutboxError, match="cannot read ledger"):
        compare(tmp_path / "no", (), {})
    with pytest.raises(OutboxError, match="cannot write ledger"):
        Ledger(tmp_path)
