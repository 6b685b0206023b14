"""How `outbox check` compares the clocks of an outbox's replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any

import pytest
from outbox_api import DriverError, Finding, Level, Seam
from outbox_core.cli.check import _checks
from outbox_core.cli.clocks import ROUNDS, clock_checks, measure
from outbox_core.config import parse
from outbox_core.settings import Choice, HarvestSettings

from .fakes import NOW, FakeClusters, FakeTable, made

SETTINGS = parse("harvest: {}", "f.yaml", {}).harvest


class Clock(FakeTable):
    """A database whose clock says one time after the other, in seconds; the last one again and again."""

    def __init__(self, *seconds: float) -> None:
        super().__init__()
        self._times: Iterator[float] = chain(seconds, repeat(seconds[-1]))

    def now(self) -> datetime:
        return NOW + timedelta(seconds=next(self._times))


@dataclass(frozen=True)
class Options:
    data_source: str = "here"


class Databases(Choice[Any]):
    """The choice of a dialect, whose databases are named by their data sources; or errors."""

    found: dict[str, Any] = {}  # noqa: RUF012 - tests set it

    def create(self) -> Databases:
        return self

    def watch(self) -> Any:
        found = self.found[self.options.data_source]
        if isinstance(found, Exception):
            raise found
        return found


def settings(monkeypatch: pytest.MonkeyPatch, arrival: str = "", **databases: object) -> HarvestSettings:
    monkeypatch.setattr(Databases, "found", databases)
    return replace(
        SETTINGS,
        dialect=Databases(Seam.DIALECT, "memory", Options()),
        affinity=made(Seam.AFFINITY, FakeClusters({2: "there"}, arrival)),
    )


def look(chosen: HarvestSettings) -> Sequence[Finding]:
    checks = clock_checks(chosen)
    assert list(checks) == ["clock of cluster 2"]
    return checks["clock of cluster 2"]()


def test_the_round_that_took_the_shortest_counts():
    own = Clock(*[float(second) for second in range(2 * ROUNDS - 2)], 20.0, 20.2)
    other = Clock(*repeat(50.0, ROUNDS - 1), 23.1)
    skew = measure(own, other)  # type: ignore[arg-type]  # tables with a clock
    assert tuple(skew) == pytest.approx((3.0, 0.1))


def test_clocks_that_agree(monkeypatch: pytest.MonkeyPatch):
    own, other = Clock(0.0), Clock(0.0)
    [found] = look(settings(monkeypatch, here=own, there=other))
    assert found.level is Level.OK
    assert found.message == "the clock of cluster 2's database agrees with this one's, to 1ms"
    assert own.closed
    assert other.closed


@pytest.mark.parametrize(
    ("ahead", "level", "told"),
    [
        (29.9, Level.OK, "is 29.9s ahead of this one's"),
        (31.0, Level.WARNING, "its records would be taken over by so much too late"),
        (-31.0, Level.WARNING, "is 31s behind this one's, give or take 1ms"),
    ],
)
def test_a_twentieth_of_the_least_age_is_too_much(
    ahead: float, level: Level, told: str, monkeypatch: pytest.MonkeyPatch
):
    [found] = look(settings(monkeypatch, here=Clock(0.0), there=Clock(ahead)))
    assert found.level is level
    assert told in found.message
    assert bool(found.cure) is (level is Level.WARNING)


def test_with_times_of_arrival_the_clock_of_another_cluster_does_not_matter(monkeypatch: pytest.MonkeyPatch):
    [found] = look(settings(monkeypatch, "arrived", here=Clock(0.0), there=Clock(3600.0)))
    assert found.level is Level.OK
    assert "is 1h ahead of" in found.message
    assert "ages count from 'arrived'" in found.message


def test_a_replica_that_cannot_be_reached_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    own = Clock(0.0)
    away = DriverError("no route to host", retryable=True)
    [found] = look(settings(monkeypatch, here=own, there=away))
    assert found.level is Level.WARNING
    assert "no route to host" in found.message
    assert own.closed


def test_an_own_database_that_is_away_is_not_told_of_twice(monkeypatch: pytest.MonkeyPatch):
    away = DriverError("away", retryable=True)
    assert look(settings(monkeypatch, here=away, there=Clock(0.0))) == []


def test_clocks_are_compared_only_where_there_are_clusters():
    assert not [part for part in _checks(SETTINGS) if "clock" in part]
    alone = replace(SETTINGS, affinity=made(Seam.AFFINITY, FakeClusters()))
    [found] = _checks(alone)["clocks"]()
    assert found.level is Level.OK
    assert "'replicas' names none" in found.message
