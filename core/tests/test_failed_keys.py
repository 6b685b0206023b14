"""Two records of one key that fail for different reasons, in batches of an exactly-once lane."""

from __future__ import annotations

from outbox_api import Failure, MarkedRecord
from outbox_core.config.settings import Failures
from outbox_core.delivery.retries import FailedKeys, RetryPolicy

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
