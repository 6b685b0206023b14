"""Compares the clocks of an outbox's replicas: the age of a row counts from the clock that wrote it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from outbox_api.base.errors import OutboxError
from outbox_api.base.finding import Finding, Level
from outbox_api.portable.view import PortableView
from outbox_api.seams.affinity import Origin

from outbox_core.delivery.sources import ages
from outbox_core.settings import HarvestSettings
from outbox_core.text.duration import format_duration

ROUNDS = 5
"""How often both clocks are read; the round that took the shortest counts."""
HARMLESS_SHARE = 20
"""A skew of less than the least age of a takeover, divided by this, is not worth a warning."""
HARMLESS_SECONDS = 1.0
"""The same where no takeover waits for an age."""


class Skew(NamedTuple):
    """How far another clock is ahead of the own one, in seconds, and how far that may be wrong."""

    ahead: float
    error: float


def clock_checks(settings: HarvestSettings) -> dict[str, Callable[[], Sequence[Finding]]]:
    """Returns a check for the clock of each replica that the affinity names; none without clusters."""
    affinity = settings.affinity.create()
    origin = affinity.origin()
    if origin is None:
        return {}
    if not origin.replicas:
        return {"clocks": _not_compared}
    least = min((age for age in ages(affinity.eligible()) if age > 0), default=None)
    limit = HARMLESS_SECONDS if least is None else least / HARMLESS_SHARE
    return {
        f"clock of cluster {cluster}": partial(_check, settings, origin, cluster, limit)
        for cluster in origin.replicas
    }


def measure(own: PortableView, other: PortableView) -> Skew:
    """Compares the clocks of two databases."""
    found = []
    for _ in range(ROUNDS):
        before, there, after = own.now(), other.now(), own.now()
        half = (after - before) / 2
        found.append(Skew(_seconds(there - before - half), _seconds(half)))
    return min(found, key=lambda skew: skew.error)


def _check(settings: HarvestSettings, origin: Origin, cluster: int, limit: float) -> Sequence[Finding]:
    options = settings.dialect.options
    try:
        with closing(settings.dialect.create().watch()) as own:
            try:
                replica = replace(options, data_source=origin.replicas[cluster])
                there = replace(settings.dialect, options=replica)
                with closing(there.create().watch()) as other:
                    skew = measure(own, other)
            except OutboxError as error:
                return [_unreachable(cluster, error)]
    except OutboxError:  # the dialect's check reports it
        return []
    return [_finding(cluster, skew, limit, origin.arrival)]


def _not_compared() -> Sequence[Finding]:
    said = "not compared with those of other clusters: the affinity's option 'replicas' names none"
    return [Finding(Level.OK, "clock", said)]


def _unreachable(cluster: int, error: OutboxError) -> Finding:
    return Finding(
        Level.WARNING,
        "clock",
        f"not compared, as the database of cluster {cluster} cannot be asked: {error}",
        "correct its data source in the affinity's option 'replicas', or leave it out",
    )


def _finding(cluster: int, skew: Skew, limit: float, arrival: str) -> Finding:
    size, error = format_duration(round(abs(skew.ahead), 3)), format_duration(round(skew.error, 3) or 0.001)
    if abs(skew.ahead) <= skew.error:
        said = f"the clock of cluster {cluster}'s database agrees with this one's, to {error}"
    else:
        way = "ahead of" if skew.ahead > 0 else "behind"
        said = f"the clock of cluster {cluster}'s database is {size} {way} this one's, give or take {error}"
    if arrival:
        return Finding(
            Level.OK, "clock", f"{said}; ages count from '{arrival}', by this database's own clock"
        )
    if abs(skew.ahead) - skew.error < limit:
        return Finding(Level.OK, "clock", said)
    when = "late" if skew.ahead > 0 else "early, maybe while that cluster works"
    return Finding(
        Level.WARNING,
        "clock",
        f"{said}: its records would be taken over by so much too {when}",
        "synchronize the clocks of both machines (NTP), or use an arrival column",
    )


def _seconds(time: timedelta) -> float:
    return time.total_seconds()
