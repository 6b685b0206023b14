"""Which records get a span, and which records share one; without I/O and without OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from outbox_api import Header, MarkedRecord

LINKS = 128
"""The most links of a span: OpenTelemetry's default limit, above which links are lost."""

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?", re.DOTALL)
_SAMPLED = 1


@dataclass(slots=True)
class TracedSend:
    """Records of one topic that are sent together and share a span."""

    topic: str  # their topic
    contexts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """``traceparent`` → what it came with, for each different one; at most ``LINKS``."""
    ids: list[int] = field(default_factory=list)  # the records' ids


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
