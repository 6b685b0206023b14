"""What marks and purges cost: as much in a large outbox as in a small one."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box, Hand

FEW = 500
MANY = 50_000
TIMES = 25
FACTOR = 3
SLACK = 0.0005
"""Seconds; so that a clock's resolution is no reason to fail."""


class CostConformance(Conformance):
    """The same in a small and in a large outbox, in turn, in one run; the quickest of several counts.

    Whatever else the machine is doing only ever adds to a time, and of several in turn each side has a quiet
    moment. A look at every row would add to each of them, many times what the factor allows.
    """

    def test_a_mark_and_a_purge_cost_no_more_where_more_waits(self, box: Box) -> None:
        large = box.beside("large")
        box.fill(FEW, keys=50)
        large.fill(MANY, keys=50)
        few, many = hands = box.lead(), large.lead()
        # What has been there before makes marks no slower either.
        assert many.purge(*many.ids(MANY // 4)) == MANY // 4
        marked = [hand.ids(10 * TIMES) for hand in hands]

        def purge(hand: Hand, ids: list[int]) -> None:
            assert hand.purge(*(ids.pop() for _ in range(10))) == 10

        assert_no_dearer("mark", lambda: few.mark(10), lambda: many.mark(10))
        assert_no_dearer("purge", lambda: purge(few, marked[0]), lambda: purge(many, marked[1]))
        assert_no_dearer("advance", lambda: few.advance(10), lambda: many.advance(10))
        backlog, left = large.connect().backlog(), MANY - MANY // 4 - 10 * TIMES
        assert backlog.records == left if backlog.exact else left / 2 < backlog.records < left * 2
        assert backlog.oldest is not None


def assert_no_dearer(what: str, small: Callable[[], object], large: Callable[[], object]) -> None:
    """Compares the shortest of the times that each takes, tried in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TIMES):
        for act, taken in zip((small, large), times, strict=True):
            began = perf_counter()
            act()
            taken.append(perf_counter() - began)
    few, many = (min(taken) for taken in times)
    assert many < few * FACTOR + SLACK, (
        f"a {what} takes {few * 1e3:.2f} ms, and {many * 1e3:.2f} ms among many"
    )
