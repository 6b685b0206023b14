"""The figures as Prometheus scrapes them."""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from outbox_core.monitoring.figures import HasFigures
from outbox_core.monitoring.provider import LIMITS, WithHistograms, open_provider
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


class _Reader(WithHistograms, PrometheusMetricReader):
    """Reads when it is scraped."""


class Prometheus:
    """Writes the figures that are known as Prometheus's text; one thread at a time."""

    def __init__(self, figures: HasFigures, process: str) -> None:
        self._registry = CollectorRegistry()
        reader = _Reader(scope_info_enabled=False, registry=self._registry, cardinality_limits=LIMITS)
        self._provider = open_provider(figures, reader, process, patience=0.0)

    def write(self, accept: str) -> tuple[bytes, str]:
        """Returns the text in a format that the client accepts, and its content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type
