"""A fence that the version before made serves on, and lacks nothing that came later."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from outbox_sdk import DriverError, Level, TransactionalLane
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box

FENCE = """CREATE TABLE "outbox_fence" (
    name TEXT NOT NULL,
    lane INTEGER NOT NULL,
    lanes INTEGER NOT NULL,
    token INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    holder TEXT NOT NULL,
    since TEXT NOT NULL,
    beat TEXT,
    reading TEXT NOT NULL,
    transacting INTEGER NOT NULL,
    identity TEXT NOT NULL,
    PRIMARY KEY (name, lane)
)"""
NOTED = """INSERT INTO outbox_fence VALUES
('outbox', -1, 0, 7, 0, 'nobody', datetime('now'), NULL, '{}', 0, 'abc123'),
('outbox', 0, 1, 7, 3, 'former', datetime('now'), NULL, '{}', 2, 'def456')"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """An outbox with the fence of the version before, a lane of which published in transactions."""
    with ExitStack() as stack:
        box = Box(OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")}), stack)
        box.dialect.create()
        with closing(sqlite3.connect(box.options.data_source)) as connection:
            for statement in ("DROP TABLE outbox_fence", FENCE, NOTED):
                connection.execute(statement)
            connection.commit()
        yield box


def test_it_goes_on_with_what_it_noted(box: Box) -> None:
    table = box.connect()
    assert table.transactional_lanes() == {0: TransactionalLane(2)}
    assert table.identity() == "abc123"
    fence = table.enter(0, 1, table.bump(1, "next"))
    assert fence.token == 8
    table.set_transactional(fence, TransactionalLane(1, "sender", "place"))
    assert table.transactional_lanes() == {0: TransactionalLane(1, "sender", "place")}


def test_several_processes_meet_it_at_once(box: Box) -> None:
    with ThreadPoolExecutor(6) as pool:
        noted = list(pool.map(lambda _: box.connect().transactional_lanes(), range(6)))
    assert noted == [{0: TransactionalLane(2)}] * 6


def test_it_is_checked_and_made_whole_by_create(box: Box) -> None:
    [finding] = [each for each in box.dialect.check() if each.subject == "upgrade"]
    assert finding.level is Level.WARNING
    assert 'ALTER TABLE "outbox_fence" ADD sender TEXT' in finding.cure
    assert list(box.dialect.create()) == []
    assert not [each for each in box.dialect.check() if each.level is not Level.OK]


def test_who_may_not_is_told_what_somebody_else_may_run(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(connection: sqlite3.Connection) -> sqlite3.Connection:
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ALTER_TABLE else 0
        )
        return connection

    opened = box.dialect.open  # type: ignore[attr-defined]  # of a portable dialect
    monkeypatch.setattr(box.dialect, "open", lambda: refused(opened()))
    with pytest.raises(DriverError, match="let somebody who may run this: ALTER TABLE") as caught:
        box.connect()
    assert not caught.value.retryable
