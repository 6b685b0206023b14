"""When a lane starts anew, and when it gives up."""

from __future__ import annotations

import pytest
from outbox_core.lanes.restarts import PROVEN_SECONDS, Restarts


@pytest.fixture
def restarts():
    return Restarts(10.0, lambda: 0.5, (1.0, 4.0))


def away(restarts, now, lasted=0.0, purged=0):
    return restarts.failed(now, lasted=lasted, purged=purged, retryable=True)


def refused(restarts, now, lasted=0.0, purged=0):
    return restarts.failed(now, lasted=lasted, purged=purged, retryable=False)


def test_pauses_double_up_to_the_longest(restarts):
    assert [away(restarts, now) for now in range(5)] == [1.0, 2.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("proof", [{"purged": 1}, {"lasted": PROVEN_SECONDS + 1}])
def test_an_attempt_that_worked_makes_the_pause_short_again(restarts, proof):
    away(restarts, 0)
    away(restarts, 1)
    assert away(restarts, 2, **proof) == 1.0


def test_a_lane_that_is_refused_for_too_long_gives_up(restarts):
    assert refused(restarts, 0) is not None
    assert refused(restarts, 9.9) is not None
    assert refused(restarts, 10.0) is None


def test_what_may_pass_never_ends_a_lane_and_refusals_count_anew_behind_it(restarts):
    assert all(away(restarts, now) is not None for now in range(0, 1000, 5))
    refused(restarts, 1000)
    away(restarts, 1005)
    assert refused(restarts, 1011) is not None
    refused(restarts, 1015, purged=1)
    assert refused(restarts, 1022) is not None
