"""Pushes the figures by OTLP, as OpenTelemetry's own variables of the environment say."""

from __future__ import annotations

from threading import Thread

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from outbox_core.monitoring.figures import HasFigures
from outbox_core.monitoring.provider import LIMITS, WithHistograms, open_provider

PATIENCE = 2.0
"""Seconds for which a push waits for databases."""


class _Reader(WithHistograms, PeriodicExportingMetricReader):
    """Pushes every ``OTEL_METRIC_EXPORT_INTERVAL`` milliseconds."""


class Push:
    """Pushes until it is closed."""

    def __init__(self, figures: HasFigures, process: str) -> None:
        reader = _Reader(OTLPMetricExporter(), cardinality_limits=LIMITS)
        self._provider = open_provider(figures, reader, process, PATIENCE)

    def close(self, seconds: float) -> None:
        """Pushes for the last time, and waits for that so long at most."""
        last = Thread(target=self._provider.shutdown, name="last-push", daemon=True)
        last.start()
        last.join(seconds)
