"""Tables of the first version: refused, migrated, and harvested by both versions in turn."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from outbox_sdk import DriverError
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.former import FormerConformance, FormerOutbox
from outbox_testkit.conformance.under_test import Box

# As the commit that added this dialect had them.
TABLES = (
    """CREATE TABLE "outbox" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    create_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    kafka_topic TEXT NOT NULL,
    kafka_key TEXT NOT NULL,
    kafka_value TEXT,
    kafka_header_keys TEXT,
    kafka_header_values TEXT,
    leader_id TEXT
)""",
    """CREATE TABLE "outbox_fence" (
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
)""",
    """CREATE TABLE "outbox_dead_letters" (
    name TEXT NOT NULL,
    id INTEGER NOT NULL,
    kafka_topic TEXT,
    kafka_key TEXT,
    kafka_value BLOB,
    kafka_header_keys TEXT,
    kafka_header_values TEXT,
    fate TEXT NOT NULL CHECK (fate IN ('parked', 'skipped')),
    reason TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (name, id)
)""",
)
WORDS = {
    "outbox": '"outbox"',
    "fence": '"outbox_fence"',
    "letters": '"outbox_dead_letters"',
    "now": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "shared": "",
    "alone": "",
}


class TestFormerSqlite(FormerConformance):
    """The first version's tables, in a file of each test's own."""

    @pytest.fixture
    def former_outbox(self, tmp_path: Path) -> FormerOutbox:
        file = tmp_path / "shop.db"
        with closing(sqlite3.connect(file)) as connection:
            for statement in TABLES:
                connection.execute(statement)
        # As long as a test's patience, if it counted for a migration.
        options = {"data_source": str(file), "lock_timeout": 60.0}
        return FormerOutbox(OutboxUnderTest("sqlite", options), "outbox", WORDS)

    def test_who_may_not_is_told_what_somebody_else_may_run(
        self, box: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(connection: sqlite3.Connection) -> sqlite3.Connection:
            connection.set_authorizer(
                lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ALTER_TABLE else 0
            )
            return connection

        opened = box.dialect.open  # type: ignore[attr-defined]  # of a portable dialect
        monkeypatch.setattr(box.dialect, "open", lambda: refused(opened()))
        with pytest.raises(DriverError, match="let somebody who may run this: ALTER TABLE") as caught:
            box.dialect.migrate()
        assert not caught.value.retryable
        assert "INSERT INTO" in str(caught.value), "all that is to be done"
