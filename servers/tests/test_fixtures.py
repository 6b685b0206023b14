"""The fixtures give working, separate services."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from outbox_servers.services import MySql, Postgres, connect_mysql


def test_every_test_gets_a_database_of_its_own(postgres_dsn: str, postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE made_here (x int)")
        name = connection.info.dbname
    with psycopg.connect(postgres_server.dsn) as connection:
        row = connection.execute("SELECT to_regclass('made_here')").fetchone()
    assert row == (None,)
    assert name != "postgres"


@pytest.mark.parametrize("brand", ["mysql", "mariadb"])
def test_every_test_gets_a_mysql_database_of_its_own(brand: str, request: pytest.FixtureRequest) -> None:
    server: MySql = request.getfixturevalue(f"{brand}_server")
    with connect_mysql(request.getfixturevalue(f"{brand}_dsn")) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made_here (x int)")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT database(), version()")
        ((database, version),) = cursor.fetchall()
    assert database is None
    assert ("MariaDB" in version) == (brand == "mariadb")


def test_kafka_carries_a_record(kafka_bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(topic, b"value", b"key")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka_bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(120)
        assert message is not None
        assert message.error() is None
        assert (message.key(), message.value()) == (b"key", b"value")
    finally:
        consumer.close()
