"""When a failed record is tried again, and when its key is parked instead."""

from __future__ import annotations

import pytest
from outbox_api import Failure, MarkedRecord
from outbox_core.delivery.failed_keys import FailedKeys
from outbox_core.delivery.retries import JITTER, MAX_FAILED_BYTES, Attempts, RetryPolicy
from outbox_core.delivery.scoreboard import Scoreboard
from outbox_core.settings import Failures

RECORD = MarkedRecord(7, "orders", "key", "value", ())


def failed(temporary: int = 0, *, permanent: int = 0) -> Attempts:
    attempts = Attempts(RECORD.id, since=0.0)
    for retryable in [True] * temporary + [False] * permanent:
        attempts.add(Failure(RECORD, "refused", retryable=retryable))
    return attempts


def policy(chance: float = 0.5, **settings: object) -> RetryPolicy:
    return RetryPolicy(Failures(**settings), lambda: chance)  # type: ignore[arg-type]


def test_the_pause_doubles_with_each_failure_up_to_a_limit():
    retries = policy(first_backoff=0.1, longest_backoff=1.0)
    assert [retries.pause(failed(count)) for count in range(1, 7)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1, 1]
    )
    assert retries.pause(failed(5000)) == pytest.approx(1.0)


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 1 - JITTER), (0.5, 1.0), (1.0, 1 + JITTER)])
def test_chance_spreads_pauses(chance: float, factor: float):
    assert policy(chance, first_backoff=2.0).pause(failed(1)) == pytest.approx(2 * factor)


def test_only_permanent_failures_count_towards_parking():
    retries = policy(park_after=3)
    assert not retries.parks(failed(100, permanent=2))
    assert retries.parks(failed(permanent=3))
    assert retries.parking == 1


def test_temporary_failures_park_if_the_user_wants_it():
    retries = policy(park_after=3, park_retryable_after=10)
    assert not retries.parks(failed(9))
    assert retries.parks(failed(9, permanent=1))


def test_no_more_than_so_many_keys_are_parked():
    retries = policy(park_after=1, most_parked_keys=2)
    assert [retries.parks(failed(permanent=1)) for _ in range(3)] == [True, True, False]
    retries.parking_done(2, parked=1)
    assert (retries.parked, retries.parking, retries.full) == (1, 0, False)
    retries.counted(4, done_before=0)  # the count was made before this lane parked its key
    assert retries.parked == 5
    assert retries.full


LONG = 65_536
MANY = 4 * MAX_FAILED_BYTES // LONG


def failure(number: int) -> Failure:
    return Failure(
        MarkedRecord(number, "topic", str(number).ljust(LONG), "value"), "no such topic", retryable=True
    )


def test_failures_of_keys_that_are_not_held_take_a_bounded_memory():
    board = Scoreboard(policy(), 100)
    for number in range(MANY):
        record = failure(number).record
        board.admit(0.0, [record])
        board.take(1)
        board.hold(0.0, [failure(number)])
        if number:
            board.held.unhold([record.key])
    board.stalled(1.0, 30.0)
    assert sum(map(len, board.held.holds)) <= MAX_FAILED_BYTES + LONG
    assert failure(0).record.key in board.held.holds, "it is held"
    assert failure(MANY - 1).record.key in board.held.holds, "the newest are kept"


def test_so_do_those_of_exactly_once_delivery():
    failed = FailedKeys(policy())
    for number in range(MANY):
        each = failure(number)
        failed.add(0.0, [each.record], [each])
    assert sum(len(key) for _, key in failed.attempts) <= MAX_FAILED_BYTES + LONG
    failed.delivered([failure(number).record for number in range(MANY)])
    assert not failed.attempts
    assert failed.blocked(1.0) == (0, 0.0, "")
