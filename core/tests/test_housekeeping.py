"""When skipped dead letters are deleted and kept records tended, and what is said of refusals."""

from typing import cast
from uuid import uuid4

import pytest
from outbox_api import DriverError, Fence, OutboxTable, Parked, PermittedTopics
from outbox_api.seams.kept import Tended
from outbox_core.config import parse
from outbox_core.lanes.database import Database
from outbox_core.lanes.housekeeping import (
    AT_ONCE,
    FIRST_SECONDS,
    INTERVAL_SECONDS,
    KEPT_AT_ONCE,
    Housekeeping,
)

SKIPPED = 720 * 3600.0


class Letters:
    """A table with skipped letters and kept records, and a dialect that connects to it."""

    def __init__(self, old: int = 0, *tended: Tended) -> None:
        self.name = uuid4().hex
        self.old = old
        self.tended = list(tended)
        self.asked: list[tuple[float, int]] = []
        self.asked_to_tend = self.asked_of_days = 0
        self.days = Tended()
        self.refusal: DriverError | None = None

    def forget_skipped(self, age: float, limit: int) -> int:
        self.asked.append((age, limit))
        if self.refusal:
            raise self.refusal
        deleted = min(limit, self.old)
        self.old -= deleted
        return deleted

    def tend_kept(self, limit: int) -> Tended:
        assert limit == KEPT_AT_ONCE
        self.asked_to_tend += 1
        if self.refusal:
            raise self.refusal
        return self.tended.pop(0) if self.tended else Tended()

    def tend_days(self) -> Tended:
        self.asked_of_days += 1
        return self.days

    def connect(self, eligible: object) -> "Letters":
        return self

    def heartbeat(self, fence: Fence, metrics: object) -> None:
        """Writes nothing."""

    def parked(self) -> Parked:
        return Parked(0, None)

    def close(self) -> None:
        """Holds nothing open."""


def table_of(letters: Letters) -> OutboxTable:
    return cast("OutboxTable", letters)


def test_the_first_look_comes_after_a_minute_and_the_next_after_an_hour() -> None:
    letters = Letters(3)
    table, housekeeping = table_of(letters), Housekeeping(0, SKIPPED, 0.0)
    housekeeping.work(table, FIRST_SECONDS - 1)
    assert letters.asked == []
    housekeeping.work(table, FIRST_SECONDS)
    assert letters.old == 0
    housekeeping.work(table, FIRST_SECONDS + INTERVAL_SECONDS - 1)
    assert letters.asked == [(SKIPPED, AT_ONCE)]
    housekeeping.work(table, FIRST_SECONDS + INTERVAL_SECONDS)
    assert len(letters.asked) == letters.asked_to_tend == 2


def test_many_are_deleted_few_at_a_time() -> None:
    letters = Letters(2 * AT_ONCE + 1)
    table, housekeeping = table_of(letters), Housekeeping(0, SKIPPED, 0.0)
    left = []
    for n in range(4):
        housekeeping.work(table, FIRST_SECONDS + n)
        left.append(letters.old)
    assert left == [AT_ONCE + 1, 1, 0, 0]
    assert len(letters.asked) == 3


def test_what_is_kept_is_tended_until_nothing_is_left_to_do() -> None:
    letters = Letters(0, Tended(9, more=True), Tended(0, more=True), Tended(1))
    table, housekeeping = table_of(letters), Housekeeping(0, None, 0.0)
    for n in range(5):
        housekeeping.work(table, FIRST_SECONDS + n)
    assert letters.asked_to_tend == 3
    assert letters.asked == [], "skipped letters are kept for ever by default"


def test_partitions_are_tended_and_what_hinders_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    letters = Letters()
    letters.days = Tended(more=True, faults=["no right"])
    table, housekeeping = table_of(letters), Housekeeping(0, None, 0.0)
    for n in range(3):
        housekeeping.work(table, FIRST_SECONDS + n)
    assert letters.asked_of_days == 3
    assert caplog.text.count("partitions cannot be made and removed: no right") == 1


def test_one_lane_is_enough() -> None:
    letters = Letters(3)
    Housekeeping(1, SKIPPED, 0.0).work(table_of(letters), 1e9)
    assert letters.asked == []
    assert letters.asked_to_tend == 0


def test_a_refusal_is_told_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    letters = Letters(3)
    letters.refusal = DriverError("permission denied", retryable=False)
    for lane_start in range(3):
        housekeeping = Housekeeping(0, SKIPPED, lane_start * 1e6)
        for n in range(3):
            housekeeping.work(table_of(letters), lane_start * 1e6 + FIRST_SECONDS + n * INTERVAL_SECONDS)
    assert len(letters.asked) == letters.asked_to_tend == 9
    assert caplog.text.count("skipped dead letters cannot be deleted: permission denied") == 1
    assert caplog.text.count("kept records cannot be removed in time: permission denied") == 1
    said = "skipped dead letters cannot be deleted: permission denied; kept records cannot be removed in time"
    assert housekeeping.about == {"overdue": f"{said}: permission denied"}
    letters.refusal = None
    housekeeping.work(table_of(letters), 1e9)
    assert not housekeeping.about


def test_a_fault_is_told_again_if_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    fault = Tended(faults=["no right"])
    letters = Letters(0, fault, fault, Tended(), fault, fault)
    housekeeping = Housekeeping(0, None, 0.0)
    for n in range(5):
        housekeeping.work(table_of(letters), FIRST_SECONDS + n * INTERVAL_SECONDS)
    assert caplog.text.count("no right") == 2


def test_an_error_that_may_pass_is_raised_and_not_repeated_with_every_heartbeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letters = Letters(3)
    letters.refusal = DriverError("connection lost", retryable=True)
    table, housekeeping = table_of(letters), Housekeeping(0, SKIPPED, 0.0)
    with pytest.raises(DriverError):
        housekeeping.work(table, FIRST_SECONDS)
    assert "connection lost" in caplog.text
    housekeeping.work(table, FIRST_SECONDS + 1)
    assert len(letters.asked) == 1


def test_it_comes_with_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("outbox_core.lanes.database.monotonic", lambda: now)
    letters, fence = Letters(3), Fence(0, 1, 7, 1)
    table, housekeeping = table_of(letters), Housekeeping(0, 0.0, now)
    database = Database(lambda: table, PermittedTopics(), housekeeping=housekeeping)
    database.heartbeat(fence, {})
    assert letters.asked == []
    now += FIRST_SECONDS
    assert database.heartbeat(fence, {}) == Parked(0, None)
    assert letters.asked == [(0.0, AT_ONCE)]


@pytest.mark.parametrize(("text", "seconds"), [("720h", SKIPPED), ("0", 0.0)])
def test_the_setting(text: str, seconds: float) -> None:
    settings = parse(f"harvest: {{failures: {{keepSkipped: {text}}}}}", "f.yaml", {})
    assert settings.harvest.failures.keep_skipped == seconds
    assert parse("harvest: {}", "f.yaml", {}).harvest.failures.keep_skipped is None
