"""A trace from an application's span through the row to the consumer, on real servers."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy
from confluent_kafka import Message
from django.conf import settings as django_settings
from django.db import connections, transaction
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from outbox_api import Record, Stasher
from outbox_core.config import configure
from outbox_core.delivery import exactly_once
from outbox_core.harvest import Harvest
from outbox_core.tracing.contexts import LINKS
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

from .harvesters import Fleet, until
from .shop import PARTITIONS, OpenShop, Shop
from .topics import ends, messages

BATCH = 10_000
MODES = ["at-least-once", "exactly-once"]
PROPAGATOR = TraceContextTextMapPropagator()


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """Collects the spans of this process, whose provider can be set once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()  # it stays the provider of this process, and collects nothing any more


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has batches grow also where transactions are slow, so that there are as many on every machine."""
    monkeypatch.setattr(exactly_once, "LONG_SECONDS", float("inf"))


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


def application() -> trace.Tracer:
    return trace.get_tracer("application")


@contextmanager
def harvesting(shop: Shop, delivery: str) -> Iterator[None]:
    """Harvests in this process with one lane, whose batches are as large as they can be."""
    harvest = Harvest(
        configure(
            {
                "harvest": {
                    "name": "traced",
                    "delivery": delivery,
                    "engine": "inline",
                    "elector": "static",
                    "dataSource": shop.dsn,
                    "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
                    "limits": {"maxBatchRecords": BATCH},
                }
            }
        ).harvest
    )
    harvest.start()
    try:
        yield
    finally:
        harvest.stop()


def consumed(shop: Shop) -> list[Message]:
    return messages(shop.kafka.bootstrap, shop.topic, ends(shop.admin, shop.topic, PARTITIONS))


def context_of(message: Message) -> SpanContext:
    """What a consumer that is instrumented finds in a message."""
    carrier = {name: bytes(value or b"").decode() for name, value in dict(message.headers() or []).items()}  # type: ignore[arg-type]  # values are bytes
    return trace.get_current_span(PROPAGATOR.extract(carrier)).get_span_context()


def same(one: SpanContext, other: SpanContext) -> bool:
    return (one.trace_id, one.span_id) == (other.trace_id, other.span_id)


def sent(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name.startswith("send ")]


def records_of(span: ReadableSpan) -> int:
    """Returns how many records a span is of; the conventions leave a single one out."""
    return int((span.attributes or {}).get("messaging.batch.message_count", 1))  # type: ignore[arg-type]  # an int


def over_psycopg(shop: Shop, record: Record) -> None:
    with psycopg.connect(shop.dsn) as connection:
        Stasher().stash(connection, record)


def over_sqlalchemy(shop: Shop, record: Record) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(shop.dsn))
    with Session(engine) as session, session.begin():
        Stasher().stash(session, record)
    engine.dispose()


def over_django(shop: Shop, record: Record) -> None:
    if not django_settings.configured:
        django_settings.configure(LOGGING_CONFIG=None)
        django.setup()
    named = conninfo_to_dict(shop.dsn)
    keys = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    database: dict[str, Any] = {name: named[key] for name, key in keys.items() if key in named}
    database["ENGINE"] = "django.db.backends.postgresql"
    connections.settings["traced"] = connections.configure_settings({"default": {}, "traced": database})[
        "traced"
    ]
    with transaction.atomic(using="traced"), connections["traced"].cursor() as cursor:
        Stasher().stash(cursor, record)
    connections["traced"].close()
    del connections["traced"], connections.settings["traced"]


WRITERS: dict[str, Callable[[Shop, Record], None]] = {
    "psycopg": over_psycopg,
    "sqlalchemy": over_sqlalchemy,
    "django": over_django,
}


@pytest.mark.parametrize("delivery", MODES)
def test_a_trace_goes_from_the_application_through_the_row_to_the_consumer(
    shop: Shop, spans: InMemorySpanExporter, delivery: str
) -> None:
    begun: dict[str, SpanContext] = {}
    for name, write in WRITERS.items():
        with application().start_as_current_span(f"order over {name}") as span:
            write(shop, Record(shop.topic, name, "secret value", (("type", "paid"),)))
        begun[name] = span.get_span_context()
    WRITERS["psycopg"](shop, Record(shop.topic, "outside", "secret value"))
    with harvesting(shop, delivery):
        shop.wait_until_harvested(60)

    links = [link.context for each in sent(spans) for link in each.links]
    assert sorted(link.span_id for link in links) == sorted(context.span_id for context in begun.values())
    for each in sent(spans):
        assert (each.name, each.kind, each.parent) == (f"send {shop.topic}", SpanKind.CLIENT, None)
        assert each.status.status_code is StatusCode.UNSET
        assert each.start_time is not None
        assert each.end_time is not None
        assert each.start_time < each.end_time
        attributes = dict(each.attributes or {})
        count = attributes.pop("messaging.batch.message_count", 1)
        assert count == len(each.links)
        assert attributes.pop("outbox.fence.token")
        assert attributes == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": shop.topic,
            "outbox.name": "outbox",
            "outbox.lane": 0,
        }
    received = consumed(shop)
    assert len(received) == len(begun) + 1
    for message in received:
        key = (message.key() or b"").decode()
        names = list(dict(message.headers() or []))
        if key == "outside":
            assert names == []
            continue
        assert names == ["type", "traceparent"]
        remote = trace.set_span_in_context(trace.NonRecordingSpan(context_of(message)))
        with application().start_as_current_span("process", remote, SpanKind.CONSUMER) as processing:
            pass
        assert processing.get_span_context().trace_id == begun[key].trace_id
        assert same(processing.parent, begun[key])  # type: ignore[attr-defined]  # the SDK's span has it


@pytest.mark.usefixtures("growing")
@pytest.mark.parametrize(("delivery", "records"), [("at-least-once", 1000), ("exactly-once", BATCH)])
def test_each_trace_of_a_large_batch_is_linked_once(
    shop: Shop, spans: InMemorySpanExporter, delivery: str, records: int
) -> None:
    begun: dict[str, SpanContext] = {}
    with psycopg.connect(shop.dsn) as connection, connection.pipeline():
        prepared = Stasher().prepare(connection)
        for number in range(records):
            with application().start_as_current_span("order") as span:
                prepared.stash(Record(shop.topic, f"key-{number}", "v"))
            begun[f"key-{number}"] = span.get_span_context()
    with harvesting(shop, delivery):
        shop.wait_until_harvested(120)

    found = Counter(link.context.span_id for each in sent(spans) for link in each.links)
    assert found == Counter(context.span_id for context in begun.values())
    assert max(len(each.links) for each in sent(spans)) == LINKS
    assert sum(records_of(each) for each in sent(spans)) == records
    if delivery == "exactly-once":  # but for the last span of each batch, all are full
        assert len(sent(spans)) <= -(-records // LINKS) + 10
    received = consumed(shop)
    assert len(received) == records
    assert all(same(context_of(message), begun[(message.key() or b"").decode()]) for message in received)


@pytest.mark.usefixtures("growing")
def test_a_large_batch_of_one_span_is_one_link(shop: Shop, spans: InMemorySpanExporter) -> None:
    with (
        psycopg.connect(shop.dsn) as connection,
        application().start_as_current_span("import") as span,
    ):
        Stasher().stash_many(connection, [Record(shop.topic, str(number), "v") for number in range(BATCH)])
    with harvesting(shop, "exactly-once"):
        shop.wait_until_harvested(60)
    assert sum(records_of(each) for each in sent(spans)) == BATCH
    assert len(sent(spans)) < 10  # one for each batch
    for each in sent(spans):
        (link,) = each.links
        assert same(link.context, span.get_span_context())


def test_a_record_that_is_refused_ends_its_span_with_an_error(
    open_shop: OpenShop, kafka_broker: Any, spans: InMemorySpanExporter
) -> None:
    shop = open_shop(kafka_broker, largest_message=1000)
    with application().start_as_current_span("order"):
        over_psycopg(shop, Record(shop.topic, "a key", os.urandom(3000).hex()))
    with harvesting(shop, "at-least-once"), shop.connect() as connection:
        letters = "SELECT 1 FROM outbox_dead_letters"
        until(lambda: connection.execute(letters).fetchone(), "the key is parked", 60, pause=0.1)
    failed = sent(spans)
    assert failed
    for span in failed:
        assert span.status.status_code is StatusCode.ERROR
        attributes = dict(span.attributes or {})
        assert (attributes["error.type"], attributes["outbox.failed"]) == ("permanent", 1)
        assert "a key" not in f"{attributes} {span.status.description}"


def test_the_environment_switches_traces_on(shop: Shop, fleet: Fleet, spans: InMemorySpanExporter) -> None:
    with application().start_as_current_span("order") as span:
        over_psycopg(shop, Record(shop.topic, "k", "v"))
    traced = {"OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "harvester"}
    harvester = fleet.start("traced", environment=traced)
    shop.wait_until_harvested(60)
    harvester.send(signal.SIGTERM)
    assert harvester.wait(120) == 0  # and the last spans were exported before
    told = harvester.log.read_text()
    told = told[told.index("{\n") : told.rindex("}\n") + 1]
    exported = json.loads(told)
    assert exported["name"] == f"send {shop.topic}"
    assert exported["resource"]["attributes"]["service.name"] == "harvester"
    (link,) = exported["links"]
    assert int(link["context"]["span_id"], 16) == span.get_span_context().span_id
