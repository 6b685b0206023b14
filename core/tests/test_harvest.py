"""What a harvest does as leadership comes and goes; database, broker and engine are made of memory."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from functools import partial
from threading import Event, Lock, Thread, current_thread

import pytest
from outbox_api import AccessDenied, DriverError, EngineLost, Fence, LaneStatus, OutboxError, Seam
from outbox_core.control.protocol import Refusal, Report
from outbox_core.events import LeaderAcquired, LeaderFenced, LeaderRevoked
from outbox_core.events.metrics import LaneMetrics
from outbox_core.harvest import Harvest
from outbox_core.leadership.timeouts import Timeouts
from outbox_core.settings import Failures, HarvestSettings, Limits
from outbox_core.text.log_context import HarvesterFilter

from .fakes import FakeDialect, FakePlugin, FakeTable, made


class Table(FakeTable):
    """Whose bumps wait for the gate, and fail with one error after the other."""

    def __init__(self):
        super().__init__()
        self.errors: list[Exception] = []
        self.bumping, self.gate = Event(), Event()
        self.gate.set()

    def bump(self, lanes, holder, expected=None):
        self.bumping.set()
        assert self.gate.wait(30)
        if self.errors:
            raise self.errors.pop(0)
        return super().bump(lanes, holder, expected)


class Dialect(FakeDialect):
    def __init__(self):
        self.table = Table()
        super().__init__(self.table)
        self.errors = self.table.errors


class Elector:
    """Does what the test says; its calls come from the test's thread."""

    def __init__(self):
        self.started = self.stopped = 0
        self.leased = math.inf
        self.leads = False
        self.stopping = Lock()

    def start(self, candidate):
        self.started += 1
        self.candidate = candidate

    def lease(self):
        return self.leased

    def acquire(self):
        self.leads = True
        self.candidate.acquired()

    def stop(self):
        with self.stopping:  # whoever comes second waits for the first
            leads, self.leads = self.leads, False
            if leads:
                self.candidate.revoked()
            self.stopped += 1


class Broker(FakePlugin):
    """Can be away."""

    def __init__(self):
        self.away: DriverError | None = None
        self.asked = 0

    def prepare(self, topics, partitions):
        self.asked += 1
        if self.away is not None:
            raise self.away
        return ()


class Engine:
    """Lanes that end when they are told to."""

    def __init__(self):
        self.terms = []
        self.closed = False
        self.warmed = 0
        self.cold: list[OutboxError] = []
        self.dead: OutboxError | None = None
        self.lost: EngineLost | None = None
        self.hangs = False
        self.cancelled = Event()

    def warm(self):
        if self.cold:
            raise self.cold.pop(0)
        self.warmed += 1
        self.closed = False

    def check(self):
        if (error := self.dead or self.lost) is not None:
            raise error

    def start(self, plan, leadership):
        self.terms.append(leadership)

    def join(self, timeout):
        time.sleep(timeout / 10)
        return self.terms[-1].over and not self.hangs

    def cancel(self):
        self.cancelled.set()

    def close(self):
        self.closed = True
        self.hangs = False
        self.lost = None


@pytest.fixture
def quick():
    """Lanes are soon found silent, and engines are soon given up."""
    return {"stop": 0.1, "cancel": 0.1, "join": 0.1, "silent": 0.2, "start": 0.3}


@pytest.fixture
def hasty():
    """A leader that reaches nothing soon lets another lead."""
    return {"unacknowledged": 0.2, "unacknowledged_again": 0.2, "aside": 0.05, "join": 0.05}


@pytest.fixture
def heard():
    """Lanes are found silent later than a busy machine takes from one report to the next."""
    return {"silent": 3.0, "start": 30.0}


@pytest.fixture
def patient():
    """The seconds for which a leader who is refused tries again, which it has not used up."""
    return 3600.0


@pytest.fixture
def world(monkeypatch, request):
    for name in {"quick", "hasty", "heard", "brief"} & set(request.fixturenames):
        times = request.getfixturevalue(name)
        monkeypatch.setattr("outbox_core.harvest.Timeouts", partial(Timeouts, **times))
    stop_after = request.getfixturevalue("patient") if "patient" in request.fixturenames else 0.3
    dialect, elector, engine = Dialect(), Elector(), Engine()
    events: list[object] = []
    settings = HarvestSettings(
        name="one",
        outbox="outbox",
        dialect=made(Seam.DIALECT, dialect),
        elector=made(Seam.ELECTOR, elector),
        affinity=made(Seam.AFFINITY, FakePlugin()),
        publisher=made(Seam.PUBLISHER, Broker()),
        engine=made(Seam.ENGINE, FakePlugin()),
        limits=Limits(io_error_backoff=0.01, drain_interval=1.0),
        failures=Failures(stop_after=stop_after),
    )
    monkeypatch.setattr("outbox_core.harvest.harvest_actions.LaneRunner", lambda *_: engine)
    harvest = Harvest(settings)
    harvest.set_event_handler(events.append)
    harvest.start()
    yield harvest, dialect, elector, engine, events
    harvest.stop()
    assert engine.closed


