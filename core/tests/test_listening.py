"""Listeners that fail, hang and return; no harvest waits for any of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import DriverError, HarvestEvent
from outbox_core.events import LeaderAcquired, LeaderFenced, LeaderRevoked, MeterRead
from outbox_core.events.metrics import LaneMetrics, Stats
from outbox_core.harvest import listening
from outbox_core.harvest.listening import ListenerThread
from outbox_core.leadership.leader import Totals

from .test_harvest import until

Said = Callable[[], list[str]]


class Told:
    """A listener of some events, with errors that it raises first, and a gate that it waits for."""

    def __init__(self) -> None:
        self.events = ["LeaderAcquired", "MeterRead", "LeaderRevoked"]
        self.errors: list[BaseException] = []
        self.told: list[HarvestEvent] = []
        self.gate = Event()
        self.gate.set()

    def handle(self, happened: HarvestEvent) -> None:
        assert self.gate.wait(60)
        if self.errors:
            raise self.errors.pop(0)
        self.told.append(happened)

    @property
    def names(self) -> list[str]:
        return [each.event for each in self.told]


class Sums(Totals):
    """Totals that a test sets."""

    purged = 0

    def metrics(self) -> LaneMetrics:
        return LaneMetrics(purged=self.purged)


@dataclass(frozen=True)
class Chosen:
    """Stands for the choice of a listener."""

    made: Any
    driver: str = "told"

    def create(self) -> Any:
        return self.made


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PAUSE_SECONDS", 0.01)


@pytest.fixture
def said(logged: Callable[[str], list[logging.LogRecord]]) -> Said:
    """The lines of the log."""
    return lambda: [each.getMessage() for each in logged("outbox.listener")]


def thread(listener: Told, totals: Totals | None = None) -> ListenerThread:
    chosen: Any = Chosen(listener)
    return ListenerThread(chosen, "orders", totals or Totals())


def acquired() -> LeaderAcquired:
    return LeaderAcquired(uuid4(), 7)


def read(purged: int = 1) -> MeterRead:
    return MeterRead(Stats(1.0, 1.0, LaneMetrics(purged=purged)))


def test_a_listener_is_told_what_it_wants_to_know_with_the_records_of_this_leadership() -> None:
    listener, totals = Told(), Sums()
    listens = thread(listener, totals)
    for purged, event in (
        (0, acquired()),
        (5, LeaderFenced("lost")),
        (6, acquired()),
        (9, LeaderRevoked("x")),
    ):
        totals.purged = purged
        listens.notify(event)
    until(lambda: len(listener.told) == 3)
    listens.close()
    assert listener.names == ["LeaderAcquired", "LeaderAcquired", "LeaderRevoked"]
    assert [each.purged for each in listener.told] == [0, 0, 3]
    assert listener.told[-1].fields == {"error": "x"}
    assert {each.outbox for each in listener.told} == {"orders"}
    assert not listens._thread.is_alive()


def test_an_event_is_tried_again_in_its_order_and_the_log_says_once_that_it_fails(
    said: Said,
) -> None:
    listener = Told()
    listener.errors = [DriverError("away", retryable=True) for _ in range(3)]
    listens = thread(listener)
    for event in (acquired(), read(), LeaderRevoked()):
        listens.notify(event)
    until(lambda: len(listener.told) == 3)
    listens.close()
    assert listener.names == ["LeaderAcquired", "MeterRead", "LeaderRevoked"]
    assert said() == [
        "listener 'told' does not take events: away",
        "listener 'told' takes events; 0 events were dropped",
    ]


@pytest.mark.parametrize("error", [DriverError("refused", retryable=False), SystemExit(), KeyError("x")])
def test_an_event_that_is_refused_is_dropped_and_the_next_is_told(error: BaseException, said: Said) -> None:
    listener = Told()
    listener.errors = [error]
    listens = thread(listener)
    listens.notify(acquired())
    listens.notify(read())
    until(lambda: len(said()) == 2)
    listens.close()
    assert listener.names == ["MeterRead"]
    assert said()[-1] == "listener 'told' takes events; 1 events were dropped"


def test_nothing_waits_for_a_listener_that_hangs_and_what_is_dropped_is_counted(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr(listening, "MOST_WAITING", 3)
    monkeypatch.setattr(listening, "END_SECONDS", 0.01)
    listener = Told()
    listener.gate.clear()
    listens = thread(listener)
    for _ in range(10):
        listens.notify(read())  # returns, or the test does not end
    listens.close()
    listens.close()
    listener.gate.set()
    until(lambda: not listens._thread.is_alive())
    assert said() == ["listener 'told' has not taken 10 events at the end"]


def test_without_events_no_thread_is_started() -> None:
    listens = thread(Told())
    listens.notify(LeaderFenced("lost"))  # of which it does not want to know
    listens.close()
    assert listens._thread.ident is None


def test_events_of_two_threads_are_all_told() -> None:
    listener = Told()
    listens = thread(listener)

    def tell() -> None:
        for _ in range(100):
            listens.notify(read())

    threads = [Thread(target=tell) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    until(lambda: len(listener.told) == 200)
    listens.close()
