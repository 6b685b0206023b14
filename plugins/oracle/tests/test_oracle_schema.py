"""What migrates and what watches asks of python-oracledb, in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import oracledb
import pytest
from outbox_api import DriverError, Schema
from outbox_api.portable.sources import JOURNAL_INDEX
from outbox_oracle import OracleDialect, OracleOptions

from .fake_oracle import FakeOracle

INDEXES = "^SELECT index_name"
SCHEMA_OF_USER = {
    INDEXES: [("J", column.upper()) for column in JOURNAL_INDEX],
    "CURRENT_SCHEMA": [("SHOP",)],
}


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


def test_a_note_of_a_later_version_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOracle({**SCHEMA_OF_USER, "SELECT version, oldest": [(99, 99)]})
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
    assert "VALUES (SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') || '.OUTBOX', 1" in noted
    *_, noted = OracleDialect(OracleOptions(table='shop."a b"')).ddl()
    assert "VALUES ('SHOP.\"a b\"', 1" in noted
