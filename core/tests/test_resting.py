"""Outboxes that rest: which of them begin, wake and rest, and whose heartbeats are written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, current_thread
from time import monotonic, sleep

import pytest
from outbox_api import LaneStatus, Record, Stasher
from outbox_core.config import configure
from outbox_core.harvest import resting as module
from outbox_core.harvest.resting import RestThread, may_rest
from outbox_core.leadership.leader import Totals
from outbox_core.settings import HarvestSettings
from outbox_core.status.snapshot import OPERATOR

PATIENCE = 60.0


class FakeThread:
    """An outbox's harvest that does nothing; leads as soon as it is awake."""

    def __init__(self, settings: HarvestSettings) -> None:
        self.settings = settings
        self.totals = Totals()
        self.rests = True
        self.wakes = self.naps = 0
        self.most_awake = 0
        self.all: Sequence[FakeThread] = [self]
        self.resting_lanes: Sequence[LaneStatus] = ()
        self.led: int | None = None

    @property
    def leads(self) -> bool:
        return not self.rests

    takes_part = leads

    def wake(self) -> None:
        assert current_thread().name == "resting"
        self.wakes += self.rests
        self.rests, self.resting_lanes = False, ()
        self.most_awake = sum(not each.rests for each in self.all)

    def rest(self) -> None:
        self.naps += not self.rests
        self.rests = True


def until(condition: Callable[[], object]) -> None:
    end = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < end
        sleep(0.005)


def made(folder: Path, count: int, **limits: object) -> list[FakeThread]:
    harvest = {
        "engine": "inline",
        "elector": "lease",
        "dialect": {"driver": "sqlite", "dataSource": str(folder / "outboxes.db")},
        "limits": {"restAfter": "1h", **limits},
    }
    outboxes = {f"o{number}": {"outboxTable": f"box_{number}"} for number in range(count)}
    threads = [FakeThread(each) for each in configure({"harvest": harvest, "outboxes": outboxes}).outboxes]
    for thread in threads:
        thread.all = threads
        thread.settings.dialect.create().create()
    return threads


def stash(thread: FakeThread) -> None:
    with closing(thread.settings.dialect.create().stash_connection()) as connection:
        Stasher(thread.settings.outbox, "sqlite").stash(connection, Record("topic", "key", "value"))
        connection.commit()


@contextmanager
def running(threads: Sequence[FakeThread]) -> Iterator[RestThread]:
    thread = RestThread(threads)  # type: ignore[arg-type]
    try:
        yield thread
    finally:
        thread.stop()
        thread._thread.join(PATIENCE)
        assert not thread._thread.is_alive()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_SECONDS", 0.01), ("AWAKE_LOOK_SECONDS", 0.05), ("LED_SECONDS", 0.05)):
        monkeypatch.setattr(module, name, seconds)


def test_each_begins_once_and_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEGINNERS", 3)
    monkeypatch.setattr(module, "BEGIN_SECONDS", PATIENCE)
    threads = made(tmp_path, 10)
    with running(threads):
        until(lambda: all(thread.wakes for thread in threads))
        until(lambda: sum(thread.rests for thread in threads) >= 7)
        sleep(0.2)
    assert max(thread.most_awake for thread in threads) == 3
    assert [thread.wakes for thread in threads] == [1] * 10
    assert sum(not thread.rests for thread in threads) <= 3, "only the last stay, as nobody waits for them"


def test_one_with_rows_is_woken_and_rests_when_it_is_empty(tmp_path: Path) -> None:
    threads = made(tmp_path, 3, restAfter="200ms")
    with running(threads):
        until(lambda: all(thread.naps == 1 for thread in threads))
        stash(threads[1])
        until(lambda: threads[1].wakes == 2)
        sleep(0.5)
        assert [(thread.wakes, thread.rests) for thread in threads] == [(1, True), (2, False), (1, True)]
        with closing(sqlite3.connect(tmp_path / "outboxes.db")) as connection:
            connection.execute("DELETE FROM box_1")
            connection.commit()
        until(lambda: threads[1].rests)


def test_one_that_is_woken_often_rests_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [thread] = made(tmp_path, 1, restAfter="100ms")
    with running([thread]) as resting:
        until(lambda: thread.naps == 1)
        [outbox] = resting._outboxes.values()
        for number, later in enumerate((4, 16, 16, 1)):
            if later == 1:
                monkeypatch.setattr(module, "RARE_SECONDS", 0.0)
            began = monotonic()  # before it can be woken
            stash(thread)
            until(lambda: thread.wakes > thread.naps)
            with closing(sqlite3.connect(tmp_path / "outboxes.db")) as connection:
                connection.execute("DELETE FROM box_0")
                connection.commit()
            until(lambda: thread.naps == thread.wakes == number + 2)  # noqa: B023 - waited for here
            assert outbox.later == later
            assert monotonic() - began > later * 0.1


