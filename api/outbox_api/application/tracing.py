"""The caller's trace, written into the headers of the records that it stashes.

An application that is in a span has imported OpenTelemetry, so ``sys.modules`` tells whether there is one:
nothing is imported for an application that does without.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from outbox_api.base.record import Header, Record

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
_NAMES = frozenset((TRACEPARENT, TRACESTATE))

MAX_STATE = 512
"""The longest ``tracestate`` in characters; W3C Trace Context has everybody pass on so many."""
LONG_MEMBER = 128
"""Members of a longer ``tracestate`` that have more characters than this are left out first."""


def trace_headers() -> tuple[Header, ...]:
    """Returns W3C's ``traceparent`` of the current span, and its ``tracestate`` if there is one.

    A span that is not sampled has them, too, with the flag that says so. Empty outside of a span.
    """
    if "opentelemetry.trace" not in sys.modules:
        return ()
    # The application has imported the package already.
    from opentelemetry.trace import get_current_span  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    if not get_current_span().get_span_context().is_valid:
        return ()
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    parent, state = carrier[TRACEPARENT], shortened(carrier.get(TRACESTATE, ""))
    return ((TRACEPARENT, parent), (TRACESTATE, state)) if state else ((TRACEPARENT, parent),)


def shortened(state: str) -> str:
    """Returns a ``tracestate`` of at most ``MAX_STATE`` characters, without the members that W3C gives up.

    These are long members first, then the last ones, which are the oldest.
    """
    members = state.split(",")
    while len(",".join(members)) > MAX_STATE:
        long = [member for member in members if len(member) > LONG_MEMBER]
        members.remove((long or members)[-1])
    return ",".join(members)


def with_trace(record: Record, trace: tuple[Header, ...]) -> Record:
    """Returns the record with the headers of a trace, unless it has any of these names, in any case."""
    if not trace or any(name.lower() in _NAMES for name, _ in record.headers):
        return record
    return replace(record, headers=(*record.headers, *trace))
