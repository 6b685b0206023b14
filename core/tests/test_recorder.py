"""The recorder of histories: outboxes that come and go, databases that fail and hang."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from outbox_api import Backlog, DriverError, Parked
from outbox_console.recorder import Recorder
from outbox_core.config import parse
from outbox_core.monitoring.figures import RunningOutbox
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.settings import HarvestSettings
from outbox_core.status.snapshot import Snapshot

from .test_http import Harvest

SNAPSHOT = Snapshot("orders", Backlog(3, exact=True, oldest=1.5), Parked(0, None), [], 15.0)


@dataclass
class Databases:
    """The outboxes by their names: what a look at each returns, or the error that it raises."""

    states: dict[str, Snapshot | Exception] = field(default_factory=dict)
    hanging: dict[str, threading.Event] = field(default_factory=dict)
    looks: int = 0

    def observe(self) -> list[RunningOutbox]:
        parsed = parse("harvest: {engine: inline}").harvest
        return [RunningOutbox(replace(parsed, label=name), Harvest()) for name in list(self.states)]

    @contextmanager
    def view(self) -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        def look(settings: HarvestSettings) -> Snapshot:
            if (hanging := self.hanging.get(settings.title)) is not None:
                assert hanging.wait(60)
            state = self.states[settings.title]
            self.looks += 1
            if isinstance(state, Exception):
                raise state
            return state

        yield look


@pytest.fixture(autouse=True)
def _fresh_looks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("outbox_core.monitoring.polls.SHARED_SECONDS", 0.0)
    monkeypatch.setattr("outbox_core.monitoring.polls.REST_SECONDS", 1.0)


@pytest.fixture
def databases() -> Iterator[Databases]:
    made = Databases({"orders": SNAPSHOT})
    yield made
    for event in made.hanging.values():
        event.set()


@pytest.fixture
def recorder(databases: Databases) -> Iterator[Recorder]:
    # A busy machine looks at memory within the interval: what takes longer is told as no answer.
    with Recorder(databases.observe, StatusPolls(databases.view), 1.0) as made:
        yield made


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def codes(recorder: Recorder, title: str) -> list[str]:
    return [str(each.code) for each in recorder.history(title).events()]


def test_changes_are_recorded(recorder: Recorder, databases: Databases):
    until(lambda: any(point.known for point in recorder.history("orders").points()))
    point = next(point for point in recorder.history("orders").points() if point.known)
    assert (point.records, point.oldest, point.rate) == (3, 1.5, 0.0)
    databases.states["orders"] = replace(SNAPSHOT, parked=Parked(2, 1.0))
    until(lambda: "keys-parked" in codes(recorder, "orders"))


def test_a_database_that_fails_is_told_once(recorder: Recorder, databases: Databases):
    until(lambda: any(point.known for point in recorder.history("orders").points()))
    databases.states["orders"] = DriverError("connection refused", retryable=True)
    until(lambda: codes(recorder, "orders")[-1:] == ["database-away"])
    looks = databases.looks
    until(lambda: databases.looks >= looks + 2)  # of which the first has been recorded
    databases.states["orders"] = SNAPSHOT
    until(lambda: codes(recorder, "orders")[-2:] == ["database-away", "database-back"])
    assert "connection refused" in recorder.history("orders").events()[-2].text


def test_outboxes_appear_and_vanish(recorder: Recorder, databases: Databases):
    until(lambda: recorder.history("orders").points())
    assert recorder.history("bills").points() == ()
    databases.states["bills"] = replace(SNAPSHOT, outbox="bills")
    until(lambda: recorder.history("bills").points())
    del databases.states["orders"]
    until(lambda: not recorder.history("orders").points())
    assert recorder.history("bills").points()


def test_a_database_that_hangs_delays_nobody_else(recorder: Recorder, databases: Databases):
    until(lambda: recorder.history("orders").points())
    databases.hanging["orders"] = threading.Event()
    databases.states["bills"] = SNAPSHOT
    until(lambda: codes(recorder, "orders")[-1:] == ["database-away"])
    assert "no answer for" in recorder.history("orders").events()[-1].text
    databases.states["bills"] = replace(SNAPSHOT, parked=Parked(2, 1.0))
    until(lambda: "keys-parked" in codes(recorder, "bills"))
    databases.hanging.pop("orders").set()
    until(lambda: codes(recorder, "orders")[-2:] == ["database-away", "database-back"])


def test_an_outbox_that_vanishes_while_it_hangs(recorder: Recorder, databases: Databases):
    hanging = databases.hanging["orders"] = threading.Event()
    until(lambda: codes(recorder, "orders")[-1:] == ["database-away"])
    state = databases.states.pop("orders")
    until(lambda: not recorder.history("orders").points())
    databases.states["bills"] = state
    databases.states["orders"] = state
    hanging.set()
    del databases.hanging["orders"]
    until(lambda: any(point.known for point in recorder.history("orders").points()))
    assert any(point.known for point in recorder.history("bills").points())


def test_it_ends_at_once_though_a_database_hangs(databases: Databases):
    databases.hanging["orders"] = threading.Event()
    with Recorder(databases.observe, StatusPolls(databases.view), 3600.0) as recorder:
        until(lambda: recorder._asked)
        began = time.monotonic()
    assert time.monotonic() - began < 50  # and not as long as it hangs
    assert not recorder._thread.is_alive()


def test_a_state_that_cannot_be_recorded_ends_no_other_history(
    recorder: Recorder, databases: Databases, caplog: pytest.LogCaptureFixture
):
    databases.states["odd"] = replace(SNAPSHOT, backlog=None)  # type: ignore[arg-type]
    until(lambda: "outbox 'odd' cannot be recorded" in caplog.text)
    databases.states["orders"] = replace(SNAPSHOT, parked=Parked(2, 1.0))
    until(lambda: "keys-parked" in codes(recorder, "orders"))
