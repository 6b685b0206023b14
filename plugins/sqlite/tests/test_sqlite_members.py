"""What stands in the fence about members, written by all portable dialects alike."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from outbox_api import ConfigError
from outbox_api.portable.outboxes import MemberRow, PortableMembers
from outbox_sqlite.dialect import SqliteDialect, SqliteOptions


@pytest.fixture
def dialect(tmp_path: Path) -> SqliteDialect:
    made = SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db")))
    made.create()
    return made


@pytest.fixture
def members(dialect: SqliteDialect) -> Iterator[PortableMembers]:
    connected = dialect.members()
    yield connected
    connected.close()


def rows(dialect: SqliteDialect) -> list[tuple[str, int | None]]:
    with closing(sqlite3.connect(dialect.options.data_source)) as connection:
        return connection.execute("SELECT member, leads FROM outbox_fence_members ORDER BY 1").fetchall()


def test_there_is_a_row_for_as_many_as_were_alive_at_a_time(
    dialect: SqliteDialect, members: PortableMembers
) -> None:
    for restart in range(4):
        for number in range(3):
            members.note("group", f"{restart} {number}", number, 60)
        for number in range(3):
            members.leave(f"{restart} {number}")
    assert rows(dialect) == [(f"3 {number}", None) for number in range(3)]


def test_who_is_silent_for_ten_times_as_long_loses_its_row_and_may_return(
    dialect: SqliteDialect, members: PortableMembers
) -> None:
    members.note("group", "silent", 1, 60)
    members.note("group", "silent too", 1, 60)
    time.sleep(0.3)
    assert members.note("other group", "next", 2, 0.02) == {"next": 2}
    assert len(rows(dialect)) == 2
    assert members.note("group", "silent", 3, 60)["silent"] == 3
    assert members.note("group", "silent too", 3, 60) == {"silent": 3, "silent too": 3}
    assert [name for name, _ in rows(dialect)] == ["next", "silent", "silent too"]


def test_no_row_is_taken_from_one_that_has_just_noted_itself(
    dialect: SqliteDialect, members: PortableMembers
) -> None:
    members.note("group", "alive", 1, 60)
    assert not members.take_row("alive", MemberRow("next", "group", 0, 0), 60)
    members.add_row(MemberRow("alive", "group", 7, 0))  # again, as after an answer that was lost
    assert rows(dialect) == [("alive", 1)]


def test_a_pattern_has_no_schema(dialect: SqliteDialect) -> None:
    with pytest.raises(ConfigError, match="no schema"):
        dialect.find_outboxes("tenant_*.outbox")
