"""The page about inboxes does what it says; effects are exactly once whoever is killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from outbox_api.base.record import ID_HEADER
from outbox_servers.services.external import Kafka, Postgres

from .harvesters import Fleet, Measure, until
from .inbox_fire import Fire
from .shop import Shop

PAGE = (Path(__file__).parents[1] / "docs" / "inbox.md").read_text("utf-8")


@pytest.fixture
def effects_dsn(postgres_server: Postgres) -> Iterator[str]:
    """The consumers' own database."""
    name = f"test_{uuid4().hex}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


def test_the_code_of_the_page_takes_a_record_once(effects_dsn: str, kafka_broker: Kafka, topic: str) -> None:
    names: dict[str, Any] = {}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    exec(code.replace("localhost:9092", kafka_broker.bootstrap).replace('"payments"', repr(topic)), names)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for number in (1, 2, 1, 1, 3):
        producer.produce(topic, str(number), "ada", headers=[(ID_HEADER, f"shop:{number}")])
    assert producer.flush(60) == 0
    consumer = names["consumer"]
    with psycopg.connect(effects_dsn) as connection:
        for statement in names["inbox"].ddl():
            connection.execute(statement)
        connection.execute("CREATE TABLE accounts AS SELECT 'ada' AS customer, 0 AS paid")
        connection.commit()

        def noted() -> tuple[Any, ...] | None:
            names["take"](consumer, connection)
            return connection.execute("SELECT count(*) FROM outbox_inbox").fetchone()

        until(lambda: noted() == (3,), "the records are taken", 120)
        assert connection.execute("SELECT paid FROM accounts").fetchone() == (6,)
        connection.execute("UPDATE outbox_inbox SET noted_at = noted_at - INTERVAL '15 days'")
        names["tidy"](connection)
        assert connection.execute("SELECT count(*) FROM outbox_inbox").fetchone() == (0,)
    consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_effects_are_exactly_once_and_in_order_whoever_is_killed(
    shop: Shop, fleet: Fleet, effects_dsn: str, tmp_path: Path, measure: Measure
) -> None:
    fire = Fire(shop, fleet, effects_dsn, tmp_path)
    outcome = fire.run(20_000, kills=5, seed=1)
    fire.close()
    measure("repeats by the harvester", outcome.sent - outcome.records)
    measure("repeats that the inbox absorbed", outcome.absorbed)
    assert outcome.exactly_once, outcome
    assert outcome.absorbed > 0, "nothing was repeated"
