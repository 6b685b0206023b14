"""Who leads an outbox by another election, as the fence tells."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from outbox_api import DriverError, Fence, LaneStatus, Seam
from outbox_core.status.rivals import leading_lane, rival

from .fakes import FakeDialect, FakeTable, made


def lane(holder="a host", **metrics):
    return LaneStatus(Fence(0, 1, 7, 1), holder, datetime.now(UTC), datetime.now(UTC), 1.0, metrics)


def test_another_election_is_named():
    found = rival(lane(election="etcd 'orders'"), "lease")
    assert found == "'a host' leads this outbox by the election etcd 'orders', and not by lease"


@pytest.mark.parametrize("metrics", [{"election": "lease"}, {}], ids=["the same", "not noted"])
def test_the_own_election_is_no_rival_nor_is_one_that_is_not_known(metrics):
    assert rival(lane(**metrics), "lease") == ""


@pytest.mark.parametrize(
    ("held", "found"),
    [([], None), ([lane("operator me at host")], None), ([lane("a host")], "a host")],
    ids=["nobody", "an operator", "a process"],
)
def test_who_has_raised_the_fence(held, found):
    table = FakeTable()
    table.held = held
    leading = leading_lane(made(Seam.DIALECT, FakeDialect(table)))
    assert (leading and leading.holder) == found


def test_a_database_that_is_away_tells_of_nobody():
    away = FakeDialect(errors=[DriverError("away", retryable=True)])
    assert leading_lane(made(Seam.DIALECT, away)) is None
