"""Which records share a span, when spans end, and when a process is traced."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from outbox_api import Attempt, Deliveries, DriverError, Failure, Found, MarkedRecord
from outbox_core.tracing.contexts import LINKS, sampled_context, traced_sends
from outbox_core.tracing.provider import wanted_exporters
from outbox_core.tracing.senders import TracedSender, TracedTransactionalSender
from outbox_core.tracing.spans import DeliverySpans


def parent(number: int, flags: str = "01") -> str:
    return f"00-{number:032x}-{number:016x}-{flags}"


def record(id_: int, context: int | str | bytes | None = None, topic: str = "orders") -> MarkedRecord:
    value = parent(context) if isinstance(context, int) else context
    return MarkedRecord(id_, topic, "k", "v", [] if value is None else [("a", "1"), ("traceparent", value)])


@pytest.mark.parametrize(
    "headers",
    [
        (),
        [("traceparent", None)],
        [("traceparent", "")],
        [("traceparent", "garbage")],
        [("traceparent", b"\xff\xfe")],
        [("traceparent", parent(5, "00"))],
        [("traceparent", parent(5, "02"))],
        [("traceparent", parent(5).upper().replace("0", "G"))],
        [("tracestate", "a=1")],
        [("TraceParent", parent(5))],  # consumers look for the name as it is
    ],
)
def test_what_nobody_can_follow_has_no_span(headers):
    assert sampled_context(headers) is None


def test_a_sampled_context_is_found_among_the_headers_as_text_or_bytes():
    assert sampled_context([("x", None), ("traceparent", parent(5))]) == {"traceparent": parent(5)}
    found = sampled_context([("traceparent", parent(5, "03").encode()), ("tracestate", b"a=1")])
    assert found == {"traceparent": parent(5, "03"), "tracestate": "a=1"}


def test_records_of_one_context_share_a_link_and_topics_share_no_span():
    sends = traced_sends([record(1, 7), record(2, 8), record(3), record(4, 7), record(5, 7, "other")])
    assert [(send.topic, list(send.contexts), send.ids) for send in sends] == [
        ("orders", [parent(7), parent(8)], [1, 2, 4]),
        ("other", [parent(7)], [5]),
    ]


def test_ten_thousand_contexts_are_all_linked_in_few_spans():
    sends = traced_sends(record(number, number) for number in range(1, 10_001))
    assert len(sends) == -(-10_000 // LINKS)
    assert {len(send.contexts) for send in sends} == {LINKS, 10_000 % LINKS}
    # A context that comes again belongs to the span that has its link.
    again = traced_sends([*(record(number, number) for number in range(1, 300)), record(999, 1)])
    assert again[0].ids[-1] == 999


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return DeliverySpans(provider.get_tracer("test"), "kafka", {"outbox.lane": 3})


class Client:
    """A sender that does as it is told."""

    location = "here"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def send(self, records):
        pass

    def poll(self, timeout):
        return self.outcomes.pop(0)

    def close(self, timeout=0.0):
        return self.outcomes.pop(0)

    def attempt(self, location=""):
        return Attempt(location)

    def find(self, records, trace):
        return Found([record.id for record in records], reason=trace)

    def publish(self, records, checkpoint):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_a_span_ends_with_the_last_outcome_of_its_records(spans, exporter):
    records = [record(1, 7), record(2, 7), record(3, 8)]
    failed = Failure(records[2], "record 3 is too large", retryable=False)
    sender = TracedSender(Client(Deliveries(records[:1]), Deliveries(records[1:2], [failed])), spans)
    sender.send(records)
    sender.poll(0)
    assert exporter.get_finished_spans() == ()
    sender.poll(0)
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert (span.attributes["error.type"], span.attributes["outbox.failed"]) == ("permanent", 1)
    assert [link.context.trace_id for link in span.links] == [7, 8]


def test_what_is_dropped_has_an_unknown_outcome(spans, exporter):
    records = [record(1, 7), record(2, 8, "other")]
    sender = TracedSender(Client(Deliveries(records[:1])), spans)
    sender.send(records)
    sender.close(0)
    one, other = exporter.get_finished_spans()
    assert one.status.status_code is StatusCode.UNSET
    assert other.attributes["error.type"] == "unknown"


def test_a_transaction_tells_whether_it_was_committed(spans, exporter):
    records = [record(1, 7), record(2)]
    failed = [Failure(records[1], "no", retryable=True)]
    sender = TracedTransactionalSender(Client([], failed, DriverError("lost", retryable=True)), spans)
    assert sender.publish(records, "{}") == []
    assert sender.publish(records, "{}") == failed
    with pytest.raises(DriverError, match="lost"):
        sender.publish(records, "{}")
    errors = [span.attributes.get("error.type") for span in exporter.get_finished_spans()]
    assert errors == [None, "aborted", "unknown"]
    assert sender.attempt("there") == Attempt("there")
    assert sender.find(records, "trace") == Found([1, 2], reason="trace")


def test_contexts_that_are_not_valid_are_no_links(spans, exporter):
    spans.sent([record(1, 0), record(2, "ff" + parent(5)[2:])], 1)
    spans.end("")
    assert exporter.get_finished_spans() == ()


def test_the_state_of_a_trace_is_linked_with_it(spans, exporter):
    headers = (("traceparent", parent(5)), ("tracestate", "a=1"))
    spans.sent([MarkedRecord(1, "orders", "k", "v", headers)], 1)
    spans.end("")
    (link,) = exporter.get_finished_spans()[0].links
    assert link.context.trace_state.get("a") == "1"


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp_proto_http", "console"]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"}, []),
    ],
)
def test_traces_are_off_unless_an_exporter_is_named(variables, names):
    assert wanted_exporters(variables) == names


def traced(prelude: str = "", **variables: str) -> list[str]:
    """Returns what a fresh process prints: its tracer, whether OpenTelemetry is loaded, its warnings."""
    code = f"""
import logging, sys
{prelude}
logging.basicConfig(stream=sys.stdout, format="%(message)s")
import outbox_core.harvest, outbox_core.lanes.running
from outbox_core.tracing.provider import tracer
made = tracer()
tracer()
from outbox_core.tracing.provider import LaneTracing
sender = object()
is_in_front = LaneTracing("outbox", 0, 1, "kafka").sender(sender) is not sender
assert is_in_front == (made is not None), "an untraced lane calls its sender directly"
print(made is not None, "opentelemetry" in sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables
    )
    return run.stdout.splitlines()


def test_a_process_that_is_not_traced_loads_nothing():
    assert traced() == ["False False"]


def test_a_harvester_in_a_traced_program_is_traced_with_it():
    assert traced("import opentelemetry.trace") == ["False True"]
    provider = "import opentelemetry.trace as t, opentelemetry.sdk.trace as s"
    assert traced(f"{provider}; t.set_tracer_provider(s.TracerProvider())") == ["True True"]


def test_what_cannot_be_traced_is_harvested_with_one_warning():
    missing = "sys.modules['opentelemetry.sdk.trace'] = None"
    warning, answer = traced(missing, OTEL_TRACES_EXPORTER="otlp")
    assert "pip install opentelemetry-sdk" in warning
    assert answer.startswith("False")
    warning, answer = traced(OTEL_TRACES_EXPORTER="zipkin")
    assert "'zipkin'" in warning
    assert answer.startswith("False")
    broken = "import opentelemetry.sdk.trace as s; s.TracerProvider = None"
    warning, answer = traced(broken, OTEL_TRACES_EXPORTER="console")
    assert warning.startswith("not traced")
    assert answer.startswith("False")
