"""The figures as Prometheus scrapes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from outbox_core.events.measurements import Distribution
from outbox_core.monitoring.figures import Figure, HasFigures
from outbox_core.monitoring.names import Kind, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector


def label(attribute: str) -> str:
    """Returns the name of an attribute in Prometheus."""
    return attribute.replace(".", "_")


def exported(metric: Metric) -> str:
    """Returns the name of a metric in Prometheus; of a histogram, without the suffix of its parts."""
    unit = "_seconds" if metric.unit == "s" else ""
    total = "_total" if metric.kind is Kind.COUNTER else ""
    return f"{label(metric.name)}{unit}{total}"


class Prometheus(Collector):
    """Writes the figures that are known as Prometheus's text; one thread at a time."""

    def __init__(self, figures: HasFigures, process: str) -> None:
        self._figures = figures
        # As OpenTelemetry has a service and its instance in Prometheus.
        self._target = {"service_name": "outbox", "service_instance_id": process}

    def write(self, accept: str) -> tuple[bytes, str]:
        """Returns the text in a format that the client accepts, and its content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self), content_type

    def collect(self) -> Iterator[Family]:
        """Returns all figures, by metric."""
        yield InfoMetricFamily("target", "The process", self._target)
        families: dict[Metric, Family] = {}
        for figure in self._figures.read():
            metric = figure.metric
            if metric not in families:
                name = exported(metric).removesuffix("_total")
                families[metric] = Family(name, metric.about, metric.kind.value)
            _add(figure, exported(metric), families[metric])
        yield from families.values()


def _add(figure: Figure, name: str, family: Family) -> None:
    labels, value = {label(each): text for each, text in figure.attributes.items()}, figure.value
    if not isinstance(value, Distribution):
        family.add_sample(name, labels, value)
        return
    for bound, count in zip((*map(float, value.bounds), "+Inf"), accumulate(value.counts), strict=True):
        family.add_sample(f"{name}_bucket", {**labels, "le": str(bound)}, count)
    family.add_sample(f"{name}_count", labels, sum(value.counts))
    family.add_sample(f"{name}_sum", labels, value.total)
