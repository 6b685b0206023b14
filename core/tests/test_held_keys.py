"""Keys that failed: what counts as an attempt of their first record."""

from __future__ import annotations

import pytest
from outbox_api import Failure, MarkedRecord
from outbox_core.delivery.held_keys import HeldKeys
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.delivery.scoreboard import Scoreboard
from outbox_core.settings import Failures

RECORDS = [MarkedRecord(number, "orders", "k", "value", (), partition=0) for number in (1, 2, 3)]


def policy() -> RetryPolicy:
    return RetryPolicy(Failures(park_retryable_after=1), lambda: 0.5)


@pytest.mark.parametrize("cause", ["suspect", "innocent"])
def test_a_record_that_another_may_have_failed_is_not_parked_for_it(cause: str) -> None:
    held = HeldKeys(policy())
    held.hold(0.0, [Failure(RECORDS[0], "refused", retryable=True, **{cause: True})], [])
    assert (held.holds["k"].failures, held.holds["k"].parking) == (0, False)
    held.unhold(["k"])
    held.hold(1.0, [Failure(RECORDS[0], "refused alone", retryable=True)], [])
    assert (held.holds["k"].failures, held.holds["k"].parking) == (1, True)


@pytest.mark.parametrize("delivered", [0, 1])
def test_what_was_refused_in_a_run_is_not_parked_for_it(delivered: int) -> None:
    """As much for one record that is left of a run: its batch may have had another key's records."""
    board = Scoreboard(policy(), 100, run_records=2)
    board.admit(0.0, RECORDS[:2])
    assert board.take(10).first == RECORDS[:1]
    if delivered:
        board.delivered(0.0, RECORDS[:1], 10)
        assert board.take(10).others == RECORDS[1:2]
    refused = RECORDS[delivered]
    board.hold(0.0, [Failure(refused, "refused", retryable=True, suspect=True)])
    if delivered:
        board.release(0.0, RECORDS[:1])
    assert board.held.holds["k"].head == refused.id
    assert not board.held.holds["k"].parking
