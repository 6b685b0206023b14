"""A table with Debezium's layout is harvested as it is, while its application continues to write."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # left out of its types
from outbox_servers.services import Kafka, PostgresServer

from .harvesters import Harvester, outbox, until
from .topics import ends, messages

PARTITIONS = 3
EVENTS = """
CREATE TABLE outboxevent (
    id UUID NOT NULL PRIMARY KEY,
    aggregatetype VARCHAR(255) NOT NULL,
    aggregateid VARCHAR(255) NOT NULL,
    type VARCHAR(255) NOT NULL,
    payload JSONB
)
"""
SHAPE = """
SELECT attname::text, format_type(atttypid, atttypmod), attnotnull::text FROM pg_attribute
WHERE attrelid = 'outboxevent'::regclass AND attnum > 0
UNION ALL SELECT indexrelid::regclass::text, indkey::text, '' FROM pg_index
WHERE indrelid = 'outboxevent'::regclass
UNION ALL SELECT tgname::text, '', '' FROM pg_trigger WHERE tgrelid = 'outboxevent'::regclass
"""


def write(dsn: str, aggregate: str, first: int, last: int, *, keys: int) -> None:
    """Writes events in transactions of ten, some with a savepoint within, some rolled back."""
    insert = "INSERT INTO outboxevent VALUES (%s, %s, %s, 'changed', %s)"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for start in range(first, last + 1, 10):
            with connection.transaction():
                for number in range(start, start + 10):
                    values = (uuid4(), aggregate, f"k{number % keys}", json.dumps({"n": number}))
                    with connection.transaction(force_rollback=number % 7 == 0):
                        connection.execute(insert, values)
                    if number % 7 == 0:
                        connection.execute(insert, values)


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.slow), "exactly-once"])
def test_debeziums_table_is_harvested_as_it_is(kafka_broker: Kafka, tmp_path: Path, delivery: str) -> None:
    aggregate = f"order-{uuid4().hex[:8]}"
    topic = f"outbox.event.{aggregate}"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    with ExitStack() as stack, PostgresServer(settings={"track_commit_timestamp": "on"}) as server:
        dsn = server.create_database("shop")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(EVENTS)
            shape = connection.execute(SHAPE).fetchall()
            write(dsn, aggregate, 1, 500, keys=11)
            harvest = {
                "name": "a",
                "baseKafkaConfig": {"bootstrap.servers": kafka_broker.bootstrap},
                "producerKafkaConfig": {"delivery.timeout.ms": 60_000},  # nothing is sent twice
                "dataSource": dsn,
                "outboxTable": f"taken_{uuid4().hex[:8]}",
                "dialect": {"driver": "postgres", "intake": {"table": "outboxevent", "layout": "debezium"}},
                "elector": "static",
                "engine": "inline",
                "delivery": delivery,
                "limits": {"sendConcurrency": 2},
            }
            settings = tmp_path / "outbox.yaml"
            settings.write_text(json.dumps({"harvest": harvest}))
            outbox(settings, "init")
            stack.callback((harvester := Harvester("a", settings)).close)
            write(dsn, aggregate, 501, 1000, keys=11)
            left = (
                f"SELECT (SELECT count(*) FROM outboxevent) + (SELECT count(*) FROM {harvest['outboxTable']})"
            )
            until(lambda: connection.execute(left).fetchone() == (0,), "all is harvested", 120)
            harvester.leave()
            assert connection.execute(SHAPE).fetchall() == shape
    arrived = defaultdict(list)
    for message in messages(kafka_broker.bootstrap, topic, ends(admin, topic, PARTITIONS)):
        arrived[(message.key() or b"").decode()].append(json.loads(message.value() or b"{}")["n"])
        headers = message.headers() or []
        assert [header[0] for header in headers] == ["id"]
    assert {key: sorted(numbers) for key, numbers in arrived.items()} == dict(arrived)
    assert sorted(number for numbers in arrived.values() for number in numbers) == list(range(1, 1001))
