"""When a lost lane group is started again, and when that is given up; the clock is the test's."""

from __future__ import annotations

from outbox_core.engines.runner import (
    EARLY_END_SECONDS,
    MAX_EARLY_ENDS,
    PAUSE_SECONDS,
    GroupEnd,
    supervise_group,
)
from outbox_core.leadership.leader import Leadership

LOST = ConnectionError("the worker is gone")
BROKEN = ValueError("a rule is broken")


class Supervised:
    """A group whose runs last and end as the test says; the leadership drains with the last."""

    def __init__(self, *ends, drains=True):
        self.now = 0.0
        self.leadership = Leadership(7, lambda: 3.0, lambda: self.now)
        self.pauses: list[float] = []
        self._ends, self._drains = list(ends), drains
        self.result = supervise_group(
            self.leadership, 1, self._run, clock=lambda: self.now, sleep=self.pauses.append
        )

    def _run(self):
        error, after = self._ends.pop(0)
        self.now += after
        if self._drains and not self._ends:
            self.leadership.drain()
        return GroupEnd(error, lost=error is LOST, reason=str(error))


def test_a_lost_group_is_started_again_after_a_pause_however_often():
    times = 2 * MAX_EARLY_ENDS
    group = Supervised(*[(LOST, EARLY_END_SECONDS)] * times, (LOST, 1.0))
    assert (group.result, group.pauses) == (None, [PAUSE_SECONDS] * times)
    assert not group.leadership.stopped


def test_a_group_that_ends_at_once_too_often_ends_the_term():
    group = Supervised(*[(LOST, 1.0)] * MAX_EARLY_ENDS, drains=False)
    assert (group.result, group.pauses) == (LOST, [PAUSE_SECONDS] * (MAX_EARLY_ENDS - 1))
    assert group.leadership.stopped


def test_an_error_that_no_other_process_cures_ends_the_term():
    group = Supervised((BROKEN, 60.0), drains=False)
    assert group.result is BROKEN
    assert group.leadership.stopped


def test_a_group_that_ends_with_its_term_is_not_started_again():
    group = Supervised((LOST, 1.0))
    assert group.result is None
    assert not group.leadership.stopped
