"""Polls of outboxes that rest: once for all who ask, until something changes, and without a connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import enumerate as threads
from time import monotonic, sleep

import pytest
from outbox_api.support.context_thread import ContextThread
from outbox_core.config import configure
from outbox_core.monitoring import polls as module
from outbox_core.monitoring.polls import StatusPolls
from outbox_core.settings import HarvestSettings
from outbox_core.status.snapshot import Snapshot, Views

pytestmark = pytest.mark.slow

PATIENCE = 60.0


@pytest.fixture
def outbox(tmp_path: Path) -> HarvestSettings:
    dialect = {"driver": "sqlite", "dataSource": str(tmp_path / "outbox.db")}
    [settings] = configure({"harvest": {"engine": "inline", "dialect": dialect}}).outboxes
    settings.dialect.create().create()
    return settings


def test_an_outbox_that_rests_is_polled_once_until_it_wakes(
    outbox: HarvestSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARED_SECONDS", 0.0)
    looks = 0

    @contextmanager
    def view() -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        def look(settings: HarvestSettings) -> Snapshot:
            nonlocal looks
            looks += 1
            return views.snapshot(settings)

        with Views() as views:
            yield look

    idle_since: float | None = monotonic()
    polls = StatusPolls(view, lambda _: idle_since)
    first = polls.ask(outbox).result(PATIENCE)
    until_nobody_polls()
    sleep(0.1)
    later = [polls.ask(outbox).result(0) for _ in range(5)]
    assert looks == 1
    assert all(poll.snapshot is first.snapshot for poll in later)
    assert polls.known(outbox) == later[-1]
    assert later[-1].at > first.at + 0.1, "it is known to be so now"

    idle_since = None
    for _ in range(2):
        polls.ask(outbox).result(PATIENCE)
    assert looks == 3
    idle_since = monotonic()
    polls.ask(outbox).result(PATIENCE)
    assert looks == 4, "it may have changed before it came to rest again"
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    polls.ask(outbox).result(PATIENCE)
    assert looks == 5


def test_who_asks_is_answered_when_there_can_be_no_thread(
    outbox: HarvestSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHARED_SECONDS", 0.0)

    @contextmanager
    def view() -> Iterator[Callable[[HarvestSettings], Snapshot]]:
        with Views() as views:
            yield views.snapshot

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    polls = StatusPolls(view)
    with monkeypatch.context() as patched:
        patched.setattr(ContextThread, "start", refuse)
        assert polls.ask(outbox).result(1).snapshot is None
    assert polls.ask(outbox).result(PATIENCE).snapshot is not None


def until_nobody_polls() -> None:
    end = monotonic() + PATIENCE
    while any(thread.name.startswith("poll-") for thread in threads()):
        assert monotonic() < end
        sleep(0.01)


def test_outboxes_of_which_nobody_asks_any_more_are_forgotten(
    outbox: HarvestSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FORGET_SECONDS", -1.0)
    monkeypatch.setattr(module, "REST_SECONDS", 0.0)
    with Views() as views:

        @contextmanager
        def view() -> Iterator[Callable[[HarvestSettings], Snapshot]]:
            yield views.snapshot

        polls = StatusPolls(view)
        for number in range(3):
            polls.ask(replace(outbox, label=str(number))).result(PATIENCE)
            until_nobody_polls()
        assert [*polls._pollers] == ["2"]
        assert len(polls._places) == 1
