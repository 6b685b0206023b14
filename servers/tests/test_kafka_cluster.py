"""Kafka as a cluster of three: brokers that are killed and frozen, leaders, and proxies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # public, but left out of its types
from outbox_servers.services import KafkaCluster
from outbox_servers.services.process import free_port

pytestmark = pytest.mark.slow

PORTS = [free_port() for _ in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[KafkaCluster]:
    properties = {"broker.session.timeout.ms": "1500"}
    with KafkaCluster(folder=folder, properties=properties, proxy_ports=PORTS) as running:
        yield running


@pytest.fixture(autouse=True)
def whole_again(cluster: KafkaCluster) -> Iterator[None]:
    """Leaves three brokers that serve to the next test, whatever this one did to them."""
    yield
    cluster.start()


def test_records_survive_the_end_of_two_brokers(cluster: KafkaCluster, topic: str, folder: Path) -> None:
    admin = cluster.admin()
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    cluster.wait_until_in_sync()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, b"before", partition=0)
    assert producer.flush(60) == 0
    leader = cluster.leader(topic, 0)
    assert leader in cluster.brokers
    follower = next(broker for broker in cluster.brokers if broker is not leader)
    leader.kill()
    follower.kill()
    cluster.start()
    cluster.wait_until_in_sync()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, 60)
    consumer.close()
    assert message.value() == b"before"
    assert {each.name for each in folder.iterdir()} == {"broker-1", "broker-2", "broker-3"}


def test_a_start_continues_a_frozen_broker(cluster: KafkaCluster) -> None:
    frozen = cluster.brokers[1]
    frozen.pause()
    cluster.start()
    metadata = frozen.admin().list_topics(timeout=30)
    assert set(metadata.brokers) == {1, 2, 3}


def test_a_partition_that_does_not_exist_has_no_leader(cluster: KafkaCluster, topic: str) -> None:
    assert cluster.leader(topic, 0) is None


def test_each_broker_listens_for_its_proxy(cluster: KafkaCluster) -> None:
    assert len({port for broker in cluster.brokers for port in (broker.port, broker.proxied_port)}) == 6
