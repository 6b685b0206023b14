"""The conformance suite finds dialects that write while somebody looks, or that migrate nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from outbox_api import DriverError
from outbox_sqlite import SqliteDialect
from outbox_testkit.conformance import DialectConformance, OutboxUnderTest
from outbox_testkit.conformance.schemas import Noted
from outbox_testkit.conformance.under_test import Box
from outbox_testkit.conformance.watching import FENCE

FAILURES = (AssertionError, pytest.fail.Exception)
connect, dead_letters = SqliteDialect.connect, SqliteDialect.dead_letters


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def bare(tmp_path: Path, stack: ExitStack) -> Box:
    return Box(OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")}), stack)


def test_a_dialect_fails_that_creates_what_is_missing_when_it_connects(
    bare: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_and_create(dialect: SqliteDialect, *arguments: Any) -> Any:
        dialect.create()
        return connect(dialect, *arguments)

    monkeypatch.setattr(SqliteDialect, "connect", connect_and_create)
    with pytest.raises(FAILURES):
        DialectConformance().test_a_missing_table_beside_the_outbox_is_created_by_init_alone(bare, FENCE)


def test_a_dialect_fails_whose_readers_may_write(
    bare: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteDialect, "dead_letters", lambda dialect, **_: dead_letters(dialect))
    bare.dialect.create()
    with pytest.raises(FAILURES):
        DialectConformance().test_letters_can_be_read_by_somebody_who_changes_none(bare, stack)


def test_a_dialect_fails_whose_readers_wait_for_writers(
    bare: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locking(dialect: SqliteDialect) -> sqlite3.Connection:
        connection = dialect.open()
        connection.execute("PRAGMA busy_timeout = 100")
        connection.execute("BEGIN IMMEDIATE")
        return connection

    monkeypatch.setattr(SqliteDialect, "open_to_watch", locking)
    bare.dialect.create()
    with pytest.raises(DriverError, match="locked"):
        DialectConformance().test_whoever_watches_waits_for_nobody(bare, stack)


def test_a_dialect_fails_that_only_says_that_it_migrates(bare: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteDialect, "migrate", SqliteDialect.migrations)
    with pytest.raises(FAILURES):
        DialectConformance().test_an_earlier_version_is_migrated_beneath_a_harvester(Noted(bare), None)


def test_a_dialect_fails_that_heeds_no_version(bare: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_api.portable.creation.refusal", lambda _: None)
    with pytest.raises(FAILURES):
        DialectConformance().test_tables_that_need_a_later_outbox_are_refused_by_all_that_connects(
            Noted(bare)
        )
