"""One process of several outboxes: which tables it harvests, when it counts, and its stop."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event as Flag
from time import monotonic, sleep
from typing import ClassVar

import pytest
from outbox_api import DriverError
from outbox_core.config import configure
from outbox_core.harvest import harvester as module
from outbox_core.harvest.harvester import Harvester
from outbox_core.settings import HarvestSettings, Settings
from outbox_core.status import members as members_module
from outbox_core.status.members import group_of
from outbox_core.status.snapshot import Snapshot

PATIENCE = 60.0


class FakeThread:
    """An outbox's thread that harvests nothing."""

    made: ClassVar[list[FakeThread]] = []
    failing_wakes: ClassVar[list[None]] = []

    def __init__(self, settings: HarvestSettings, *_: object) -> None:
        self.settings = settings
        self.joined = self.leads = self.may_rest = self.rests = self.stopped = False
        self.woken = 0
        self.made.append(self)

    def wake(self) -> None:
        self.woken += 1
        if self.failing_wakes:
            self.failing_wakes.pop()
            raise RuntimeError("can't start new thread")

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeThread]]:
    monkeypatch.setattr(module, "HarvestThread", FakeThread)
    monkeypatch.setattr(module, "NOTE_SECONDS", 0.02)
    FakeThread.made.clear()
    yield FakeThread.made
    FakeThread.made.clear()


def configured(folder: Path, elector: str = "lease", **outboxes: str) -> Settings:
    source = str(folder / "outboxes.db")
    harvest = {"engine": "inline", "dialect": {"driver": "sqlite", "dataSource": source}, "elector": elector}
    return configure(
        {"harvest": harvest, "outboxes": {label: {"outboxTable": table} for label, table in outboxes.items()}}
    )


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end
        sleep(0.01)


def test_a_table_is_harvested_once_whatever_names_it(tmp_path: Path, threads: list[FakeThread]) -> None:
    for settings in configured(tmp_path, a="box_1", b="box_2", c="bin_3").outboxes:
        settings.dialect.create().create()
    harvester = Harvester(configured(tmp_path, one="box_1", boxes="box_*", rest="b*"), lambda *_: None)
    harvester.start()
    wait_until(lambda: len(threads) >= 3)
    harvester.stop()
    assert [thread.settings.title for thread in threads] == ["one", "boxes/box_2", "rest/bin_3"]


