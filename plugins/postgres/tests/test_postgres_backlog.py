"""The backlog: how much waits, how old the oldest is, and that nobody reads much to know."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from outbox_api import Backlog
from outbox_api.seams.outbox_view import MAX_COUNTED
from outbox_postgres import view as module
from outbox_postgres.rows import PostgresDeadLetters

from .outbox_hands import Hand, Outbox

MINUTE = pytest.approx(60, abs=30)
HOUR = pytest.approx(3600, abs=30)


def age(outbox: Outbox, minutes: int, ids: Sequence[int]) -> None:
    """Makes rows older."""
    outbox.admin.execute(
        "UPDATE outbox SET create_time = now() - make_interval(mins => %s) WHERE id = ANY (%s)",
        (minutes, list(ids)),
    )


def test_the_backlog_is_counted_while_small_and_estimated_when_large(outbox: Outbox) -> None:
    table = outbox.connect()
    assert table.backlog() == Backlog(records=0, exact=True, oldest=None)
    outbox.write()
    outbox.admin.execute("UPDATE outbox SET create_time = now() - interval '1 minute'")
    outbox.write()
    small = table.backlog()
    assert (small.records, small.exact) == (2, True)
    assert 59 < (small.oldest or 0) < 120
    outbox.fill(MAX_COUNTED * 4)
    outbox.admin.execute("ANALYZE outbox")
    large = table.backlog()
    assert not large.exact
    assert large.records == pytest.approx(MAX_COUNTED * 4, rel=0.1)
    assert 59 < (large.oldest or 0) < 120


@pytest.mark.parametrize("time", ["infinity", "-infinity", "4713-01-01 00:00 BC", "294276-12-31 23:59"])
def test_a_row_may_have_any_time_that_the_column_takes(hand: Hand, outbox: Outbox, time: str) -> None:
    outbox.write()
    outbox.admin.execute("UPDATE outbox SET create_time = %s", (time,))
    assert hand.table.backlog().records == 1
    oldest = hand.table.backlog().oldest
    assert oldest is None if "inf" in time else isinstance(oldest, float)
    [record] = hand.mark()
    assert record.created is None or math.isfinite(record.created)


def test_the_oldest_leaves_out_the_rows_of_parked_keys(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(9, keys=3)
    outbox.park(hand, "k1", "k2")
    age(outbox, 60, [1, 2, 4])
    age(outbox, 1, [3])
    before = hand.table.backlog()
    assert (before.records, before.exact) == (9, True)
    assert before.oldest == MINUTE
    letters.retry([2])
    after = hand.table.backlog()
    assert after.records == 9
    assert after.oldest == HOUR


def test_keys_that_another_outbox_parked_wait_here(outbox: Outbox, hand: Hand) -> None:
    outbox.fill(2, keys=1)
    outbox.park(hand, "k0")
    age(outbox, 1, [1])
    outbox.admin.execute("UPDATE outbox_dead_letters SET name = 'another'")
    assert hand.table.backlog().oldest == MINUTE


@pytest.mark.parametrize(("passed", "oldest"), [(5, MINUTE), (4, MINUTE), (3, HOUR)])
def test_behind_many_rows_of_parked_keys_the_oldest_is_at_most_as_old_as_said(
    outbox: Outbox, hand: Hand, monkeypatch: pytest.MonkeyPatch, passed: int, oldest: object
) -> None:
    for key in ["hot"] * 4 + ["k"]:
        outbox.write(key)
    outbox.park(hand, "hot")
    age(outbox, 60, range(1, 5))
    age(outbox, 1, [5])
    monkeypatch.setattr(module, "MAX_PASSED", passed)
    assert outbox.connect().backlog().oldest == oldest


def test_an_estimate_counts_the_rows_of_parked_keys(outbox: Outbox, hand: Hand) -> None:
    outbox.fill(1, keys=1)
    outbox.park(hand, "k0")
    outbox.fill(MAX_COUNTED * 2, keys=1)
    outbox.write("k")
    age(outbox, 1, [MAX_COUNTED * 2 + 2])
    outbox.admin.execute("ANALYZE outbox")
    backlog = hand.table.backlog()
    assert not backlog.exact
    assert backlog.records == pytest.approx(MAX_COUNTED * 2, rel=0.1)
    assert backlog.oldest == MINUTE
