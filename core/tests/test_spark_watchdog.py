"""When a Spark application is given up, and that nobody waits for one that does not answer."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from outbox_core.config import configure
from outbox_core.engines.spark import engine as engines
from outbox_core.engines.spark import host as hosts
from outbox_core.engines.spark import watchdog
from outbox_core.engines.spark.engine import SparkEngine
from outbox_core.engines.spark.host import Running, SparkHost
from outbox_core.engines.spark.watchdog import MAX_LOOKS, Answer, Judge, Watchdog
from outbox_core.leadership.requests import EngineLost
from outbox_sdk import OutboxError
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
        self.session = self.sparkContext = self

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


class Server:
    """A control channel that nobody uses."""

    address = ("127.0.0.1", 1, b"")

    def close(self) -> None:
        """Does nothing."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A host whose applications all hang."""
    monkeypatch.setattr(engines, "WARM_SECONDS", 0.1)
    settings = configure({"harvest": {"dataSource": "host=db dbname=shop"}}).harvest
    made: Any = SparkHost("shop", settings.engine, groups=2)
    made.started = []

    def start() -> Any:
        made.started.append(Application(works=not made.started))
        made._running = Running(made.started[-1], Server())  # type: ignore[arg-type]
        return made._running

    made._start = start
    return made


def engine_on(host: SparkHost, table: str) -> SparkEngine:
    settings = configure({"harvest": {"dataSource": "host=db dbname=shop", "outboxTable": table}})
    return SparkEngine(settings.harvest, host)


def test_workers_that_do_not_get_ready_end_the_application_for_all_and_the_next_gets_another(host):
    ready, waiting = engine_on(host, "ready"), engine_on(host, "waiting")
    ready._application = host.open("ready").application
    ready.check()
    with pytest.raises(OutboxError, match="no worker is ready in time"):
        waiting.warm()
    with pytest.raises(EngineLost, match="workers do not get ready"):
        ready.check()
    waiting.close()
    assert len(host.started) == 1
    assert host.open("waiting").application is host.started[1]
    assert host.open("ready").application is host.started[1]


def test_waiting_for_a_slot_ends_in_time_and_no_other_outbox_hears_of_it(host):
    ready, waiting = engine_on(host, "ready"), engine_on(host, "waiting")
    ready._application = host.open("ready").application
    host.started[0].works = False
    with pytest.raises(OutboxError, match="no worker is ready in time"):
        waiting.warm()
    assert host.started[0].cancelled.wait(60)
    ready.check()
    host.started[0].give_up("the end of the test")


def test_a_start_is_told_before_it_begins(monkeypatch, caplog):
    caplog.set_level("INFO")
    told: list[str] = []

    def start(*_: object) -> None:
        told.append(caplog.text)
        raise OutboxError("no Java")

    monkeypatch.setattr(hosts, "Application", start)
    settings = configure({"harvest": {"dataSource": "host=db dbname=shop"}}).harvest
    with pytest.raises(OutboxError, match="no Java"):
        SparkHost("shop", settings.engine, groups=2).open("shop")
    assert "starting Spark on local[3] …" in told[0]
    assert "has started" not in caplog.text
