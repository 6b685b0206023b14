"""What a term does about groups of lanes that fall silent; the clock is the test's."""

from __future__ import annotations

import pytest
from outbox_core.control.protocol import Report
from outbox_core.events.metrics import LaneMetrics
from outbox_core.leadership.leader import CHECK_SECONDS, SILENT_SECONDS, START_SECONDS, Leadership
from outbox_core.leadership.timeouts import Patience

BEAT = 0.1


class World:
    """A leader who looks on every beat, and groups that report whenever they are said to."""

    def __init__(self):
        self.now = 1000.0
        self.leadership = Leadership(7, lambda: 3.0, lambda: self.now)

    def hear(self, group, incarnation="first", token=7):
        return self.leadership.exchange(Report(token, group, incarnation, {group: LaneMetrics()}))

    def due(self, group, seconds, purged=0):
        metrics = {group: LaneMetrics(purged=purged)}
        self.leadership.exchange(Report(7, group, "first", metrics, unacknowledged_seconds=seconds))
        return self.leadership.unacknowledged()

    def live(self, seconds, *talking):
        """Lets time pass while these groups report; returns who is found silent, and after how long."""
        for heartbeat_at in range(1, round(seconds / BEAT) + 1):
            self.now += BEAT
            for group in talking:
                self.hear(group)
            if silent := self.leadership.silent():
                return silent, pytest.approx(heartbeat_at * BEAT, abs=2 * BEAT)
        return [], seconds


@pytest.fixture
def world():
    return World()


def test_groups_that_are_heard_are_not_silent(world):
    world.leadership.expect([0, 1])
    assert world.live(10 * START_SECONDS, 0, 1) == ([], 10 * START_SECONDS)


def test_a_group_that_falls_silent_is_found_though_others_are_heard(world):
    world.leadership.expect([0, 1])
    world.live(5, 0, 1)
    assert world.live(60, 0) == ([1], SILENT_SECONDS)


def test_a_group_has_longer_for_its_first_word(world):
    world.leadership.expect([0, 1])
    assert world.live(60, 1) == ([0], START_SECONDS)


def test_a_frozen_copy_that_wakes_speaks_for_nobody(world):
    world.leadership.expect([0])
    world.hear(0, "first")
    world.live(SILENT_SECONDS - 1)
    world.hear(0, "second")
    world.live(SILENT_SECONDS - 1)
    world.hear(0, "first")
    assert world.live(60) == ([0], 1.0)


def test_a_group_that_is_started_anew_has_longer_while_others_are_heard(world):
    world.leadership.expect([0, 1])
    world.live(5, 0, 1)
    world.leadership.expect([1])
    assert world.live(60, 0) == ([1], START_SECONDS)


def test_groups_that_are_all_lost_are_silent_however_often_they_are_started_anew(world):
    world.leadership.expect([0, 1])
    world.live(5, 0, 1)
    for _ in range(4):
        world.leadership.expect([0, 1])
        world.live(2)
    world.leadership.expect([0, 1])
    assert world.live(60) == ([0, 1], SILENT_SECONDS - 4 * 2)


def test_what_works_for_an_earlier_term_is_not_heard(world):
    world.leadership.expect([0])
    world.hear(0)
    world.live(SILENT_SECONDS - 1)
    world.hear(0, token=6)
    assert world.live(60) == ([0], 1.0)


def test_groups_that_nobody_expects_may_be_silent(world):
    world.hear(0)
    assert world.live(10 * START_SECONDS)[0] == []


def test_what_the_leader_slept_counts_for_nobody(world):
    world.leadership.expect([0])
    world.live(5, 0)
    world.live(SILENT_SECONDS / 2)
    world.now += 3600
    assert world.leadership.silent() == []
    assert world.live(60) == ([0], SILENT_SECONDS / 2)


def test_a_leader_that_slept_waits_no_longer_than_for_a_first_word(world):
    world.leadership.expect([0])
    world.now += 3600
    world.hear(0)
    world.leadership.silent()
    assert world.live(60) == ([0], START_SECONDS)


def test_a_leader_who_is_merely_busy_hears_of_silence_in_time(world):
    world.leadership.expect([0])
    world.hear(0)
    looks = 0
    while not world.leadership.silent():
        world.now += CHECK_SECONDS * 0.9
        looks += 1
    assert looks * CHECK_SECONDS * 0.9 < SILENT_SECONDS + CHECK_SECONDS


def test_what_is_due_counts_while_no_lane_of_any_group_delivers(world):
    world.now += 100
    assert world.due(0, 40.0) == 40
    assert world.due(1, 0.0) == 40
    assert world.due(1, 0.0, purged=1) == 0, "another group delivers"
    world.now += 10
    assert world.due(0, 50.0) == 10
    assert world.due(0, 0.0) == 0, "nothing is due any more"


def test_what_was_due_before_this_term_is_not_its_fault(world):
    assert world.due(0, 40.0) == 0


def test_patience_doubles_up_to_a_limit_and_is_forgiven_after_a_while():
    patience, now, seen = Patience(30, 480, 3600), 0.0, []
    for _ in range(7):
        seen.append(patience.seconds(now))
        now += seen[-1]
        patience.ended(now)
    assert seen == [30, 60, 120, 240, 480, 480, 480]
    assert patience.seconds(now + 3599) == 480
    assert patience.seconds(now + 3600) == 30
