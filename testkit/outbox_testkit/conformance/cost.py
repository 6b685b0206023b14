"""The cost of marks and purges: the same in a large outbox as in a small one."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

from outbox_api import Batch

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box, Hand

FEW = 500
MANY = 50_000
TIMES = 25
FACTOR = 3
SLACK = 0.0005
"""Seconds that are added to each time, because of the clock's resolution."""


class CostConformance(Conformance):
    """Compares a small and a large outbox, in turn, in one run; the fastest of several tries counts.

    Other load of the machine can only increase a time, and with several tries in turn each side has a quiet
    moment. A scan of every row would increase all times, by much more than the factor permits.
    """

    def test_a_mark_and_a_purge_cost_no_more_where_more_waits(self, box: Box) -> None:
        large = box.beside("large")
        box.fill(FEW, keys=50)
        large.fill(MANY, keys=50)
        few, many = hands = box.lead(), large.lead()
        # Rows that were deleted before must not make marks slower either.
        assert many.purge(*many.ids(MANY // 4)) == MANY // 4
        marked = [hand.ids(10 * TIMES) for hand in hands]

        def purge(hand: Hand, ids: list[int]) -> None:
            assert hand.purge(*(ids.pop() for _ in range(10))) == 10

        assert_no_dearer("mark", lambda: few.mark(10), lambda: many.mark(10))
        assert_no_dearer("purge", lambda: purge(few, marked[0]), lambda: purge(many, marked[1]))

        def advance(hand: Hand) -> None:
            assert len(hand.advance(5, finished=[hand.last()])) == 5

        assert_no_dearer("select", lambda: few.advance(5), lambda: many.advance(5))
        assert_no_dearer("advance", lambda: advance(few), lambda: advance(many))
        few_rows, many_rows = (Batch.of([record.id for record in hand.advance(100)[::2]]) for hand in hands)
        assert_no_dearer("read", lambda: few.table.rows(few_rows), lambda: many.table.rows(many_rows))
        backlog, left = large.connect().backlog(), MANY - MANY // 4 - 15 * TIMES
        assert backlog.records == left if backlog.exact else left / 2 < backlog.records < left * 2
        assert backlog.oldest is not None


def assert_no_dearer(
    what: str, small: Callable[[], object], large: Callable[[], object], times: int = TIMES
) -> None:
    """Compares the shortest time of each side; the sides are tried in turn, so often at most."""
    few = many = math.inf
    for turn in range(1, times + 1):
        few, many = min(few, _time_of(small)), min(many, _time_of(large))
        if turn >= TIMES and many < few * FACTOR + SLACK:
            break
    assert many < few * FACTOR + SLACK, (
        f"a {what} takes {few * 1e3:.2f} ms, and {many * 1e3:.2f} ms among many"
    )


def _time_of(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return perf_counter() - began
