"""The spans of one lane's deliveries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from outbox_sdk import Deliveries, Header, MarkedRecord

LINKS = 128
"""The most links of a span: OpenTelemetry's default limit, above which links are lost."""

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?", re.DOTALL)
_SAMPLED = 1


@dataclass(slots=True)
class TracedSend:
    """Records of one topic that are sent together and share a span.

    Attributes:
        topic: Their topic.
        contexts: ``traceparent`` → what it came with, for each different one; at most ``LINKS``.
        ids: The records' ids.
    """

    topic: str
    contexts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)


def traced_sends(records: Iterable[MarkedRecord]) -> list[TracedSend]:
    """Divides records with a sampled context among as few spans as can hold a link to each context.

    Records that were stashed in one span share its link. Records without a context, or with one that is
    not sampled, are in no span: nobody could follow it to anything.
    """
    sends: list[TracedSend] = []
    latest: dict[str, TracedSend] = {}  # by topic
    known: dict[tuple[str, str], TracedSend] = {}  # by topic and context
    for record in records:
        context = sampled_context(record.headers) if record.headers else None
        if context is None:
            continue
        topic, parent = record.topic, context["traceparent"]
        send = known.get((topic, parent))
        if send is None:
            send = latest.get(topic)
            if send is None or len(send.contexts) == LINKS:
                send = latest[topic] = TracedSend(topic)
                sends.append(send)
            send.contexts[parent] = context
            known[topic, parent] = send
        send.ids.append(record.id)
    return sends


def sampled_context(headers: Sequence[Header]) -> Mapping[str, str] | None:
    """Returns ``traceparent``, and ``tracestate`` if there is one; ``None`` without a sampled context.

    The first header of a name counts. What does not look like W3C's is no context.
    """
    parent = _text(headers, "traceparent")
    if parent is None:
        return None
    match = _PARENT.fullmatch(parent)
    if match is None or not int(match[1], 16) & _SAMPLED:
        return None
    state = _text(headers, "tracestate")
    return {"traceparent": parent} if state is None else {"traceparent": parent, "tracestate": state}


def _text(headers: Sequence[Header], wanted: str) -> str | None:
    for name, value in headers:
        if name == wanted:
            return value.decode("ascii", "replace") if isinstance(value, bytes) else value
    return None


SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION_NAME = "messaging.destination.name"
BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"

SEND = "send"
"""Name and type of the operation."""

# Ours, outside of the conventions' namespaces.
OUTBOX = "outbox.name"
LANE = "outbox.lane"
TOKEN = "outbox.fence.token"  # noqa: S105 - the name of an attribute
FAILED_RECORDS = "outbox.failed_records"


KIND = SpanKind.CLIENT
"""The conventions keep ``PRODUCER`` for the span whose context the message carries: the application's."""
UNKNOWN = "unknown"
"""The error type of deliveries of which nothing was heard: the records may be in the topic."""
ABORTED = "aborted"
"""The error type of a batch whose transaction was aborted: none of its records is in the topic."""

_PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(slots=True)
class _Open:
    """A span that has not ended.

    Attributes:
        span: The span.
        left: How many of its records have no outcome.
        failed: How many were not delivered.
        error: Why the last of these was not.
    """

    span: Span
    left: int
    failed: int = 0
    error: str = ""


class DeliverySpans:
    """Begins and ends spans; used by one thread.

    Args:
        tracer: Makes the spans.
        system: The broker's kind, such as ``kafka``.
        attributes: What is the same for all spans of the lane.
    """

    def __init__(self, tracer: Tracer, system: str, attributes: Mapping[str, str | int]) -> None:
        self._tracer = tracer
        self._attributes = {
            SYSTEM: system,
            OPERATION_NAME: SEND,
            OPERATION_TYPE: SEND,
            **attributes,
        }
        self._open: dict[int, _Open] = {}  # by the record's id

    def sent(self, records: Iterable[MarkedRecord], since: int) -> None:
        """Begins the spans of records that were handed to the broker's client.

        Args:
            records: The records; none of them has an open span.
            since: When they were handed over, in nanoseconds since the epoch.
        """
        for send in traced_sends(records):
            links = [link for context in send.contexts.values() if (link := _link(context)) is not None]
            if links:
                begun = _Open(self._begin(send, links, since), len(send.ids))
                self._open.update(dict.fromkeys(send.ids, begun))

    def settled(self, deliveries: Deliveries) -> None:
        """Ends each span whose records have all got an outcome by now."""
        if not self._open:
            return
        for record in deliveries.delivered:
            self._settle(record.id, "")
        for failure in deliveries.failed:
            self._settle(failure.record.id, "retryable" if failure.retryable else "permanent")

    def end(self, error: str) -> None:
        """Ends all open spans, with an error type, or empty for success."""
        for record_id in list(self._open):
            self._settle(record_id, error)

    def _begin(self, send: TracedSend, links: list[Link], since: int) -> Span:
        attributes = {**self._attributes, DESTINATION_NAME: send.topic}
        if len(send.ids) > 1:
            attributes[BATCH_MESSAGE_COUNT] = len(send.ids)
        name = f"{SEND} {send.topic}"
        # A trace of its own, whatever span this process may be in: its records are of many traces.
        return self._tracer.start_span(name, Context(), KIND, attributes, links, since)

    def _settle(self, record_id: int, error: str) -> None:
        begun = self._open.pop(record_id, None)
        if begun is None:
            return
        begun.left -= 1
        if error:
            begun.failed += 1
            begun.error = error
        if begun.left:
            return
        if begun.failed:
            # The reason stays out: it may name the record.
            begun.span.set_status(Status(StatusCode.ERROR))
            begun.span.set_attribute(ERROR_TYPE, begun.error)
            begun.span.set_attribute(FAILED_RECORDS, begun.failed)
        begun.span.end()


def _link(carrier: Mapping[str, str]) -> Link | None:
    context = get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return Link(context) if context.is_valid else None
