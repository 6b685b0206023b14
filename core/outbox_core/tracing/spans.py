"""The spans of one lane's deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from outbox_api import Deliveries, MarkedRecord

from outbox_core.tracing import conventions
from outbox_core.tracing.contexts import TracedSend, traced_sends

KIND = SpanKind.CLIENT
"""The conventions keep ``PRODUCER`` for the span whose context the message carries: the application's."""
UNKNOWN = "unknown"
"""The error type of deliveries of which nothing was heard: the records may be in the topic."""
ABORTED = "aborted"
"""The error type of a batch whose transaction was aborted: none of its records is in the topic."""

_PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(slots=True)
class _Open:
    span: Span  # the span
    left: int  # how many of its records have no outcome
    failed: int = 0  # how many were not delivered
    error: str = ""  # why the last of these was not


class DeliverySpans:
    """Begins and ends spans; used by one thread."""

    def __init__(self, tracer: Tracer, system: str, attributes: Mapping[str, str | int]) -> None:
        self._tracer = tracer
        self._attributes = {
            conventions.SYSTEM: system,
            conventions.OPERATION_NAME: conventions.SEND,
            conventions.OPERATION_TYPE: conventions.SEND,
            **attributes,
        }
        self._open: dict[int, _Open] = {}  # by the record's id

    def sent(self, records: Iterable[MarkedRecord], since: int) -> None:
        """Begins the spans of records that were handed to the broker's client."""
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
        attributes = {**self._attributes, conventions.DESTINATION: send.topic}
        if len(send.ids) > 1:
            attributes[conventions.BATCH_MESSAGE_COUNT] = len(send.ids)
        name = f"{conventions.SEND} {send.topic}"
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
            begun.span.set_attribute(conventions.ERROR_TYPE, begun.error)
            begun.span.set_attribute(conventions.FAILED, begun.failed)
        begun.span.end()


def _link(carrier: Mapping[str, str]) -> Link | None:
    context = get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return Link(context) if context.is_valid else None