def test_a_search_that_hangs_keeps_no_outbox_from_being_handed_over(
    tmp_path: Path, threads: list[FakeThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    searching, released = Flag(), Flag()

    def hang(*_: object) -> list[HarvestSettings]:
        searching.set()
        released.wait(60)
        return [*configured(tmp_path, late="box_9").outboxes]

    monkeypatch.setattr(module, "matching", hang)
    monkeypatch.setattr(module, "_END_SECONDS", 0.0)
    harvester = Harvester(configured(tmp_path, one="box_1", boxes="box_*"), lambda *_: None)
    harvester.start()
    assert searching.wait(PATIENCE)
    harvester.stop()
    released.set()
    harvester._search_thread.join(PATIENCE)
    assert [(thread.settings.title, thread.stopped) for thread in threads] == [("one", True)]


def test_a_process_counts_only_once_it_takes_part_in_an_election(
    tmp_path: Path, threads: list[FakeThread]
) -> None:
    settings = configured(tmp_path, one="box_1", two="box_2")
    for outbox in settings.outboxes:
        outbox.dialect.create().create()
    with closing(settings.outboxes[0].dialect.create().members()) as members:

        def present() -> int:
            counts = members.note(group_of(settings), "observer", 0, 60.0)
            return len(counts) - 1

        harvester = Harvester(settings, lambda *_: None)
        harvester.start()
        wait_until(lambda: len(threads) == 2)
        sleep(0.2)
        assert present() == 0
        threads[0].joined = True
        wait_until(lambda: present() == 1)
        threads[0].joined = False
        wait_until(lambda: present() == 0)
        harvester.stop()


def test_a_process_is_seen_beside_every_fence(
    tmp_path: Path, threads: list[FakeThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "NOTE_SECONDS", 0.02)
    monkeypatch.setattr(members_module, "SEEN_SECONDS", 0.1)
    monkeypatch.setattr(members_module, "MOST", 1000.0)
    source = str(tmp_path / "outboxes.db")
    outboxes = {
        f"o{number}": {
            "outboxTable": f"box_{number}",
            "dialect": {"driver": "sqlite", "dataSource": source, "fenceTable": f"fence_{number // 2}"},
        }
        for number in range(8)
    }
    settings = configure({"harvest": {"engine": "inline", "elector": "lease"}, "outboxes": outboxes})
    for outbox in settings.outboxes[:7]:  # the last has no table
        outbox.dialect.create().create()
    harvesters = [Harvester(settings, lambda *_: None) for _ in range(2)]
    for harvester in harvesters:
        harvester.start()

    def seen(outbox: HarvestSettings) -> list[str]:
        return [each.role for each in Snapshot.of(outbox).processes.known]  # type: ignore[union-attr]

    wait_until(lambda: all(seen(outbox) == ["starting"] * 2 for outbox in settings.outboxes[:7]))
    for thread in threads:
        thread.joined = True
    wait_until(lambda: all(seen(outbox) == ["stands-by"] * 2 for outbox in settings.outboxes[:7]))
    settings.outboxes[7].dialect.create().create()
    wait_until(lambda: seen(settings.outboxes[7]) == ["stands-by"] * 2)  # a late note is missing for a while
    harvesters[0].stop()
    wait_until(lambda: all(len(seen(outbox)) == 1 for outbox in settings.outboxes))
    harvesters[1].stop()


def test_an_outbox_whose_thread_could_not_start_is_woken_again(
    tmp_path: Path, threads: list[FakeThread]
) -> None:
    FakeThread.failing_wakes.append(None)
    harvester = Harvester(configured(tmp_path, one="box_1", two="box_2"), lambda *_: None)
    harvester.start()
    wait_until(lambda: len(threads) == 2 and all(thread.woken for thread in threads))
    harvester.stop()
    assert threads[0].woken > 1


def sees_two(harvester: Harvester) -> bool:
    return any(len(each.counts) == 2 for each in list(harvester._members.values()))


def test_processes_that_share_a_name_count_as_many(tmp_path: Path, threads: list[FakeThread]) -> None:
    settings = configured(tmp_path, one="box_1")
    assert settings.process.name
    settings.outboxes[0].dialect.create().create()
    harvesters = [Harvester(settings, lambda *_: None) for _ in range(2)]
    for harvester in harvesters:
        harvester.start()
    wait_until(lambda: len(threads) == 2)
    for thread in threads:
        thread.joined = True
    wait_until(lambda: all(map(sees_two, harvesters)), seconds=PATIENCE)
    for harvester in harvesters:
        harvester.stop()


@pytest.mark.parametrize(("elector", "counted"), [("lease", 2), ("static", 0)])
def test_what_is_not_elected_is_not_counted(
    elector: str, counted: int, tmp_path: Path, threads: list[FakeThread]
) -> None:
    settings = configured(tmp_path, elector, one="box_1", two="box_2")
    for outbox in settings.outboxes:
        outbox.dialect.create().create()
    harvester = Harvester(settings, lambda *_: None)
    harvester.start()
    wait_until(lambda: len(threads) == 2)
    for thread in threads:
        thread.joined = thread.leads = True
    wait_until(lambda: bool(harvester._members))
    sleep(0.2)  # for what must not be counted
    wait_until(lambda: [members.leads() for members in harvester._members.values()] == [counted])
    harvester.stop()


def test_an_outbox_without_a_table_does_not_keep_processes_from_seeing_each_other(
    tmp_path: Path, threads: list[FakeThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "NOTE_SECONDS", 0.02)
    monkeypatch.setattr(members_module, "REFUSED_SECONDS", 0.5)
    settings = configured(tmp_path, a="missing", b="also_missing", c="box_1")
    settings.outboxes[2].dialect.create().create()
    harvesters = [Harvester(settings, lambda *_: None) for _ in range(3)]
    for harvester in harvesters[:2]:
        harvester.start()
    for thread in threads:
        thread.joined = True
    wait_until(lambda: all(map(sees_two, harvesters[:2])))
    settings.outboxes[0].dialect.create().create()  # so all move to the first by name, one after the other
    harvesters[2].start()
    for thread in threads:
        thread.joined = True
    wait_until(
        lambda: all(
            [len(members.counts) for members in list(harvester._members.values())] == [3]
            and all(members._beside == "a" for members in list(harvester._members.values()))
            for harvester in harvesters
        )
    )
    for harvester in harvesters:
        harvester.stop()


def test_outboxes_whose_tables_are_dropped_are_harvested_no_more_until_they_are_back(
    tmp_path: Path, threads: list[FakeThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    tables = configured(tmp_path, a="box_1", b="box_2").outboxes
    for settings in tables:
        settings.dialect.create().create()
    harvester = Harvester(configured(tmp_path, one="gone", boxes="box_*"), lambda *_: None)
    harvester.start()

    def titles() -> list[str]:
        return [thread.settings.title for thread in harvester.harvests]

    wait_until(lambda: titles() == ["one", "boxes/box_1", "boxes/box_2"])
    with closing(sqlite3.connect(tmp_path / "outboxes.db")) as connection:
        connection.execute("DROP TABLE box_2")
    wait_until(lambda: titles() == ["one", "boxes/box_1"])
    wait_until(lambda: [thread.stopped for thread in threads] == [False, False, True])
    tables[1].dialect.create().create()
    wait_until(lambda: titles() == ["one", "boxes/box_1", "boxes/box_2"])
    harvester.stop()


def test_a_search_that_fails_drops_no_outbox(
    tmp_path: Path, threads: list[FakeThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    found = [configured(tmp_path, x="box_*").templates[0].settings_for("box_1")]
    gone = DriverError("gone", retryable=True)
    searches: Iterator[list[HarvestSettings] | DriverError] = iter([found, gone, [], found, []])
    ended = Flag()

    def search(_: object) -> list[HarvestSettings]:
        result = next(searches, None)
        if result is None:
            ended.set()
            return found
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(module, "matching", search)
    harvester = Harvester(configured(tmp_path, x="box_*"), lambda *_: None)
    harvester.start()
    assert ended.wait(PATIENCE)
    assert [thread.stopped for thread in threads] == [False], "it was missing in one search at a time only"
    harvester.stop()


def test_a_search_that_hangs_does_not_keep_leaders_from_spreading(
    tmp_path: Path, threads: list[FakeThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    released, searching = Flag(), Flag()

    def hang(_: object) -> list[HarvestSettings]:
        searching.set()
        released.wait(60)
        return []

    monkeypatch.setattr(module, "matching", hang)
    settings = configured(tmp_path, one="box_1", boxes="x_*")
    settings.outboxes[0].dialect.create().create()
    harvesters = [Harvester(settings, lambda *_: None) for _ in range(2)]
    for harvester in harvesters:
        harvester.start()
    assert searching.wait(PATIENCE)
    for thread in threads:
        thread.joined = True
    wait_until(lambda: all(map(sees_two, harvesters)))
    released.set()
    for harvester in harvesters:
        harvester.stop()
