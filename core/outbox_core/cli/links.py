"""Advice by how far away database and broker are, from what ``bench/tuning`` measured (docs/tuning.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from outbox_api.base.finding import Finding, Level

from outbox_core.config.decode import camel
from outbox_core.settings import Delivery, HarvestSettings


class Advice(NamedTuple):
    """Settings that pay over a slow link.

    Attributes:
        delivery: With which delivery.
        least: Seconds of a round trip, to the database or the broker, from which on they pay.
        settings: The field of the limits → the highest value with which they pay, and the value that pays.
        gain: By what factor they raised the rate at which a backlog is drained.
    """

    delivery: Delivery
    least: float
    settings: Mapping[str, tuple[int, int]]
    gain: float


ADVICE = (
    Advice(
        Delivery.AT_LEAST_ONCE,
        0.08,
        {"send_concurrency": (1, 4), "max_in_flight_records": (8000, 32_000)},
        2.1,
    ),
    Advice(Delivery.AT_LEAST_ONCE, 0.015, {"max_in_flight_records": (2000, 8000)}, 1.8),
)
"""The first that applies counts."""


def link_findings(settings: HarvestSettings, found: Sequence[Finding]) -> Iterator[Finding]:
    """Says how far away the servers are that findings say were reached, and which settings that makes pay."""
    trips = [(each.subject, each.round_trip) for each in found if each.round_trip is not None]
    if not trips:
        return
    seen = "a round trip takes " + ", ".join(f"{1000 * trip:.3g} ms ({what})" for what, trip in trips)
    longest = max(trip for _, trip in trips)
    for advice in ADVICE:
        if advice.delivery is settings.delivery and longest >= advice.least and _pays(advice, settings):
            new = " and ".join(f"{camel(name)}: {value}" for name, (_, value) in advice.settings.items())
            gain = f"over such links a backlog was then drained {advice.gain:g} times as fast"
            cure = f"set in harvest.limits {new}: {gain}"
            yield Finding(Level.WARNING, "round trips", seen, cure)
            return
    yield Finding(Level.OK, "round trips", seen)


def _pays(advice: Advice, settings: HarvestSettings) -> bool:
    return all(getattr(settings.limits, name) <= most for name, (most, _) in advice.settings.items())
