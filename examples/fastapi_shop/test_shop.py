"""The shop's tests: what it stashes, a harvester in memory, and all of the way on a real Kafka."""

import json
import os
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
import shipping
from confluent_kafka import Consumer
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outbox_api.application.testing import Stashed, place
from outbox_core.config import configure
from outbox_core.harvest import Harvest
from outbox_core.testing import OutboxRunning
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine

import api


@pytest.fixture
def client() -> Iterator[TestClient]:
    engine = create_engine(os.environ["DATABASE_URL"])
    api.Base.metadata.drop_all(engine)  # each test begins with an empty outbox
    engine.dispose()
    with TestClient(api.app) as client:
        yield client


@pytest.fixture
def outbox_database(client: TestClient) -> AsyncEngine:
    return api.engine


def test_an_order_is_announced(client: TestClient, stashed: Stashed) -> None:
    answer = client.post("/orders", json={"customer": "ada", "goods": "tea"})
    assert answer.status_code == 201
    announced = json.loads(str(stashed.one(topic="orders", key="ada").value))
    assert announced == {"order": answer.json()["order"], "customer": "ada", "goods": "tea"}


def test_an_order_that_cannot_be_taken_is_not(client: TestClient, stashed: Stashed) -> None:
    assert client.post("/orders", json={"customer": "ada", "goods": "unicorn"}).status_code == 409
    assert len(stashed) == 0


def test_orders_of_a_customer_keep_their_order(client: TestClient, outbox_running: OutboxRunning) -> None:
    numbers = [
        client.post("/orders", json={"customer": "bob", "goods": "tea"}).json()["order"] for _ in range(9)
    ]
    received = [json.loads(str(outbox_running.wait_for("orders", "bob").value))["order"] for _ in numbers]
    assert received == numbers


def test_one_trace_goes_from_the_request_to_the_consumer_and_a_parcel_is_sent_once(
    client: TestClient,
) -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    customer = uuid4().hex
    harvest = Harvest(
        configure(
            {
                "harvest": {
                    "dataSource": place(api.engine)[1],
                    "baseKafkaConfig": {"bootstrap.servers": os.environ["KAFKA"]},
                    "elector": "static",
                    "engine": "inline",
                }
            }
        ).harvest
    )
    consumer = Consumer(
        {"bootstrap.servers": os.environ["KAFKA"], "group.id": customer, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    harvest.start()
    try:
        with trace.get_tracer("browser").start_as_current_span("order"):
            headers: dict[str, str] = {}
            inject(headers)
            client.post("/orders", json={"customer": customer, "goods": "tea"}, headers=headers)
        message, end = None, time.monotonic() + 60
        while message is None or (message.key() or b"").decode() != customer:
            assert time.monotonic() < end, "the message has not arrived"
            message = consumer.poll(0.1)
        with psycopg.connect(place(api.engine)[1], autocommit=True) as connection:
            shipping.create_tables(connection)
            for _ in range(2):  # as after a crash before the consumer's commit
                shipping.handle(connection, message)
            query = "SELECT count(*) FROM parcels WHERE customer = %s"
            assert connection.execute(query, (customer,)).fetchone() == (1,)
    finally:
        harvest.stop()
        consumer.close()
    of_trace = {span.name: span.context.trace_id for span in spans.get_finished_spans() if span.context}
    assert of_trace["order"] == of_trace["POST /orders"] == of_trace["process orders"]
