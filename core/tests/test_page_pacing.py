"""How often browsers ask for what is new."""

import heapq
from itertools import pairwise

import pytest
from outbox_console.page.live import LONGEST, POLLS, SHORTEST, next_turn, overview_seconds


def polls(browsers: int, seconds: float) -> list[tuple[float, float]]:
    """Returns when browsers ask that all come at the same moment, and what pause each is told."""
    due, turn, found = [0.0] * browsers, 0.0, []
    while due[0] < seconds:
        now = heapq.heappop(due)
        turn = next_turn(now, turn)
        found.append((now, turn - now))
        heapq.heappush(due, turn)
    return found


@pytest.mark.parametrize("browsers", [1, 10, 40, 100, 200])
def test_browsers_ask_as_often_as_twenty_answers_a_second_permit(browsers: int):
    settled = [(at, pause) for at, pause in polls(browsers, 100.0) if at >= 2 * LONGEST]
    pause = max(SHORTEST, browsers / POLLS)
    assert [each for _, each in settled] == pytest.approx([pause] * len(settled), abs=0.01)
    assert len(settled) == pytest.approx(80.0 * browsers / pause, rel=0.02)


def test_a_crowd_that_comes_at_once_spreads():
    settled = [at for at, _ in polls(200, 100.0) if at >= 2 * LONGEST]
    assert min(after - at for at, after in pairwise(settled)) > 0.9 / POLLS


def test_nobody_waits_for_long_however_many_look():
    pauses = [pause for _, pause in polls(1000, 60.0)]
    assert min(pauses) >= SHORTEST
    assert max(pauses) <= LONGEST


def test_whoever_is_alone_again_is_soon_told_to_ask_often():
    crowd = next_turn(100.0, 110.0)
    assert crowd == 110.0
    assert next_turn(110.0, crowd) == 110.0 + SHORTEST


def test_many_outboxes_are_looked_at_less_often():
    assert [overview_seconds(outboxes) for outboxes in (0, 20, 60, 200, 5000)] == [1.0, 1.0, 3.0, 10.0, 10.0]
