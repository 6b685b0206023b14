"""When a lost lane group is started again, and when that is given up; the clock is the test's."""

from __future__ import annotations

import pytest
from outbox_core.engines.runner import (
    EARLY_END_SECONDS,
    MAX_EARLY_ENDS,
    PAUSE_SECONDS,
    GroupEnd,
    RunGroup,
    supervise_group,
)
from outbox_core.leadership.leader import Leadership
from outbox_core.steps import Sleep

LOST = ConnectionError("the worker is gone")
BROKEN = ValueError("a rule is broken")


class Supervised:
    """A group whose runs last and end as the test says."""

    def __init__(self):
        self.now = 0.0
        self.leadership = Leadership(7, lambda: 3.0, lambda: self.now)
        self.steps = supervise_group(self.leadership, 1, clock=lambda: self.now)
        assert next(self.steps) == RunGroup(1)

    def end(self, error, *, lost, after):
        """Ends the run, and returns the next request."""
        self.now += after
        return self.steps.send(GroupEnd(error, lost=lost, reason=str(error)))

    def result(self, error, *, lost, after):
        """Ends the run with which supervision ends, and returns its result."""
        with pytest.raises(StopIteration) as ended:
            self.end(error, lost=lost, after=after)
        return ended.value.value


@pytest.fixture
def group():
    return Supervised()


def test_a_lost_group_is_started_again_after_a_pause_however_often(group):
    for _ in range(2 * MAX_EARLY_ENDS):
        assert group.end(LOST, lost=True, after=EARLY_END_SECONDS) == Sleep(PAUSE_SECONDS)
        assert next(group.steps) == RunGroup(1)
    assert not group.leadership.over


def test_a_group_that_ends_at_once_too_often_ends_the_term(group):
    for _ in range(MAX_EARLY_ENDS - 1):
        assert group.end(LOST, lost=True, after=1.0) == Sleep(PAUSE_SECONDS)
        next(group.steps)
    assert group.result(LOST, lost=True, after=1.0) is LOST
    assert group.leadership.stopped


def test_an_error_that_no_other_process_cures_ends_the_term(group):
    assert group.result(BROKEN, lost=False, after=60.0) is BROKEN
    assert group.leadership.stopped


def test_a_group_that_ends_with_its_term_is_not_started_again(group):
    group.leadership.drain()
    assert group.result(LOST, lost=True, after=1.0) is None
    assert not group.leadership.stopped
