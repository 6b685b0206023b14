"""How many bytes a transaction may have, against a broker that lets so many bytes a second pass."""

from __future__ import annotations

import pytest
from outbox_core.delivery.batch_size import AIM_SECONDS, FIRST_BYTES, LEAST_BYTES, SLOW_SECONDS, ByteLimit

MOST = 32 << 20


def test_a_record_that_is_larger_is_a_transaction_of_its_own():
    limit = ByteLimit(1000)
    assert limit.fitting([600, 400, 1]) == 2
    assert limit.fitting([2000, 1]) == 1


def test_the_limit_doubles_with_transactions_that_use_it_and_are_short():
    limit = ByteLimit(MOST)
    assert limit.limit == FIRST_BYTES
    limit.committed(1000, 0.01)
    assert limit.limit == FIRST_BYTES, "it was not used"
    for _ in range(10):
        limit.committed(limit.limit, 0.01)
    assert limit.limit == MOST


def test_a_slow_broker_gets_no_less_than_the_least_and_one_without_time_ever_less():
    limit = ByteLimit(MOST)
    limit.committed(1000, 10)
    assert limit.limit == LEAST_BYTES
    limit.aborted(LEAST_BYTES, 8)
    assert limit.limit == LEAST_BYTES // 2
    limit.committed(LEAST_BYTES // 2, 2)
    assert limit.limit == LEAST_BYTES // 2
    limit.aborted(LEAST_BYTES, 0.1)
    assert limit.limit == LEAST_BYTES // 2, "a record was refused"
    for _ in range(40):
        limit.aborted(limit.limit, 8)
    assert limit.limit == 1


@pytest.mark.parametrize("rate", [150_000, 250_000, 1_000_000, 20_000_000])
def test_transactions_soon_take_about_as_long_as_they_should(rate):
    limit, burst, took = ByteLimit(MOST), 10.0 * rate, []
    for _ in range(30):
        size = limit.limit
        seconds = max(0.01, (size - burst) / rate)
        burst = max(0.0, burst - size)
        limit.committed(size, seconds)
        took.append(seconds)
    assert max(took) < 12
    assert all(AIM_SECONDS / 2.1 < seconds <= SLOW_SECONDS for seconds in took[-10:])
