"""When skipped dead letters are deleted."""

from typing import cast

import pytest
from outbox_api import DriverError, Fence, OutboxTable, Parked, PermittedTopics
from outbox_core.config import parse
from outbox_core.lanes.database import Database
from outbox_core.lanes.kept_rows import (
    AT_ONCE,
    FIRST_SECONDS,
    INTERVAL_SECONDS,
    SkippedDeadLetters,
)

KEPT = 720 * 3600.0


class Letters:
    """A table with skipped letters, and a dialect that connects to it."""

    def __init__(self, old: int = 0) -> None:
        self.old = old
        self.asked: list[tuple[float, int]] = []
        self.broken = False

    def forget_skipped(self, age: float, limit: int) -> int:
        self.asked.append((age, limit))
        if self.broken:
            raise DriverError("permission denied", retryable=False)
        deleted = min(limit, self.old)
        self.old -= deleted
        return deleted

    def connect(self, eligible: object) -> "Letters":
        return self

    def heartbeat(self, fence: Fence, metrics: object) -> None:
        """Writes nothing."""

    def parked(self) -> Parked:
        return Parked(0, None)

    def close(self) -> None:
        """Holds nothing open."""


def test_the_first_look_comes_after_a_minute_and_the_next_after_an_hour():
    letters = Letters(3)
    table, skipped = cast("OutboxTable", letters), SkippedDeadLetters(0, KEPT, 0.0)
    assert skipped.forget(table, FIRST_SECONDS - 1) == 0
    assert letters.asked == []
    assert skipped.forget(table, FIRST_SECONDS) == 3
    assert skipped.forget(table, FIRST_SECONDS + INTERVAL_SECONDS - 1) == 0
    assert letters.asked == [(KEPT, AT_ONCE)]
    skipped.forget(table, FIRST_SECONDS + INTERVAL_SECONDS)
    assert len(letters.asked) == 2


def test_many_are_deleted_few_at_a_time():
    letters = Letters(2 * AT_ONCE + 1)
    table, skipped = cast("OutboxTable", letters), SkippedDeadLetters(0, KEPT, 0.0)
    assert [skipped.forget(table, FIRST_SECONDS + n) for n in range(4)] == [AT_ONCE, AT_ONCE, 1, 0]
    assert len(letters.asked) == 3


@pytest.mark.parametrize(("lane", "kept"), [(0, None), (1, KEPT)])
def test_they_are_kept_for_ever_by_default_and_one_lane_is_enough(lane: int, kept: float | None):
    letters = Letters(3)
    assert SkippedDeadLetters(lane, kept, 0.0).forget(cast("OutboxTable", letters), 1e9) == 0
    assert letters.asked == []


def test_a_refusal_is_told_and_is_not_repeated_with_every_heartbeat(caplog: pytest.LogCaptureFixture):
    letters = Letters(3)
    letters.broken = True
    table, skipped = cast("OutboxTable", letters), SkippedDeadLetters(0, KEPT, 0.0)
    with pytest.raises(DriverError):
        skipped.forget(table, FIRST_SECONDS)
    assert "permission denied" in caplog.text
    assert skipped.forget(table, FIRST_SECONDS + 1) == 0


def test_it_comes_with_a_heartbeat(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("outbox_core.lanes.database.monotonic", lambda: now)
    letters, fence = Letters(3), Fence(0, 1, 7, 1)
    table, skipped = cast("OutboxTable", letters), SkippedDeadLetters(0, 0.0, now)
    database = Database(lambda: table, PermittedTopics(), skipped=skipped)
    database.heartbeat(fence, {})
    assert letters.asked == []
    now += FIRST_SECONDS
    assert database.heartbeat(fence, {}) == Parked(0, None)
    assert letters.asked == [(0.0, AT_ONCE)]


@pytest.mark.parametrize(("text", "seconds"), [("720h", KEPT), ("0", 0.0)])
def test_the_setting(text: str, seconds: float):
    settings = parse(f"harvest: {{failures: {{keepSkipped: {text}}}}}", "f.yaml", {})
    assert settings.harvest.failures.keep_skipped == seconds
    assert parse("harvest: {}", "f.yaml", {}).harvest.failures.keep_skipped is None
