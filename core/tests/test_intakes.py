"""The thread that moves rows of other tables, and what is said of it."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from outbox_api import DriverError, IntakeState, LeadershipLost
from outbox_api.seams.fence import Fence, LaneStatus
from outbox_api.seams.outbox_view import Backlog
from outbox_api.seams.parking import Parked
from outbox_core.control.protocol import LaneControl, Orders, Report, decode, encode
from outbox_core.harvest.intakes import IntakeThread
from outbox_core.leadership.leader import Leadership
from outbox_core.settings import Limits
from outbox_core.status.health import Code, problems
from outbox_core.status.snapshot import Snapshot, as_data, with_intakes


class Intakes:
    """Does as its script says: moves, raises, or has nothing to do at the end of it."""

    def __init__(self, *script):
        self.script = list(script)
        self.calls = []
        self.closed = False
        self.state = IntakeState("events")

    def take(self, token, max_bytes):
        self.calls.append((token, max_bytes))
        step = self.script.pop(0) if self.script else False
        if isinstance(step, Exception):
            raise step
        return step

    def states(self):
        return [self.state]

    def close(self):
        self.closed = True


class Settings:
    limits = Limits(max_mark_backoff=0.01, io_error_backoff=0.01)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def leadership():
    made = Leadership(7, lambda: 3.0)
    yield made
    made.stop()


def started(intakes, leadership):
    thread = IntakeThread(intakes, leadership, cast("Any", Settings()))
    thread.start()
    return thread


def test_it_moves_while_its_leadership_lasts(leadership):
    intakes = Intakes(True, True, False, True)
    thread = started(intakes, leadership)
    until(lambda: len(intakes.calls) > 6)
    assert set(intakes.calls) == {(7, Settings.limits.max_lane_bytes // 2)}
    leadership.drain()
    thread.join()
    assert intakes.closed
    calls = len(intakes.calls)
    time.sleep(0.05)
    assert len(intakes.calls) == calls


def test_it_ends_when_another_process_has_raised_the_fence(leadership):
    intakes = Intakes(LeadershipLost("another leads"))
    started(intakes, leadership)
    until(lambda: intakes.closed)
    assert len(intakes.calls) == 1
    assert not leadership.over, "which is for the lanes to find"


def test_no_error_ends_it(leadership, logged):
    away = DriverError("away", retryable=True)
    intakes = Intakes(away, away, DriverError("no such table", retryable=False), ValueError("odd"))
    started(intakes, leadership)
    until(lambda: len(intakes.calls) > 5)
    said = [line.getMessage() for line in logged("outbox.harvest")]
    assert said == [f"cannot take rows in, trying again: {why}" for why in ("away", "no such table", "odd")]
    assert not intakes.closed


def test_a_row_that_is_held_back_is_logged_once(leadership, caplog):
    caplog.set_level(logging.INFO)
    intakes = Intakes()
    intakes.state = IntakeState("events", held=1, reason="row 5: locked")
    started(intakes, leadership)
    until(lambda: len(intakes.calls) > 3)
    intakes.state = IntakeState("events")
    calls = len(intakes.calls)
    until(lambda: len(intakes.calls) > calls + 3)
    assert [line.message for line in caplog.records if "events" in line.message] == [
        "table events: a row waits, and later ones of its key: row 5: locked",
        "table events: no row is held back any more",
    ]


def test_the_first_lanes_heartbeats_say_it(leadership):
    intakes, control = Intakes(), LaneControl()
    intakes.state = IntakeState("events", moved=3, stuck=1.26, held=1, reason="row 5: locked", held_for=2.0)
    started(intakes, leadership)
    orders = decode(Orders, encode(leadership.exchange(Report(7, 0, "first", {}))))
    control.follow(orders, 0.0)
    assert control.about == {
        "intakes": [
            {
                "table": "events",
                "moved": 3,
                "stuck": 1.3,
                "held": 1,
                "reason": "row 5: locked",
                "held_for": 2.0,
            }
        ]
    }


def snapshot(**told):
    state = {"table": "events", "moved": 0, "stuck": 0.0, "held": 0, "reason": "", "held_for": 0.0, **told}
    now = datetime.now(UTC)
    lane = LaneStatus(Fence(0, 1, 7, 1), "a", now, now, 1.0, {"intakes": [state], "purged_total": 3})
    return Snapshot("outbox", with_intakes(Backlog(5, True, 2.0), [lane]), Parked(0, None), [lane], 15.0)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"stuck": 59.0}, None),
        (
            {"stuck": 120.0, "reason": "no such table"},
            "no row of table events has been taken in for 2m, though some wait: no such table",
        ),
        ({"held": 1, "held_for": 10.0, "stuck": 10.0}, None),
        (
            {"held": 1, "held_for": 90.0, "stuck": 80.0, "reason": "row 5: locked"},
            "in table events 1 key waits, the first for 1m30s: row 5: locked",
        ),
        ({"held": 2000, "held_for": 90.0}, "in table events 2,000 keys wait, the first for 1m30s"),
    ],
)
def test_rows_that_are_not_taken_in_are_a_problem_and_have_an_age(told, said):
    taken = snapshot(**told)
    found = [problem.message for problem in problems(taken) if problem.code is Code.INTAKE]
    assert found == ([said] if said else [])
    assert taken.backlog.oldest == max(2.0, *(told.get(name, 0) for name in ("stuck", "held_for")))
    assert "intakes" not in as_data(taken)["lanes"][0]
