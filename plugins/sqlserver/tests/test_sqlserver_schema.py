"""What migrates and what watches asks of python-tds, in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from outbox_api import DriverError, Schema
from outbox_api.portable.sources import JOURNAL_INDEX
from outbox_sqlserver import SqlServerDialect, SqlServerOptions, connection

from .fake_sqlserver import FakeSqlServer

INDEXES = "^SELECT named.name"
KNOWN = {
    INDEXES: [("j", column) for column in JOURNAL_INDEX],
    "OBJECT_SCHEMA_NAME": [("dbo", "Outbox")],
}


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


def test_a_note_of_a_later_version_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSqlServer({**KNOWN, "SELECT version, oldest": [(99, 99)]})
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
