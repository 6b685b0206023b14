"""What migrates and what watches asks of python-oracledb, in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import oracledb
import pytest
from outbox_oracle import OracleDialect, OracleOptions
from outbox_sdk import OLDEST, SCHEMA, AccessDenied, DriverError, Schema
from outbox_sdk.portable.columns import ADDED_FENCE_COLUMNS, JOURNAL_INDEX

from .fake_oracle import FakeOracle, database_error

INDEXES = "^SELECT index_name"
SCHEMA_OF_USER = {
    INDEXES: [("J", column.upper()) for column in JOURNAL_INDEX],
    "CURRENT_SCHEMA": [("SHOP",)],
}


class FormerOracle(FakeOracle):
    """A database whose fence the first version made, until the columns are added."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        super().__init__(replies)
        self.columns = [name for name in self.columns if name not in ADDED_FENCE_COLUMNS]

    def record(self, text: str, values: Any) -> None:
        if text == "commit" and self.log and (added := re.search(" ADD ([a-z_]+)", self.log[-1][0])):
            self.columns.append(added[1])
        super().record(text, values)


def dialect_on(fake: FakeOracle, monkeypatch: pytest.MonkeyPatch) -> OracleDialect:
    def connect(**_: object) -> FakeOracle:
        fake.closed = False
        return fake

    monkeypatch.setattr(oracledb, "connect", connect)
    return OracleDialect(OracleOptions())


def ways(dialect: OracleDialect) -> Sequence[Callable[[], object]]:
    """Every way to connect."""
    beside = (dialect.lease, dialect.members, dialect.dead_letters, dialect.journal)
    return (dialect.connect, dialect.watch, *beside)


def test_a_migration_adds_columns_with_short_waits_and_notes_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FormerOracle(SCHEMA_OF_USER)
    done = dialect_on(fake, monkeypatch).migrate()
    sent = [text for text, _ in fake.log if not text.startswith("SELECT")]
    start = sent.index("ALTER SESSION SET DDL_LOCK_TIMEOUT = 1")
    assert [text for text in sent[start:] if text != "commit"] == [sent[start], *done]
    *added, noted = done
    assert [text.split(" ADD ")[1] for text in added] == [
        "sender VARCHAR2(4000 BYTE)",
        "marker_place VARCHAR2(4000 BYTE)",
    ]
    assert f"VALUES ('schema:SHOP.OUTBOX', -4, 0, {SCHEMA}, {OLDEST}, 'outbox migrate'" in noted


def test_a_journal_without_its_index_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    key = [("PK", "NAME"), ("PK", "ID")]
    fake = FakeOracle({**SCHEMA_OF_USER, INDEXES: key, "SELECT token, attempt": [(SCHEMA, OLDEST)]})
    (created,) = dialect_on(fake, monkeypatch).migrations()
    assert created.startswith("CREATE INDEX ")
    assert created.endswith(' ON "OUTBOX_JOURNAL" ("NAME", "BEGUN", "ID")')


def test_a_former_fence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FormerOracle(SCHEMA_OF_USER)
    dialect = dialect_on(fake, monkeypatch)
    for connect in ways(dialect):
        with pytest.raises(DriverError, match="run 'outbox migrate'"):
            connect()
    assert not fake.sent("ALTER TABLE")


def test_who_may_not_alter_is_told_the_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FormerOracle({**SCHEMA_OF_USER, "^ALTER TABLE": database_error(1031, "insufficient privileges")})
    with pytest.raises(AccessDenied, match="let somebody who may run this: ALTER TABLE"):
        dialect_on(fake, monkeypatch).migrate()


def test_a_note_of_a_later_version_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOracle({**SCHEMA_OF_USER, "SELECT token, attempt": [(99, 99)]})
    dialect = dialect_on(fake, monkeypatch)
    assert dialect.schema() == Schema(99, 99)
    for connect in ways(dialect):
        with pytest.raises(DriverError, match="upgrade outbox"):
            connect()


def test_who_watches_begins_each_transaction_as_one_that_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOracle({**SCHEMA_OF_USER, "^SELECT COUNT": [(0,)], "SYS_EXTRACT_UTC": []})
    view = dialect_on(fake, monkeypatch).watch()
    fake.log.clear()
    view.lane_statuses()
    view.takeovers()
    view.known_identity()
    assert fake.verbs == ["SET", "SELECT", "commit"] * 3
    assert {text for text, _ in fake.log if text.startswith("SET")} == {"SET TRANSACTION READ ONLY"}


def test_the_ddl_notes_the_version_under_the_name_that_a_connection_finds() -> None:
    *_, noted = OracleDialect(OracleOptions()).ddl()
    assert "VALUES ('schema:' || SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') || '.OUTBOX', -4" in noted
    *_, noted = OracleDialect(OracleOptions(table='shop."a b"')).ddl()
    assert "VALUES ('schema:SHOP.\"a b\"', -4" in noted
