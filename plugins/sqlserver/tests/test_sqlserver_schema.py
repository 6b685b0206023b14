"""What migrates and what watches asks of python-tds, in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from outbox_sdk import OLDEST, SCHEMA, DriverError, Schema
from outbox_sdk.portable.columns import ADDED_FENCE_COLUMNS, JOURNAL_INDEX
from outbox_sqlserver import SqlServerDialect, SqlServerOptions, connection

from .fake_sqlserver import FakeSqlServer, server_error

INDEXES = "^SELECT named.name"
KNOWN = {
    INDEXES: [("j", column) for column in JOURNAL_INDEX],
    "OBJECT_SCHEMA_NAME": [("dbo", "Outbox")],
}


class FormerSqlServer(FakeSqlServer):
    """A database whose fence the first version made, until the columns are added."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        super().__init__(replies)
        self.columns = [name for name in self.columns if name not in ADDED_FENCE_COLUMNS]

    def record(self, text: str, values: Any) -> None:
        if text == "commit" and self.log and (added := re.search(" ADD ([a-z_]+)", self.log[-1][0])):
            self.columns.append(added[1])
        super().record(text, values)


def dialect_on(fake: FakeSqlServer, monkeypatch: pytest.MonkeyPatch) -> SqlServerDialect:
    def connect(_: object) -> FakeSqlServer:
        fake.closed = False
        return fake

    monkeypatch.setattr(connection, "connect_plain", connect)
    return SqlServerDialect(SqlServerOptions())


def ways(dialect: SqlServerDialect) -> Sequence[Callable[[], object]]:
    """Every way to connect."""
    beside = (dialect.lease, dialect.members, dialect.dead_letters, dialect.journal)
    return (dialect.connect, dialect.watch, *beside)


def test_a_migration_adds_columns_with_short_waits_and_notes_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FormerSqlServer(KNOWN)
    done = dialect_on(fake, monkeypatch).migrate()
    sent = [text for text, _ in fake.log if not text.startswith("SELECT")]
    start = sent.index("SET LOCK_TIMEOUT 1000")
    assert [text for text in sent[start:] if text != "commit"] == [sent[start], *done]
    *added, noted = done
    assert [text.split(" ADD ")[1] for text in added] == [
        "sender NVARCHAR(4000)",
        "marker_place NVARCHAR(4000)",
    ]
    assert f"VALUES (N'schema:dbo.Outbox', -4, 0, {SCHEMA}, {OLDEST}, N'outbox migrate'" in noted
    assert fake.cancelled == 0


def test_a_journal_without_its_index_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    key = [("pk", "name"), ("pk", "id")]
    fake = FakeSqlServer({**KNOWN, INDEXES: key, "SELECT token, attempt": [(SCHEMA, OLDEST)]})
    (created,) = dialect_on(fake, monkeypatch).migrations()
    assert created.startswith("CREATE INDEX ")
    assert created.endswith(" ON [outbox_journal] ([name], [begun], [id])")


def test_a_former_fence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FormerSqlServer(KNOWN)
    dialect = dialect_on(fake, monkeypatch)
    for connect in ways(dialect):
        with pytest.raises(DriverError, match="run 'outbox migrate'"):
            connect()
    assert not fake.sent("ALTER TABLE")


def test_who_may_not_alter_is_told_the_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FormerSqlServer({**KNOWN, "^ALTER TABLE": server_error(1088, "cannot find the object")})
    with pytest.raises(DriverError, match="let somebody who may run this: ALTER TABLE"):
        dialect_on(fake, monkeypatch).migrate()


def test_a_note_of_a_later_version_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSqlServer({**KNOWN, "SELECT token, attempt": [(99, 99)]})
    dialect = dialect_on(fake, monkeypatch)
    assert dialect.schema() == Schema(99, 99)
    for connect in ways(dialect):
        with pytest.raises(DriverError, match="upgrade outbox"):
            connect()


def test_who_watches_sends_nothing_but_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSqlServer({**KNOWN, "^SELECT COUNT": [(0,)]})
    view = dialect_on(fake, monkeypatch).watch()
    fake.log.clear()
    view.lane_statuses()
    view.takeovers()
    view.known_identity()
    assert fake.verbs == ["SELECT", "commit"] * 3
