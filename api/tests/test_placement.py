"""Which partitions and times a message can have, however a row or a transform writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from outbox_api import MarkedRecord
from outbox_api.seams.placement import partition_of, placed_row, timestamp_of

ROW = MarkedRecord(1, "t", "k", "v")


@pytest.mark.parametrize("nothing", [None, -1, "-1", Decimal(-1), -1.0])
def test_minus_one_is_as_null(nothing: Any) -> None:
    assert (partition_of(nothing), timestamp_of(nothing)) == (None, None)


@pytest.mark.parametrize("number", [7, "7", Decimal(7), 7.0, b"7"])
def test_a_number_is_one_however_a_driver_returns_it(number: Any) -> None:
    assert (partition_of(number), timestamp_of(number)) == (7, 7)
    assert placed_row(ROW, number, number) == ROW._replace(partition=7, timestamp_ms=7)


@pytest.mark.parametrize(
    "odd", [-2, "x", 1.5, float("nan"), float("inf"), 2**63, -(2**63), datetime(2026, 1, 2, tzinfo=UTC), [7]]
)
def test_what_no_message_can_have_is_a_fault(odd: Any) -> None:
    for row in (placed_row(ROW, odd, None), placed_row(ROW, None, odd)):
        assert (row.partition, row.timestamp_ms) == (None, None)
        assert f"{odd!r:.40}" in (row.fault or "")
    assert placed_row(ROW._replace(fault="the first"), odd, None).fault == "the first"


def test_partition_zero_is_one_and_the_time_zero_is_none() -> None:
    assert partition_of(0) == 0
    assert placed_row(ROW, 2**31 - 1, 2**63 - 1).fault is None
    for row in (placed_row(ROW, None, 0), placed_row(ROW, 2**31, None)):
        assert row.fault
