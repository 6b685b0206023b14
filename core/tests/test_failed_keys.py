"""Two records of one key that fail for different reasons, in batches of an exactly-once lane."""

from __future__ import annotations

from outbox_api import Failure, MarkedRecord
from outbox_core.delivery.failed_keys import FailedKeys
from outbox_core.delivery.held import FAILING_KEYS, TRIED_KEYS
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.settings import Failures

FIRST, SECOND = (MarkedRecord(number, "orders", "k", "v") for number in (1, 2))


def test_neither_of_two_failing_records_of_a_key_resets_the_tries_of_the_other() -> None:
    failed = FailedKeys(RetryPolicy(Failures(park_after=3), lambda: 0.5))
    parked: list[int] = []
    for _ in range(3):
        # The client refuses the second at once, so that nobody learns what the broker says of the first.
        pause, poisons = failed.add(0.0, [FIRST, SECOND], [Failure(SECOND, "refused", retryable=False)])
        assert (pause, poisons) == (0.0, [])
        _, poisons = failed.add(0.0, [FIRST], [Failure(FIRST, "too large", retryable=False)])
        parked += [poison.id for poison in poisons]
    assert parked == [1]


def test_a_record_whose_predecessor_is_gone_is_counted_and_parked() -> None:
    failed = FailedKeys(RetryPolicy(Failures(park_after=2), lambda: 0.5))
    failed.add(0.0, [FIRST, SECOND], [Failure(FIRST, "refused", retryable=False)])
    parked = [failed.add(0.0, [SECOND], [Failure(SECOND, "refused", retryable=False)])[1] for _ in range(2)]
    assert [[poison.id for poison in poisons] for poisons in parked] == [[], [2]]


def many(count: int) -> list[MarkedRecord]:
    return [MarkedRecord(number, "orders", f"k{number}", "v") for number in range(count)]


def test_a_topic_of_which_some_records_of_the_batch_are_without_fault_is_not_held() -> None:
    failed, rows = FailedKeys(RetryPolicy(Failures(), lambda: 0.5)), many(FAILING_KEYS + 1)
    failures = [Failure(row, "refused", retryable=False) for row in rows]
    failed.add(0.0, rows, failures[1:])
    assert not failed.topics.held
    failed.add(0.0, rows[:1], failures[:1])
    failed.add(0.0, rows[1:], failures[1:])
    assert not failed.topics.held, "those that are tried again say nothing new"
    others = [Failure(row._replace(key=f"new {row.key}"), "refused", retryable=False) for row in rows]
    failed.add(0.0, [other.record for other in others], others)
    assert "orders" in failed.topics.held


def test_so_many_held_keys_are_tried_at_a_time_and_none_by_the_selection_after() -> None:
    failed, rows = FailedKeys(RetryPolicy(Failures(), lambda: 0.5)), many(TRIED_KEYS + 20)
    failed.add(0.0, rows, [Failure(row, "timed out", retryable=True) for row in rows])
    assert [len(failed.next_look(now)[0]) for now in (0.0, 9.0, 9.0, 9.0)] == [TRIED_KEYS + 20, 20, 20, 0]
    first, *others = rows
    failed.add(9.0, rows, [Failure(first, "timed out", retryable=True)])
    assert failed.next_look(9.0)[0] == (first.key,)
    failed.delivered(others)
    assert list(failed.attempts) == [(0, first.key)]