def until(condition, timeout=30.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


def lead(elector, engine, terms=1):
    """Elects the harvest, and waits until its lanes have started; ``terms`` times in all."""
    elector.acquire()
    until(lambda: len(engine.terms) >= terms)


def kinds(events):
    return [type(event) for event in events]


def test_a_term_begins_with_a_raised_token_and_ends_with_a_handover(world):
    harvest, dialect, _, engine, events = world
    harvest.acquired()
    until(lambda: engine.terms)
    assert engine.terms[0].token == dialect.table.token == 1
    harvest.revoked()
    assert kinds(events) == [LeaderAcquired, LeaderRevoked]
    assert engine.terms[0].over
    assert not engine.terms[0].stopped, "it drained"
    harvest.acquired()
    until(lambda: len(engine.terms) == 2)
    assert engine.terms[1].token == 2, "each term has a token of its own"


def test_a_harvest_runs_on_the_thread_of_its_caller_until_it_is_stopped(world, monkeypatch):
    first, _, elector, engine, _ = world
    first.stop()
    start, starting = Thread.start, []

    def told(thread):
        starting.append(current_thread())
        start(thread)

    monkeypatch.setattr(Thread, "start", told)
    harvest, own = Harvest(first._settings), current_thread()
    harvest.join()
    running = Thread(target=harvest.run)
    running.start()
    lead(elector, engine)
    assert [each for each in starting if each in {own, running}] == [own], "it is the only thread"
    assert harvest.leads
    harvest.stop()
    assert not harvest._running.locked(), "it has ended"
    running.join(30)
    assert engine.closed


def test_a_harvest_that_is_stopped_between_its_join_and_its_run_does_not_harvest(world):
    first, dialect, elector, _, events = world
    first.stop()
    harvest = Harvest(first._settings)
    harvest.set_event_handler(events.append)
    harvest.join()
    elector.acquire()
    harvest.stop()
    running = Thread(target=harvest.run)
    running.start()
    running.join(30)
    assert not running.is_alive()
    assert not elector.leads
    assert dialect.table.token == 0
    assert kinds(events) == [LeaderRevoked], "which may come by itself"


def test_lines_about_an_error_carry_the_name_of_the_harvester(world, caplog):
    harvest, dialect, _, engine, _ = world
    caplog.handler.addFilter(HarvesterFilter())
    dialect.errors.append(DriverError("away", retryable=True))
    harvest.acquired()
    until(lambda: engine.terms)
    assert [line.harvester for line in caplog.records if "cannot begin to lead" in line.message] == ["one"]


def test_a_fenced_leader_stops_at_once_and_can_lead_again(world):
    harvest, _, _, engine, events = world
    harvest.acquired()
    until(lambda: engine.terms)
    harvest.fenced()
    assert engine.terms[0].stopped
    until(lambda: kinds(events) == [LeaderAcquired, LeaderFenced])
    harvest.acquired()
    until(lambda: len(engine.terms) == 2)


def test_leadership_that_goes_while_the_fence_is_raised_starts_no_lanes(world):
    harvest, dialect, _, engine, events = world
    dialect.errors += [DriverError("away", retryable=True)] * 10_000  # longer than until it is fenced
    harvest.acquired()
    harvest.fenced()
    time.sleep(0.2)
    assert engine.terms == []
    assert events == []


def test_a_stop_while_the_fence_is_raised_makes_no_leader(world):
    harvest, dialect, _, engine, events = world
    dialect.table.gate.clear()
    harvest.acquired()
    assert dialect.table.bumping.wait(30)
    stopping = Thread(target=harvest.stop)
    stopping.start()
    until(lambda: harvest._candidacy.ending)
    dialect.table.gate.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert engine.terms == []
    assert events == []


def test_a_handover_while_the_fence_is_raised_waits_for_that(world):
    harvest, dialect, _, engine, _ = world
    dialect.table.gate.clear()
    harvest.acquired()
    assert dialect.table.bumping.wait(30)
    revoking = Thread(target=harvest.revoked)
    revoking.start()
    until(lambda: not harvest._candidacy.elected)
    time.sleep(0.05)
    assert revoking.is_alive(), "a successor must not raise the fence before this process does"
    dialect.table.gate.set()
    revoking.join(30)
    assert not revoking.is_alive()
    assert engine.terms == []


def test_a_process_whose_lease_is_over_does_not_raise_the_fence(world):
    harvest, dialect, elector, engine, _ = world
    elector.leased = 0.0
    harvest.acquired()
    time.sleep(0.2)
    assert dialect.table.token == 0
    elector.leased = 5.0
    until(lambda: engine.terms)


def test_a_leader_who_is_refused_for_a_while_leads_nevertheless(world, patient):
    harvest, dialect, _, engine, _ = world
    dialect.errors += [AccessDenied("password expired")] * 3
    harvest.acquired()
    until(lambda: engine.terms)


def test_a_leader_whose_lanes_are_refused_for_too_long_ends_and_leaves_the_election(world):
    harvest, _, elector, engine, _ = world
    harvest.acquired()
    until(lambda: engine.terms)
    leadership = engine.terms[0]
    leadership.exchange(
        Report(
            leadership.token,
            0,
            "run",
            {},
            refusal=Refusal("no DELETE on outbox", retryable=False, denied=True),
        )
    )
    with pytest.raises(AccessDenied, match="no DELETE"):
        until(lambda: harvest.wait(0.01))
    until(lambda: elector.stopped)


def test_a_leader_who_may_not_raise_the_fence_ends_and_leaves_the_election(world):
    harvest, dialect, elector, _, _ = world
    dialect.errors += [AccessDenied("no UPDATE on outbox_fence")] * 1000
    harvest.acquired()
    with pytest.raises(AccessDenied):
        until(lambda: harvest.wait(0.01))
    until(lambda: elector.stopped)


def test_a_handler_that_raises_ends_the_harvest_and_leaves_the_election(world):
    harvest, _, elector, _, _ = world

    def handler(event):
        raise ZeroDivisionError

    harvest.set_event_handler(handler)
    harvest.acquired()
    with pytest.raises(ZeroDivisionError):
        until(lambda: harvest.wait(0.01))
    until(lambda: elector.stopped)


def test_a_handler_that_calls_stop_is_told_not_to(world):
    harvest, _, _, _, _ = world
    harvest.set_event_handler(lambda event: harvest.stop())
    harvest.acquired()
    with pytest.raises(RuntimeError, match="from another thread"):
        until(lambda: harvest.wait(0.01))


def test_what_ends_an_elector_ends_the_harvest(world):
    harvest, _, _, engine, _ = world
    harvest.acquired()
    until(lambda: engine.terms)
    Thread(target=harvest.failed, args=(DriverError("refused", retryable=False),)).start()
    with pytest.raises(DriverError, match="refused"):
        until(lambda: harvest.wait(0.01))
    assert engine.terms[0].stopped


def test_a_leader_without_lanes_gives_up_its_office_and_stands_by_anew(world, quick):
    _, _, elector, engine, events = world
    lead(elector, engine)
    leadership = engine.terms[0]
    leadership.expect([0, 1])
    leadership.exchange(Report(leadership.token, 0, "run", {}))
    until(lambda: elector.stopped)
    assert kinds(events) == [LeaderAcquired, LeaderRevoked]
    until(lambda: elector.started == 2)
    assert engine.warmed == 2, "whatever its lanes were lost by, its engine is a new one"
    assert len(engine.terms) == 1, "it does not take back what it has just given up"
    lead(elector, engine, 2)


def test_a_leader_whose_lanes_are_heard_keeps_its_office(world, heard):
    _, _, elector, engine, _ = world
    lead(elector, engine)
    leadership = engine.terms[0]
    leadership.expect([0])
    heard_until = time.monotonic() + heard["silent"] + 0.5
    while time.monotonic() < heard_until:
        leadership.exchange(Report(leadership.token, 0, "run", {}))
        time.sleep(0.01)
    assert not leadership.over
    assert not elector.stopped


def report(leadership, seconds, purged=0):
    metrics = {0: LaneMetrics(purged=purged)}
    leadership.exchange(Report(leadership.token, 0, "run", metrics, unacknowledged_seconds=seconds))


def lead_without_a_broker(harvest, elector, engine):
    lead(elector, engine)
    harvest._actions._publisher.away = DriverError("no broker answers", retryable=True)
    report(engine.terms[0], 0.5)


def test_a_leader_of_which_nothing_is_acknowledged_stands_aside_until_the_broker_answers(world, hasty):
    harvest, _, elector, engine, events = world
    lead_without_a_broker(harvest, elector, engine)
    until(lambda: elector.stopped)
    assert kinds(events) == [LeaderAcquired, LeaderRevoked]
    asked = harvest._actions._publisher.asked
    until(lambda: harvest._actions._publisher.asked > asked + 3)
    assert elector.started == 1, "it does not stand by for what it could not do"
    assert not harvest.takes_part
    harvest._actions._publisher.away = None
    until(lambda: elector.started == 2)
    assert harvest.takes_part
    lead(elector, engine, 2)


def test_a_harvest_that_is_told_to_stop_while_no_broker_answers_ends(world, hasty):
    harvest, _, elector, engine, _ = world
    lead_without_a_broker(harvest, elector, engine)
    asked = harvest._actions._publisher.asked
    until(lambda: harvest._actions._publisher.asked > asked + 1)
    harvest.stop()
    assert elector.started == 1
    assert harvest.wait(0)


def test_a_leader_that_cannot_begin_lets_another_try(world, hasty):
    _, dialect, elector, engine, _ = world
    dialect.errors += [DriverError("no route to host", retryable=True)] * 1000
    elector.acquire()
    until(lambda: elector.started == 2)
    assert not engine.terms
    dialect.errors.clear()
    lead(elector, engine)


@pytest.fixture
def brief():
    """Who takes the fence from another waits briefly."""
    return {"yielded": 1.0}


def test_a_leader_of_another_election_is_named_and_let_lead_for_longer_each_time(world, brief, caplog):
    _, dialect, elector, engine, _ = world
    about = {"election": "neli-kafka 'theirs'"}
    dialect.table.held = [LaneStatus(Fence(0, 1, 99, 1), "other", datetime.now(UTC), None, 0.0, about)]
    elector.acquire()
    pauses = []
    for number in range(4):
        until(lambda number=number: len(engine.terms) == number + 1)
        began = time.monotonic()
        engine.terms[number].fence("lane 0 of 1 is no longer held by token 1")
        until(lambda number=number: len(engine.terms) == number + 2)
        pauses.append(time.monotonic() - began)
    assert pauses[-1] > pauses[0]
    told = [record.getMessage() for record in caplog.records if "election" in record.getMessage()]
    assert len(told) == 4
    assert "'other' leads this outbox by the election neli-kafka 'theirs', and not by" in told[0]
    assert elector.leads, "its own election names it still"


def test_who_is_not_named_any_more_waits_for_nothing(world):
    harvest, _, elector, engine, _ = world
    lead(elector, engine)
    elector.leads = False
    harvest.fenced()
    lead(elector, engine, 2)


def test_lanes_that_cannot_be_ended_keep_nobody_from_leading(world, quick):
    harvest, _, elector, engine, _ = world
    lead(elector, engine)
    engine.hangs = True
    elector.leads = False
    harvest.fenced()
    assert engine.cancelled.wait(30)
    until(lambda: elector.started == 2)
    assert engine.warmed == 2
    lead(elector, engine, 2)
    assert engine.terms[1].token == 2


def test_an_engine_that_cannot_be_had_again_is_tried_until_it_can(world, quick):
    _, _, elector, engine, _ = world
    engine.cold = [OutboxError("2 lane groups need as many task slots")] * 3
    lead(elector, engine)
    engine.terms[0].expect([0])
    until(lambda: elector.started == 2)
    assert engine.cold == []


def test_a_harvest_that_is_told_to_stop_while_it_stands_by_anew_joins_no_election(world, quick):
    harvest, _, elector, engine, _ = world
    engine.cold = [OutboxError("no slots")] * 10_000
    lead(elector, engine)
    engine.terms[0].expect([0])
    until(lambda: len(engine.cold) < 10_000)
    harvest.stop()
    assert elector.started == 1
    assert harvest.wait(0)


def test_an_engine_that_dies_during_a_term_ends_the_harvest(world):
    harvest, _, elector, engine, events = world
    lead(elector, engine)
    engine.dead = OutboxError("Spark's JVM has died")
    with pytest.raises(OutboxError, match="JVM"):
        until(lambda: harvest.wait(0.01))
    assert engine.terms[0].stopped
    until(lambda: elector.stopped)
    assert LeaderRevoked("Spark's JVM has died") in events


def test_a_standby_whose_engine_is_lost_gets_a_new_one_and_stands_by_anew(world, quick):
    harvest, _, elector, engine, events = world
    engine.lost = EngineLost("it does not answer")
    until(lambda: elector.started == 2)
    assert engine.warmed == 2
    assert not events
    lead(elector, engine)
    assert not harvest.wait(0)


def test_a_leader_whose_engine_is_lost_leaves_the_election_and_gets_a_new_one(world, quick):
    harvest, _, elector, engine, events = world
    lead(elector, engine)
    engine.lost = EngineLost("it does not answer")
    until(lambda: elector.started == 2)
    assert engine.terms[0].stopped
    assert engine.warmed == 2
    assert kinds(events) == [LeaderAcquired, LeaderRevoked]
    lead(elector, engine, 2)
    assert not harvest.wait(0)
