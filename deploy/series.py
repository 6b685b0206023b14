"""The names of the metrics as Prometheus has them, and expressions of its query language."""

from __future__ import annotations

from outbox_console.prometheus import label
from outbox_core.tracing import conventions

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
