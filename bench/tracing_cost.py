"""Measures what a lane's spans cost for each record, in CPU time: no broker, an exporter that discards."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from outbox_api import Deliveries, Header, MarkedRecord, Sender
from outbox_core.tracing.senders import TracedSender
from outbox_core.tracing.spans import DeliverySpans

RECORDS, WAVE, ROUNDS = 10_000, 500, 15


class Discarding(SpanExporter):
    """Exports nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - the contract
        """Discards spans."""
        return SpanExportResult.SUCCESS


class Prompt:
    """A sender whose broker acknowledges everything at once."""

    def __init__(self) -> None:
        self._sent: list[MarkedRecord] = []

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Keeps the records."""
        self._sent = list(records)

    def poll(self, timeout: float) -> Deliveries:  # noqa: ARG002 - the contract
        """Acknowledges them."""
        return Deliveries(self._sent)

    def close(self, timeout: float) -> Deliveries:  # noqa: ARG002 - the contract
        """Does nothing."""
        return Deliveries()


def context(number: int, *, sampled: bool = True) -> Header:
    """Returns a header with a context."""
    return "traceparent", f"00-{number:032x}-{number:016x}-{int(sampled):02x}"


KINDS: dict[str, Callable[[int], list[Header]]] = {
    "without headers": lambda _: [],
    "with two other headers": lambda _: [("a", "1"), ("b", "2")],
    "with a context that is not sampled": lambda n: [("type", "x"), context(n, sampled=False)],
    "sampled, 500 of one context": lambda n: [context(1 + n // 500)],
    "1 % sampled, each in a trace of its own": lambda n: [context(n, sampled=n % 100 == 0)],
    "all sampled, each in a trace of its own": lambda n: [context(n)],
}


def microseconds(sender: Sender, records: Sequence[MarkedRecord]) -> float:
    """Returns the CPU time of a record."""
    started = time.process_time()
    for start in range(0, len(records), WAVE):
        sender.send(records[start : start + WAVE])
        sender.poll(0)
    return (time.process_time() - started) / len(records) * 1e6


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Discarding()))
    tracer = provider.get_tracer("bench")
    for kind, headers in KINDS.items():
        records = [MarkedRecord(n, "topic", "key", "value", headers(n)) for n in range(1, RECORDS + 1)]
        off, on = [], []
        for _ in range(ROUNDS):
            off.append(microseconds(Prompt(), records))
            on.append(microseconds(TracedSender(Prompt(), DeliverySpans(tracer, "kafka", {})), records))
        print(f"{kind:42s} off {statistics.median(off):6.2f}   on {statistics.median(on):6.2f} us")


if __name__ == "__main__":
    main()
