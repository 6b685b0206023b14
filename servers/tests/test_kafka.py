"""Kafka as a service: transactions, crashes, and settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from outbox_servers.services import KafkaBroker, ServiceError, find_java
from outbox_servers.services.kafka_home import installed_home, kafka_home

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(properties={"broker.session.timeout.ms": "1500", "num.partitions": "3"}) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leaves a broker that serves to the next test, whatever this one did to it."""
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").start()


def _produce(broker: KafkaBroker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    failures: list[KafkaError] = []
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failures == []


def _consume(broker: KafkaBroker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, 60)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()


@pytest.mark.parametrize("way", [pytest.param("restart", marks=pytest.mark.slow), "kill"])
def test_records_and_the_address_survive(broker: KafkaBroker, topic: str, way: str) -> None:
    _produce(broker, topic, b"before")
    address = broker.bootstrap
    if way == "restart":
        broker.restart()
    else:
        broker.kill()
        assert not broker.running
        broker.start()
    assert broker.bootstrap == address
    _produce(broker, topic, b"after")
    assert _consume(broker, topic, 2) == [b"before", b"after"]


@pytest.mark.slow
def test_a_newer_transactional_producer_fences_the_older(broker: KafkaBroker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic}
    old, new = Producer(settings), Producer(settings)
    old.init_transactions(30)
    old.begin_transaction()
    old.produce(topic, b"from the old one", partition=0)
    assert old.flush(60) == 0
    new.init_transactions(30)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(30)
    assert caught.value.args[0].code() == KafkaError._FENCED
    new.begin_transaction()
    new.produce(topic, b"from the new one", partition=0)
    new.commit_transaction(30)
    assert _consume(broker, topic, 1) == [b"from the new one"]


def test_a_paused_broker_delays_but_loses_nothing(broker: KafkaBroker, topic: str) -> None:
    _produce(broker, topic, b"warm")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    broker.pause()
    try:
        producer.produce(topic, b"late", partition=0)
        assert producer.flush(1) == 1
    finally:
        broker.resume()
    assert producer.flush(60) == 0
    assert _consume(broker, topic, 2) == [b"warm", b"late"]


def test_properties_reach_the_broker(broker: KafkaBroker, topic: str) -> None:
    _produce(broker, topic, b"x")
    metadata = broker.admin().list_topics(topic, timeout=60)
    assert len(metadata.topics[topic].partitions) == 3


@pytest.mark.slow
def test_topics_are_created_only_if_wanted(topic: str) -> None:
    with KafkaBroker(auto_create_topics=False) as broker:
        assert topic not in broker.admin().list_topics(timeout=60).topics
        answer = broker.admin().list_topics(topic, timeout=60).topics[topic]
        assert answer.error is not None
        assert answer.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_wrong_setting_is_named_in_the_error() -> None:
    with (
        pytest.raises(ServiceError, match=r"log\.retention\.ms"),
        KafkaBroker(properties={"log.retention.ms": "soon"}),
    ):
        pass


@pytest.mark.slow
def test_an_unpacked_distribution_serves_as_well(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = find_java()
    (tmp_path / "libs").symlink_to(kafka_home(java) / "jars")
    with pytest.raises(ServiceError, match="no jars"):
        installed_home(tmp_path / "elsewhere", java)
    monkeypatch.setenv("OUTBOX_CACHE", str(tmp_path / "cache"))
    home = installed_home(tmp_path, java)
    monkeypatch.setattr("outbox_servers.services.kafka.kafka_home", lambda *_: home)
    with KafkaBroker(java=java) as broker:
        _produce(broker, topic, b"x")
        assert _consume(broker, topic, 1) == [b"x"]
        broker.kill()  # An orderly stop would first create the class archive, which takes time.


@pytest.mark.slow
def test_a_port_that_another_broker_has_taken_is_given_up(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = [broker.port]
    real = KafkaBroker._choose_ports

    def choose(chooser: KafkaBroker) -> None:
        real(chooser)
        if ports:
            chooser._port = ports.pop()

    monkeypatch.setattr(KafkaBroker, "_choose_ports", choose)
    with KafkaBroker() as other:
        assert ports == []
        assert other.port != broker.port


@pytest.mark.slow
def test_a_temporary_folder_is_gone_after_close() -> None:
    server = KafkaBroker()
    with server:
        assert server.folder.is_dir()
    assert not server.folder.exists()
    assert not server.running
