"""Gives the figures to OpenTelemetry, for readers that are scraped and for those that push.

Counters and gauges are observable instruments of the API. Its histograms take values one by one, which would
cost a lane more than its work, and lanes of other processes tell only sums. So distributions join what the
SDK has collected, where a reader receives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from threading import Lock
from time import monotonic, time_ns
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter, ObservableGauge
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    CardinalityLimits,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
)
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource

from outbox_core.events.measurements import Distribution
from outbox_core.monitoring import names
from outbox_core.monitoring.figures import Figure, HasFigures
from outbox_core.monitoring.names import METRICS, Kind
from outbox_core.tracing import conventions

SCOPE = "outbox"
LIMITS: CardinalityLimits = {ObservableCounter: 1_000_000, ObservableGauge: 1_000_000}
"""Where there are many outboxes there are many values, and the SDK would drop those beyond 2000."""

_FRESH_SECONDS = 0.2
"""For how long figures serve all instruments of one collection."""
_STARTED = time_ns()


class Collection:
    """The figures of one collection, for all instruments."""

    def __init__(self, figures: HasFigures, patience: float) -> None:
        self._figures = figures
        self._patience = patience
        self._lock = Lock()
        self._read: dict[names.Metric, list[Figure]] = {}
        self._read_at = float("-inf")

    def present(self) -> dict[names.Metric, list[Figure]]:
        """Returns metric → its figures; they are sorted once for all instruments."""
        with self._lock:
            if monotonic() - self._read_at > _FRESH_SECONDS:
                if self._patience:
                    self._figures.wait(self._patience)
                self._read = {}
                for figure in self._figures.read():
                    self._read.setdefault(figure.metric, []).append(figure)
                self._read_at = monotonic()
            return self._read

    def observations(self, metric: names.Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Returns the callback of an instrument."""

        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for figure in self.present().get(metric, ()):
                if not isinstance(figure.value, Distribution):
                    yield Observation(figure.value, figure.attributes)

        return observe

    def histograms(self) -> list[Metric]:
        """Returns all distributions as the SDK has them; ends a collection, for which they come last."""
        now = time_ns()
        made = []
        for metric, figures in self.present().items():
            points = [
                _point(each, each.value, now) for each in figures if isinstance(each.value, Distribution)
            ]
            if points:
                data = Histogram(points, AggregationTemporality.CUMULATIVE)
                made.append(Metric(metric.name, metric.about, metric.unit, data))
        self._read_at = float("-inf")
        return made


class WithHistograms(MetricReader):
    """A reader to whose metrics the distributions are added; the first base of a class of readers."""

    collection: Collection | None = None

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any
    ) -> None:
        if self.collection is not None:
            metrics_data = _with(metrics_data, self.collection.histograms())
        super()._receive_metrics(metrics_data, timeout_millis, **options)  # type: ignore[safe-super]  # of the second base


def open_provider(
    figures: HasFigures, reader: WithHistograms, process: str, patience: float
) -> MeterProvider:
    """Connects a reader to the figures."""
    collection = Collection(figures, patience)
    resource = Resource({SERVICE_NAME: "outbox", SERVICE_INSTANCE_ID: process})
    provider = MeterProvider(
        [reader], resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
    )
    meter = provider.get_meter(SCOPE, version("outbox-harvester"), conventions.SCHEMA_URL)
    for metric in METRICS:
        _create(meter, metric, collection)
    reader.collection = collection
    return provider


def _create(meter: Meter, metric: names.Metric, collection: Collection) -> None:
    callbacks = [collection.observations(metric)]
    if metric.kind is Kind.COUNTER:
        meter.create_observable_counter(metric.name, callbacks, metric.unit, metric.about)
    elif metric.kind is Kind.GAUGE:
        meter.create_observable_gauge(metric.name, callbacks, metric.unit, metric.about)


def _point(figure: Figure, values: Distribution, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=dict(figure.attributes),
        start_time_unix_nano=_STARTED,
        time_unix_nano=now,
        count=sum(values.counts),
        sum=values.total,
        bucket_counts=values.counts,
        explicit_bounds=values.bounds,
        min=None,  # type: ignore[arg-type]  # optional in the protocol, and not known
        max=None,  # type: ignore[arg-type]  # likewise
    )


def _with(data: MetricsData, histograms: list[Metric]) -> MetricsData:
    """Adds histograms to what our own meter has."""
    resources = [
        replace(
            resource,
            scope_metrics=[
                replace(scope, metrics=[*scope.metrics, *histograms]) if scope.scope.name == SCOPE else scope
                for scope in resource.scope_metrics
            ],
        )
        for resource in data.resource_metrics
    ]
    return MetricsData(resources)
