"""The fixtures give working, separate services."""

from __future__ import annotations

import psycopg
from confluent_kafka import Consumer, Producer
from outbox_testkit.services import Postgres


def test_every_test_gets_a_database_of_its_own(postgres_dsn: str, postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE made_here (x int)")
        name = connection.info.dbname
    with psycopg.connect(postgres_server.dsn) as connection:
        row = connection.execute("SELECT to_regclass('made_here')").fetchone()
    assert row == (None,)
    assert name != "postgres"


def test_kafka_carries_a_record(kafka_bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(topic, b"value", b"key")
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        assert (message.key(), message.value()) == (b"key", b"value")
    finally:
        consumer.close()