def test_what_its_lanes_do_keeps_an_outbox_awake_that_looks_empty(tmp_path: Path) -> None:
    [thread] = made(tmp_path, 1, restAfter="300ms")

    class Working(Totals):
        count = 0

        def metrics(self):
            self.count += 1
            return replace(super().metrics(), marked=self.count)

    thread.totals = Working()
    with running([thread]):
        until(lambda: thread.wakes == 1)
        sleep(1.0)
        assert thread.naps == 0
        thread.totals = Totals()
        until(lambda: thread.naps == 1)


def test_one_that_cannot_be_looked_at_is_woken_and_no_other(tmp_path: Path) -> None:
    threads = made(tmp_path, 4, restAfter="200ms")
    with running(threads):
        until(lambda: all(thread.naps == 1 for thread in threads))
        with closing(sqlite3.connect(tmp_path / "outboxes.db")) as connection:
            connection.execute("DROP TABLE box_2")
        until(lambda: threads[2].wakes == 2)
        stash(threads[3])
        until(lambda: threads[3].wakes == 2)
        assert [thread.wakes for thread in threads[:2]] == [1, 1]


def test_a_database_that_is_away_wakes_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = made(tmp_path, 3, restAfter="200ms")
    with running(threads) as thread:
        until(lambda: all(each.naps == 1 for each in threads))
        file, learn, gone = tmp_path / "outboxes.db", thread._learn, Event()

        def lose(now: float) -> None:
            if not gone.is_set():
                thread._close()
                file.rename(tmp_path / "away.db")
                for rest in (*tmp_path.glob("outboxes.db-*"),):
                    rest.unlink()
                gone.set()
            learn(now)

        # On its own thread: it would open the file again between the two.
        monkeypatch.setattr(thread, "_learn", lose)
        until(lambda: "cannot look at outboxes that rest" in caplog.text)
        (tmp_path / "away.db").rename(file)
        stash(threads[0])
        until(lambda: threads[0].wakes == 2)
    assert [each.wakes for each in threads] == [2, 1, 1]


@pytest.mark.parametrize(("holder", "wakes"), [("another process", 1), (f"{OPERATOR}somebody", 2)])
def test_lanes_that_rest_are_heard_until_the_fence_is_raised(tmp_path: Path, holder: str, wakes: int) -> None:
    [thread] = made(tmp_path, 1, restAfter="200ms", minMetricsInterval="1s")
    dialect = thread.settings.dialect.create()
    with closing(dialect.connect()) as table, running([thread]):
        until(lambda: thread.naps == 1)
        lane = table.enter(0, 1, table.bump(1, "this process"))
        table.heartbeat(lane, {"left": True})
        thread.led = lane.token
        until(lambda: table.lane_statuses()[0].metrics.get("resting"))
        assert table.lane_statuses()[0].holder == "this process"
        assert not table.lane_statuses()[0].metrics["left"]
        table.bump(1, holder)
        until(lambda: not thread.resting_lanes)
        until(lambda: thread.wakes == wakes)
        sleep(0.1)
        assert thread.wakes == wakes


def test_lanes_that_rest_leave_with_their_process(tmp_path: Path) -> None:
    [thread] = made(tmp_path, 1, restAfter="200ms")
    with closing(thread.settings.dialect.create().connect()) as table:
        with running([thread]):
            until(lambda: thread.naps == 1)
            thread.led = table.enter(0, 1, table.bump(1, "this process")).token
            until(lambda: thread.resting_lanes)
        assert table.lane_statuses()[0].metrics["left"]


def test_what_another_process_led_begins_when_it_is_gone(tmp_path: Path) -> None:
    threads = made(tmp_path, 2, restAfter="200ms")
    with closing(threads[0].settings.dialect.create().connect()) as table, running(threads) as thread:
        until(lambda: all(each.naps == 1 for each in threads))
        table.enter(0, 1, table.bump(1, "this process"))
        threads[0].resting_lanes = table.lane_statuses()
        thread.begin_anew()
        until(lambda: threads[1].wakes == 2)
        assert threads[0].wakes == 1


@pytest.mark.parametrize(
    ("changes", "rests"),
    [
        ({}, True),
        ({"elector": "static"}, True),
        ({"elector": "neli-kafka"}, False),
        ({"engine": "spark"}, False),
        ({"limits": {"restAfter": "0"}}, False),
        ({"intake": {"table": "events", "layout": "debezium"}}, False),
    ],
)
def test_only_what_begins_quickly_may_rest(tmp_path: Path, changes: dict[str, object], rests: bool) -> None:
    dialect = {
        "driver": "sqlite",
        "dataSource": str(tmp_path / "x.db"),
        **({"intake": changes.pop("intake")} if "intake" in changes else {}),
    }
    harvest = {"engine": "inline", "elector": "lease", "dialect": dialect, **changes}
    assert may_rest(configure({"harvest": harvest, "outboxes": {"one": None}}).outboxes[0]) is rests
