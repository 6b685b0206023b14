"""The inputs of an audit: ledgers on disk, and topics of a real broker."""

from itertools import count
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    NewTopic,
)
from outbox_api import DriverError, OutboxError
from outbox_audit import Audit, Isolation, Ledger, read_ledger, read_topic


def test_a_ledger_returns_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.write([("a", 1), ("日本 \n\"'\u2028", 2)])
        ledger.write([])
    with Ledger(path) as ledger:
        ledger.write([("", 3)])
    assert list(read_ledger(path)) == [("a", 1), ("日本 \n\"'\u2028", 2), ("", 3)]


def test_writers_of_one_ledger_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:

        def write(key: str) -> None:
            for number in range(500):
                ledger.write([(key, number), (key, number + 1000)])

        threads = [Thread(target=write, args=(key,)) for key in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = list(read_ledger(path))
    assert len(records) == 4000
    assert [number for key, number in records if key == "b"] == [m for n in range(500) for m in (n, n + 1000)]


@pytest.mark.parametrize(
    "line", ["nonsense", "[1, 2]", '["a"]', '["a", "1"]', '["a", true]', "7", '["a", 1', '["ä", 1]']
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "ledger"
    path.write_text(f'["a", 1]\n{line}\n', "latin-1")
    with pytest.raises(OutboxError, match=r'ledger:2: expected a line like \["key", 7\]'):
        list(read_ledger(path))


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def test_a_topic_is_read_to_its_end_in_order(kafka_bootstrap: str, topic: str) -> None:
    create(kafka_bootstrap, topic, 3)
    producer = Producer({"bootstrap.servers": kafka_bootstrap, "enable.idempotence": True})
    keys = [f"key-{number}" for number in range(20)]
    for number in range(200):
        for key in keys:
            producer.produce(
                topic, b"", key.encode(), headers=[("other", b"9"), ("Seq", str(number).encode())]
            )
    producer.flush()
    messages = list(read_topic({"bootstrap.servers": kafka_bootstrap}, topic))
    assert len(messages) == 4000
    for key in keys:
        assert [number for each, number in messages if each == key] == list(range(200))
    audit = Audit()
    for key in keys:
        for number in range(200):
            audit.committed(key, number)
    for message in messages:
        audit.arrived(*message)
    assert audit.result().good


def test_messages_without_key_or_number(kafka_bootstrap: str, topic: str) -> None:
    create(kafka_bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(topic, b"")
    producer.produce(topic, b"", b"\xff", headers=[("Seq", b"four")])
    producer.produce(topic, b"", "ü".encode(), headers=[("Seq", None), ("Number", b"4")])
    producer.flush()
    kafka = {"bootstrap.servers": kafka_bootstrap}
    assert list(read_topic(kafka, topic)) == [("", None), ("\\xff", None), ("ü", None)]
    assert list(read_topic(kafka, topic, "Number")) == [("", None), ("\\xff", None), ("ü", 4)]


def test_an_empty_topic_ends_at_once(kafka_bootstrap: str, topic: str) -> None:
    create(kafka_bootstrap, topic, 2)
    assert list(read_topic({"bootstrap.servers": kafka_bootstrap}, topic)) == []


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions()
    return producer


def begin(producer: Producer, topic: str, number: int) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"", b"k", headers=[("Seq", str(number).encode())])
    producer.flush()


def test_only_committed_transactions_are_seen(kafka_bootstrap: str, topic: str) -> None:
    """The last offset of the partition is a control record, which consumers do not receive."""
    create(kafka_bootstrap, topic, 1)
    producer = transactional(kafka_bootstrap, topic)
    for number, finish in enumerate([producer.commit_transaction, producer.abort_transaction] * 2):
        begin(producer, topic, number)
        finish()
    kafka = {"bootstrap.servers": kafka_bootstrap, "isolation.level": "read_uncommitted"}
    assert list(read_topic(kafka, topic)) == [("k", 0), ("k", 2)]
    uncommitted = read_topic(kafka, topic, isolation=Isolation.READ_UNCOMMITTED)
    assert list(uncommitted) == [("k", number) for number in range(4)]


def test_a_transaction_that_is_open_is_waited_for(
    kafka_bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of another producer, because messages behind it are not visible before."""
    create(kafka_bootstrap, topic, 1)
    kafka = {"bootstrap.servers": kafka_bootstrap}
    other, producer = (transactional(kafka_bootstrap, f"{topic}.{name}") for name in ("other", "ours"))
    begin(producer, topic, 0)
    producer.commit_transaction()
    begin(other, topic, 1)
    begin(producer, topic, 2)
    producer.commit_transaction()
    messages = read_topic(kafka, topic)
    assert next(messages) == ("k", 0)
    with monkeypatch.context() as patch:
        seconds = count(0, 10)  # between two looks at the clock
        patch.setattr("outbox_audit.topic.monotonic", lambda: monotonic() + next(seconds))
        with pytest.raises(DriverError, match="is a transaction still open"):
            next(messages)
    messages = read_topic(kafka, topic)
    assert next(messages) == ("k", 0)
    other.commit_transaction()
    assert list(messages) == [("k", 1), ("k", 2)]


def test_an_absent_topic_is_an_error(kafka_bootstrap: str, topic: str) -> None:
    kafka = {"bootstrap.servers": kafka_bootstrap, "allow.auto.create.topics": False}
    with pytest.raises(DriverError, match="Unknown topic"):
        list(read_topic(kafka, topic))


def test_an_absent_broker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_audit.topic._TIMEOUT_SECONDS", 1.0)
    kafka = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    with pytest.raises(DriverError, match="cannot read topic 'orders'") as caught:
        list(read_topic(kafka, "orders"))
    assert caught.value.retryable
