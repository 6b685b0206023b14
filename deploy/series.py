"""The names of the metrics as Prometheus has them, and expressions of its query language."""

from __future__ import annotations

from outbox_core.monitoring.names import Kind, Metric
from outbox_core.tracing import conventions


def label(attribute: str) -> str:
    """Returns the name of an attribute in Prometheus."""
    return attribute.replace(".", "_")


OUTBOX, LANE, STEP, DESTINATION, ERROR = map(
    label,
    (
        conventions.OUTBOX,
        conventions.LANE,
        conventions.STEP,
        conventions.DESTINATION,
        conventions.ERROR_TYPE,
    ),
)
PUBLISHED = f'{ERROR}=""'
"""Selects the messages sent that the broker has acknowledged."""
JOBS = 'job=~"outbox.*"'
"""Selects the jobs that scrape harvesters."""
GROUP = f"job, {OUTBOX}"
"""What tells one outbox from another: harvesters of different databases have different jobs."""


def exported(metric: Metric) -> str:
    """Returns the name of a metric in Prometheus; of a histogram, without the suffix of its parts."""
    unit = "_seconds" if metric.unit == "s" else ""
    total = "_total" if metric.kind is Kind.COUNTER else ""
    return f"{label(metric.name)}{unit}{total}"


def aggregate(how: str, what: str) -> str:
    """Returns an aggregation over all processes, one value for each outbox."""
    return f"{how} by ({GROUP}) ({what})"


def duration(seconds: float) -> str:
    """Returns a duration as Prometheus writes it, to the millisecond."""
    if not seconds:
        return "0s"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size and not seconds % size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms"
