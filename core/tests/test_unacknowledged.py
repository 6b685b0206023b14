"""For how long a lane has had something due of which nothing was acknowledged or answered, in both modes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial

import pytest
from outbox_api import AccessDenied, Deliveries, DriverError, Failure, MarkedRecord, RolledBack
from outbox_core.control.protocol import Orders
from outbox_core.delivery.retries import RetryPolicy
from outbox_core.lanes.group import LaneGroup
from outbox_core.lanes.lane import Threads
from outbox_core.lanes.restarts import Restarts
from outbox_core.lanes.telemetry import Telemetry
from outbox_core.settings import Failures

RECORD = MarkedRecord(1, "topic", "k", "value")
PASSING, POISON = Failure(RECORD, "timed out", True), Failure(RECORD, "too large", False)
AWAY = DriverError("no route to host", retryable=True)


@pytest.fixture
def telemetry():
    return Telemetry(0, 1.0, 0.0)


def test_heartbeats_say_what_the_broker_fails_to_acknowledge(telemetry):
    telemetry.failed_to_answer(8.0, AWAY, 5.0)  # the database
    assert telemetry.unacknowledged.told(9.0) == {}
    telemetry.sending(10.0, [RECORD])
    assert telemetry.unacknowledged.told(12.0) == {}
    telemetry.reported(18.0, Deliveries(failed=[PASSING]))
    told = {"unanswered": {"seconds": 17.0, "reason": "timed out"}}
    assert telemetry.next_heartbeat(20.0, RetryPolicy(Failures(), lambda: 0.5), {}).items() >= told.items()
    telemetry.marked(21.0, 0, 0)  # its key is parked, or paused
    assert telemetry.unacknowledged.told(22.0) == {}
    telemetry.reported(22.0, Deliveries(failed=[PASSING]))
    telemetry.reported(23.0, Deliveries(delivered=[RECORD]))
    assert telemetry.unacknowledged.told(24.0) == {}


class Clock(Threads):
    """Threads that run at once, on a clock that moves as lanes fail and wait; no thread waits for another."""

    def __init__(self):
        self.now = 100.0

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def lock(self, conditions):
        return nullcontext(), [self] * conditions

    def notify(self):
        """Wakes nobody: no thread waits."""

    def spawn(self, run, name):
        run()

    def fail(self, error, number, control, telemetry):
        """Runs a lane for two seconds; the first to end after ten is the last."""
        self.now += 2
        control.stopped = self.now >= 110
        raise error


class Leader:
    """Notes what groups report."""

    def __init__(self, threads, reported):
        self._threads, self._reported = threads, reported

    def exchange(self, report):
        self._reported.append(report.unacknowledged_seconds)
        return Orders(math.inf)


def seconds(telemetry, now):
    return telemetry.unacknowledged.seconds(now)


def test_it_counts_from_the_first_record_sent_until_one_is_acknowledged(telemetry):
    telemetry.sending(10, [])
    assert seconds(telemetry, 20) == 0
    telemetry.sending(10, [RECORD])
    telemetry.sending(15, [RECORD])
    telemetry.reported(18, Deliveries(failed=[PASSING]))
    assert seconds(telemetry, 20) == 10
    telemetry.reported(21, Deliveries(delivered=[RECORD]))
    assert seconds(telemetry, 22) == 0


def test_a_record_that_is_refused_is_an_answer(telemetry):
    telemetry.sending(10, [RECORD])
    telemetry.reported(18, Deliveries(failed=[POISON]))
    assert seconds(telemetry, 20) == 0


def test_a_failure_that_may_pass_is_none(telemetry):
    telemetry.reported(10, Deliveries(delivered=[RECORD], failed=[PASSING]))
    assert seconds(telemetry, 20) == 0, "the broker has answered"
    telemetry.reported(10, Deliveries(failed=[PASSING]))
    assert seconds(telemetry, 20) == 10


def test_a_transaction_counts_from_its_beginning_until_it_is_committed(telemetry):
    telemetry.publishing(10, [RECORD])
    telemetry.published(15, [RECORD], [PASSING], 5.0)
    telemetry.publishing(16, [RECORD])
    assert seconds(telemetry, 20) == 10
    telemetry.published(20, [RECORD], [], 4.0)
    assert seconds(telemetry, 21) == 0


def test_a_lane_that_finds_nothing_to_do_has_nothing_due(telemetry):
    telemetry.sending(10, [RECORD])
    telemetry.metrics.held = 1
    telemetry.marked(20, 0, 0)
    assert seconds(telemetry, 20) == 10, "a key waits to be tried again"
    telemetry.metrics.held = 0
    telemetry.marked(20, 0, 1)
    assert seconds(telemetry, 20) == 10
    telemetry.marked(20, 0, 0)
    assert seconds(telemetry, 20) == 0, "an application has deleted it"


def test_a_lane_that_has_parked_all_it_could_not_deliver_has_heard_nothing_either(telemetry):
    telemetry.sending(10, [RECORD])
    telemetry.reported(18, Deliveries(failed=[PASSING]))
    telemetry.marked(19, 0, 0)
    assert seconds(telemetry, 20) == 10
    telemetry.sending(20, [RECORD])
    telemetry.reported(21, Deliveries(delivered=[RECORD]))
    telemetry.marked(22, 0, 0)
    assert seconds(telemetry, 23) == 0


@pytest.mark.parametrize(("error", "counts"), [(AWAY, True), (AccessDenied("expired"), False)])
def test_a_lane_that_starts_again_and_again_counts_on_unless_it_is_refused(error, counts):
    threads = Clock()
    reported: list[float] = []
    group = LaneGroup(
        1,
        0,
        [0],
        channel=Leader(threads, reported),
        run_lane=partial(threads.fail, error),
        threads=threads,
        interval=1,
        new_restarts=lambda: Restarts(60, lambda: 0.5),
    )
    group.run()
    assert reported[0] == 0
    assert reported[-1] == (threads.now - 100 if counts else 0)


SILENT = DriverError("the server has not answered for 35 s", retryable=True)


@pytest.mark.parametrize(
    ("error", "due"),
    [(SILENT, 35), (RolledBack("statement timeout", retryable=True), 0), (AccessDenied("expired"), 0)],
)
def test_a_database_without_an_answer_counts_from_its_first_statement(telemetry, error, due):
    telemetry.failed_to_answer(100, error, 35)
    telemetry.failed_to_answer(105, error, 5)
    assert seconds(telemetry, 100) == due
    telemetry.marked(106, 0, 0)
    assert seconds(telemetry, 106) == 0, "it answers"
