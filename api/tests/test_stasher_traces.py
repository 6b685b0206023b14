"""The caller's trace in the headers of what it stashes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry import baggage
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from outbox_api import AsyncStasher, Record, RecordError, Seam, Stasher, find
from outbox_api.application.tracing import MAX_STATE, shortened
from outbox_api.seams.dialect import Insert

TRACER = TracerProvider().get_tracer(__name__)


@pytest.fixture
def shop() -> Iterator[sqlite3.Connection]:
    """An outbox in memory."""
    connection = sqlite3.connect(":memory:")
    columns = "kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    connection.execute(f"CREATE TABLE outbox (id INTEGER PRIMARY KEY, create_time, {columns})")
    connection.execute("BEGIN")
    yield connection
    connection.close()


def headers(shop: sqlite3.Connection) -> list[list[tuple[str, str]]]:
    """Returns the headers of each row."""
    rows = shop.execute("SELECT kafka_header_keys, kafka_header_values FROM outbox ORDER BY id").fetchall()
    return [list(zip(json.loads(names or "[]"), json.loads(values or "[]"), strict=True))
            for names, values in rows]  # fmt: skip


def parent_of(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def remote(state: str = "", flags: int = 1) -> NonRecordingSpan:
    """A span that another process has begun."""
    members = TraceState.from_header([state]) if state else None
    return NonRecordingSpan(SpanContext(0xABC, 0xDEF, True, TraceFlags(flags), members))


def test_a_record_has_the_context_of_the_span_that_it_is_stashed_in(shop: sqlite3.Connection) -> None:
    stasher = Stasher("outbox", "sqlite")
    with TRACER.start_as_current_span("order") as span:
        stasher.stash(shop, Record("t", "k", "v", (("type", "paid"),)))
        with TRACER.start_as_current_span("more") as inner:
            stasher.prepare(shop).stash_many([Record("t", "k"), Record("t", "k", headers=[("a", "1")])])  # type: ignore[arg-type]  # taken, too
    stasher.stash(shop, Record("t", "k"))
    first, second = parent_of(span.get_span_context()), parent_of(inner.get_span_context())
    assert headers(shop) == [
        [("type", "paid"), ("traceparent", first)],
        [("traceparent", second)],
        [("a", "1"), ("traceparent", second)],
        [],
    ]


def test_a_span_that_is_not_sampled_is_passed_on_as_such(shop: sqlite3.Connection) -> None:
    with TracerProvider(sampler=ALWAYS_OFF).get_tracer("x").start_as_current_span("order") as span:
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k"))
    assert headers(shop) == [[("traceparent", parent_of(span.get_span_context()))]]
    assert not int(headers(shop)[0][0][1][-2:], 16) & TraceFlags.SAMPLED
    shop.execute("DELETE FROM outbox")
    with use_span(remote(flags=0)):
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k"))
    assert headers(shop)[0][0][1].endswith("-00")


def test_the_state_goes_with_the_parent_and_baggage_does_not(shop: sqlite3.Connection) -> None:
    token = attach(baggage.set_baggage("customer", "42"))
    with use_span(remote("a=1,b=2")):
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k"))
    detach(token)
    expected = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert headers(shop) == [[("traceparent", expected), ("tracestate", "a=1,b=2")]]


@pytest.mark.parametrize("name", ["traceparent", "TraceParent", "tracestate", "TRACESTATE"])
def test_a_record_that_has_a_trace_keeps_it(shop: sqlite3.Connection, name: str) -> None:
    # A parent of one trace beside the state of another would be wrong, so either name is enough.
    with use_span(remote("a=1")):
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k", headers=((name, "mine"),)))
    assert headers(shop) == [[(name, "mine")]]


@pytest.mark.parametrize(
    "context", [SpanContext(0, 0, False), SpanContext(0, 5, False), SpanContext(5, 0, False)]
)
def test_a_context_that_is_not_valid_adds_nothing(shop: sqlite3.Connection, context: SpanContext) -> None:
    with use_span(NonRecordingSpan(context)):
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k"))
    assert headers(shop) == [[]]


def test_a_state_that_is_too_long_loses_what_the_w3c_gives_up() -> None:
    assert shortened("a=1,b=2") == "a=1,b=2"
    fits = ",".join(f"k{number}={'x' * 45}" for number in range(10))
    assert len(fits) <= MAX_STATE
    assert shortened(fits) == fits
    long = f"long={'y' * 130}"
    assert shortened(f"{long},{fits}") == fits
    many = ",".join(f"key{number:02d}={'x' * 30}" for number in range(32))
    kept = shortened(many)
    assert len(kept) <= MAX_STATE
    assert many.startswith(f"{kept},key")
    assert shortened("z=" + "q" * 600) == ""


def test_a_state_that_is_too_long_is_short_in_the_row_and_readable(shop: sqlite3.Connection) -> None:
    state = ",".join(f"key{number:02d}={'x' * 30}" for number in range(32))
    with use_span(remote(state)):
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k"))
    found = dict(headers(shop)[0])
    assert len(found["tracestate"]) <= MAX_STATE
    context = get_current_span(TraceContextTextMapPropagator().extract(found)).get_span_context()
    assert context.trace_id == 0xABC
    assert context.trace_state.get("key00") == "x" * 30


def test_faulty_headers_are_refused_in_a_span_as_elsewhere(shop: sqlite3.Connection) -> None:
    with use_span(remote()), pytest.raises(RecordError, match="headers are pairs"):
        Stasher("outbox", "sqlite").stash(shop, Record("t", "k", headers=(("only",),)))  # type: ignore[arg-type]
    assert headers(shop) == []


def test_a_trace_that_the_outbox_cannot_hold_costs_no_record(
    shop: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = find(Seam.DIALECT, "sqlite")
    assert driver.insert is not None
    insert = driver.insert("outbox", {})

    def bind(record: Record) -> Any:
        if len(record.headers) > 1:
            raise ValueError("the column for headers is full")
        return insert.bind(record)

    stasher = Stasher("outbox", "sqlite")
    monkeypatch.setattr(stasher._insertion, "_insert", Insert(sql=insert.sql, bind=bind))
    with use_span(remote()):
        stasher.stash(shop, Record("t", "k", headers=(("a", "1"),)))
    assert headers(shop) == [[("a", "1")]]


def test_concurrent_tasks_have_traces_of_their_own(postgres_dsn: str) -> None:
    driver = find(Seam.DIALECT, "postgres")
    driver.create(driver.options(data_source=postgres_dsn)).create()

    async def order(number: int) -> tuple[str, str]:
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
            with TRACER.start_as_current_span(f"order {number}") as span:
                await asyncio.sleep(0.01)
                await AsyncStasher().stash(connection, Record("t", str(number)))
        return str(number), parent_of(span.get_span_context())

    async def orders() -> list[tuple[str, str]]:
        return list(await asyncio.gather(*map(order, range(5))))

    expected = asyncio.run(orders())
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute(
            "SELECT kafka_key, kafka_header_values[1] FROM outbox WHERE kafka_header_keys = '{traceparent}'"
        ).fetchall()
    assert sorted(found) == sorted(expected)


STASH = """
import sqlite3, sys
from outbox_api import Record, Stasher
connection = sqlite3.connect(":memory:")
columns = "kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
connection.execute(f"CREATE TABLE outbox (id INTEGER PRIMARY KEY, create_time, {columns})")
connection.execute("BEGIN")
Stasher("outbox", "sqlite").stash(connection, Record("t", "k"))
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_an_application_without_traces_imports_nothing_of_them() -> None:
    run = subprocess.run([sys.executable, "-c", STASH], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_context_that_is_handed_over_explicitly_is_the_callers_affair(shop: sqlite3.Connection) -> None:
    set_span_in_context(remote())  # makes a context, and does not enter it
    Stasher("outbox", "sqlite").stash(shop, Record("t", "k"))
    assert headers(shop) == [[]]
