"""The queries of the dashboard's panels."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_console.prometheus import exported
from outbox_core.monitoring.names import SENT_MESSAGES, Metric

from deploy.series import GROUP, LANE, OUTBOX, PUBLISHED

JOB = "job"
CHOICE = "outbox"
"""The dashboard's variable of that name."""
CHOSEN = f'{JOB}=~"${JOB}", {OUTBOX}=~"${CHOICE}"'
"""Selects the outboxes that the dashboard's variables name."""
EACH = f"{{{{{OUTBOX}}}}}"
"""What the series of an outbox is called."""
EACH_LANE = f"{EACH} / {{{{{LANE}}}}}"
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and what its series are called.

    Attributes:
        expression: The query.
        legend: The name of each series; labels in double braces.
    """

    expression: str
    legend: str


def chosen(metric: Metric, part: str = "", more: str = "") -> str:
    """Returns the series of a metric, or of a part of a histogram, that the variables select."""
    return f"{exported(metric)}{part}{{{CHOSEN}{', ' if more else ''}{more}}}"


def most(metric: Metric) -> Query:
    """Returns the greatest value of an outbox over all processes."""
    return Query(f"max by ({GROUP}) ({chosen(metric)})", EACH)


def total(metric: Metric, by: str = GROUP, legend: str = EACH) -> Query:
    """Returns the sum of an outbox over all processes."""
    return Query(f"sum by ({by}) ({chosen(metric)})", legend)


def rate(metric: Metric, by: str = GROUP, legend: str = EACH, *, part: str = "", more: str = "") -> Query:
    """Returns what is counted per second over all processes."""
    return Query(f"sum by ({by}) (rate({chosen(metric, part, more)}[$__rate_interval]))", legend)


def published(by: str = GROUP, legend: str = EACH) -> Query:
    """Returns the records per second that the broker acknowledges."""
    return rate(SENT_MESSAGES, by, legend, more=PUBLISHED)


def quantile(
    metric: Metric, quantile: float, by: str = GROUP, legend: str = EACH, *, within: str = "$__rate_interval"
) -> Query:
    """Returns a quantile of a histogram over all processes, of what was observed ``within`` a duration."""
    buckets = f"sum by (le, {by}) (rate({chosen(metric, '_bucket')}[{within}]))"
    return Query(f"histogram_quantile({quantile}, {buckets})", f"{legend} p{quantile * 100:g}")


def quantiles(metric: Metric) -> list[Query]:
    """Returns the usual quantiles of a histogram."""
    return [quantile(metric, each) for each in QUANTILES]


def present(metric: Metric) -> Query:
    """Returns the sum of an outbox over all processes; 0 if all of them have ended within the last hour."""
    known = f"group by ({GROUP}) (last_over_time({chosen(metric)}[1h]))"
    return Query(f"{total(metric).expression} or 0 * {known}", EACH)
