"""What a group of lanes does when a lane cannot work; the leader is made of memory."""

from __future__ import annotations

import math
import time

import pytest
from outbox_api import AccessDenied, DriverError, Seam
from outbox_core.control.protocol import Orders
from outbox_core.lanes import restarts
from outbox_core.lanes.plan import Plan
from outbox_core.lanes.threads import run_group
from outbox_core.settings import Failures, Limits

from .fakes import FakeDialect, FakePlugin, made


class Leader:
    """Answers reports as a term does, and gives up after a while."""

    def __init__(self, patience):
        self.refusals: list[DriverError] = []
        self.ends = time.monotonic() + patience

    def exchange(self, report):
        if report.refusal is not None:
            self.refusals.append(report.refusal.error)
        return Orders(math.inf, stopped=bool(self.refusals) or time.monotonic() > self.ends)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(restarts, "RESTART_SECONDS", (0.01, 0.02))


def run(dialect, stop_after, patience=60.0):
    plan = Plan(
        outbox="outbox",
        token=1,
        lanes=1,
        dialect=made(Seam.DIALECT, dialect),
        affinity=made(Seam.AFFINITY, FakePlugin()),
        publisher=made(Seam.PUBLISHER, FakePlugin()),
        limits=Limits(),
        failures=Failures(stop_after=stop_after),
    )
    leader = Leader(patience)
    run_group(plan, 0, [0], leader)
    return leader.refusals


def test_a_lane_that_is_refused_for_too_long_tells_its_leader():
    dialect = FakeDialect(errors=[AccessDenied("the password has expired")])
    refusals = run(dialect, stop_after=0.3)
    assert [str(error) for error in refusals][:1] == ["the password has expired"]
    assert dialect.asked > 1, "it tried again meanwhile"


def test_a_lane_whose_database_is_away_tries_for_ever():
    unreachable = FakeDialect(errors=[DriverError("no route to host", retryable=True)])
    assert run(unreachable, stop_after=0.0, patience=1.0) == []


def test_what_is_refused_in_between_counts_from_its_own_beginning():
    away, denied = DriverError("away", retryable=True), AccessDenied("expired")
    errors = [denied, away] * 30
    assert run(FakeDialect(errors=[*errors, away]), stop_after=0.2, patience=1.0) == []
