"""When a Spark application is given up, and that nobody waits for one that does not answer."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from outbox_api import EngineLost, Needs, OutboxError
from outbox_spark import engine as engines
from outbox_spark import watchdog, workers
from outbox_spark.engine import SparkEngine
from outbox_spark.options import SparkOptions
from outbox_spark.watchdog import MAX_LOOKS, Answer, Judge, Watchdog
from py4j.protocol import Py4JError

GOOD = Answer(stopped=False, slots=2)
NO_SLOTS = Answer(stopped=False, slots=0)


def verdicts(*answers: Answer | None) -> list[str]:
    judge = Judge()
    return [judge.look(answer) for answer in answers]


def test_an_application_that_answers_is_kept():
    assert not any(verdicts(*[GOOD, None, NO_SLOTS, None] * 3 * MAX_LOOKS))


def test_one_that_does_not_answer_for_long_is_given_up():
    assert not any(verdicts(*[None] * (MAX_LOOKS - 1), GOOD, *[None] * (MAX_LOOKS - 1)))
    assert "has not answered for 10 s" in verdicts(*[None] * MAX_LOOKS)[-1]


def test_one_that_has_stopped_is_given_up_at_once():
    assert verdicts(GOOD, Answer(stopped=True, slots=0)) == ["", "it has been stopped"]


def test_one_without_any_slot_is_given_up_unless_its_cluster_has_not_offered_one_yet():
    assert not any(verdicts(*[NO_SLOTS] * 10 * MAX_LOOKS))
    assert not any(verdicts(GOOD, *[NO_SLOTS] * (MAX_LOOKS - 1), GOOD, *[NO_SLOTS] * (MAX_LOOKS - 1)))
    assert "no task slot for 10 s" in verdicts(GOOD, *[NO_SLOTS] * MAX_LOOKS)[-1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.02)


@pytest.mark.usefixtures("quick")
def test_an_answer_that_never_comes_is_not_waited_for():
    reasons: list[str] = []
    asked, given_up, resumed = Event(), Event(), Event()

    def ask() -> Answer:
        asked.set()
        resumed.wait(60)
        return GOOD

    def give_up(reason: str) -> None:
        reasons.append(reason)
        given_up.set()

    Watchdog(ask, give_up)
    assert asked.wait(60)
    assert given_up.wait(60)
    resumed.set()
    assert len(reasons) == 1


@pytest.mark.usefixtures("quick")
def test_it_asks_again_after_any_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watchdog, "MAX_LOOKS", 10_000)  # however late a busy machine asks
    given_up, all_asked, asked = Event(), Event(), iter(range(5 * MAX_LOOKS))

    def ask() -> Answer:
        number = next(asked, None)
        if number == 0:
            raise AttributeError("_jsc")
        if number is None:
            all_asked.set()
        return GOOD

    watched = Watchdog(ask, lambda _: given_up.set())
    assert all_asked.wait(60)
    watched.end()
    assert not given_up.is_set()


@pytest.mark.usefixtures("quick")
def test_a_call_that_fails_is_no_answer():
    given_up = Event()

    def ask() -> Answer:
        raise Py4JError

    Watchdog(ask, lambda _: given_up.set())
    assert given_up.wait(60)


class Application:
    """One that hangs until its JVM is killed."""

    def __init__(self, *, works: bool = False):
        self.alive, self.defect = True, ""
        self.works = works
        self.killed, self.cancelled = Event(), Event()
        self.master, self.context, self.address, self.jvm = "local[3]", self, None, self

    def run(self, *_: object) -> None:
        assert self.killed.wait(60)
        raise Py4JError

    def works_for(self, _: str) -> bool:
        return self.works

    def give_up(self, defect: str) -> None:
        self.alive, self.defect = False, defect
        self.killed.set()

    def gone(self, _: float) -> bool:
        return not self.alive

    @property
    def trouble(self) -> str:
        return self.defect

    def cancelJobGroup(self, _: str) -> None:  # noqa: N802 - PySpark's name
        self.cancelled.set()

    def stop(self) -> None:
        self.killed.set()


NEEDS = Needs("shop", 2)


def task() -> None:
    """Nobody runs it."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine whose applications all hang."""
    monkeypatch.setattr(workers, "WARM_SECONDS", 0.1)
    made: Any = SparkEngine(SparkOptions())
    made.started = []

    def start(_: Needs) -> Any:
        made.started.append(Application(works=not made.started))
        return made.started[-1]

    made._start = start
    return made


def test_workers_that_do_not_get_ready_end_the_application_for_all_and_the_next_gets_another(engine):
    ready, waiting = engine.open("ready", 1, NEEDS), engine.open("waiting", 1, NEEDS)
    ready.check()
    with pytest.raises(OutboxError, match="no worker is ready in time"):
        waiting.warm(task)
    with pytest.raises(EngineLost, match="workers do not get ready"):
        ready.check()
    waiting.close()
    assert len(engine.started) == 1
    engine.open("waiting", 1, NEEDS).check()
    engine.open("ready", 1, NEEDS).check()
    assert len(engine.started) == 2


def test_waiting_for_a_slot_ends_in_time_and_no_other_outbox_hears_of_it(engine):
    ready, waiting = engine.open("ready", 1, NEEDS), engine.open("waiting", 1, NEEDS)
    engine.started[0].works = False
    with pytest.raises(OutboxError, match="no worker is ready in time"):
        waiting.warm(task)
    assert engine.started[0].cancelled.wait(60)
    ready.check()
    engine.started[0].give_up("the end of the test")


def test_a_start_is_told_before_it_begins(monkeypatch, caplog):
    caplog.set_level("INFO")
    told: list[str] = []

    def start(*_: object) -> None:
        told.append(caplog.text)
        raise OutboxError("no Java")

    monkeypatch.setattr(engines, "Application", start)
    with pytest.raises(OutboxError, match="no Java"):
        SparkEngine(SparkOptions()).open("shop", 2, NEEDS)
    assert "starting Spark on local[3] …" in told[0]
    assert "has started" not in caplog.text


def test_an_outbox_that_could_not_open_uses_nothing(engine, monkeypatch):
    def fail(*_: object) -> None:
        raise OutboxError("no slots")

    monkeypatch.setattr(engines, "SparkWorkers", fail)
    with pytest.raises(OutboxError, match="no slots"):
        engine.open("shop", 1, NEEDS)
    assert not engine._users
