"""Who leads an outbox by another election, as the fence tells."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from outbox_core.rivals import find_rival
from outbox_sdk import DriverError, Fence, LaneStatus, Seam

from .fakes import FakeDialect, FakeTable, made

OURS = "lease"


def dialect(age: float | None = 1.0, **metrics: str):
    table = FakeTable()
    table.held = [LaneStatus(Fence(0, 1, 7, 1), "a host", datetime.now(UTC), datetime.now(UTC), age, metrics)]
    return made(Seam.DIALECT, FakeDialect(table))


def test_another_election_is_named():
    found = find_rival(dialect(election="etcd 'orders'"), OURS)
    assert found == "'a host' leads this outbox by the election etcd 'orders', and not by lease"


@pytest.mark.parametrize("metrics", [{"election": OURS}, {}], ids=["the same", "not noted"])
def test_the_own_election_is_no_rival_nor_is_one_that_is_not_known(metrics):
    assert find_rival(dialect(**metrics), OURS) == ""


def test_a_leader_that_is_silent_is_none():
    assert find_rival(dialect(age=16.0, election="static"), OURS, 15.0) == ""
    assert find_rival(dialect(age=14.0, election="static"), OURS, 15.0)


def test_a_database_that_is_away_tells_of_none():
    away = FakeDialect(errors=[DriverError("away", retryable=True)])
    assert find_rival(made(Seam.DIALECT, away), OURS) == ""
