"""Options, errors, the stasher, and what the check says."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Any

import pytds
import pytest
from outbox_api import ConfigError, Finding, Level, Record, RecordError, Stasher
from outbox_api.portable import ErrorKind
from outbox_api.portable.sources import JOURNAL_INDEX
from outbox_sqlserver import SqlServerDialect, SqlServerIdiom, SqlServerOptions, connection, outbox_dialect
from outbox_sqlserver.idiom import error_kind
from outbox_sqlserver.options import DataSource

from .fake_sqlserver import FakeSqlServer, server_error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Server=db,1434;Database=shop;Uid=a;Pwd={b;}}c}", ("db", 1434, "", "shop", "a", "b;}c")),
        ("data source=tcp:db;Initial Catalog='s';user id=a;Password=b", ("db", 1433, "", "s", "a", "b")),
        (r"Server=.\EXPRESS", ("localhost", 0, "EXPRESS", "", "", "")),
        ("Driver={ODBC Driver 18 for SQL Server};Server=db;", ("db", 1433, "", "", "", "")),
        ("mssql://a:b%2Fc@db:1434/shop", ("db", 1434, "", "shop", "a", "b/c")),
        ("sqlserver+pytds://a@db/shop", ("db", 1433, "", "shop", "a", "")),
    ],
)
def test_a_data_source_is_read(text: str, expected: tuple[Any, ...]) -> None:
    read = DataSource.parse(text)
    assert (read.host, read.port, read.instance, read.database, read.user, read.password) == expected
    assert read.encrypt
    assert not read.trust


@pytest.mark.parametrize(
    "text",
    ["Server=db;Encrypt=no;TrustServerCertificate=true", "mssql://db?encrypt=no&trustServerCertificate=yes"],
)
def test_encryption_is_for_the_user_to_switch_off(text: str) -> None:
    read = DataSource.parse(text)
    assert not read.encrypt
    assert read.trust


@pytest.mark.parametrize(
    "text",
    [
        "shop",
        "Server=db;Trusted_Connection=yes;Pwd=p/w",
        "Server=db;Encrypt=strict;Pwd=p/w",
        "Server=db,x;Pwd=p/w",
        "postgres://a:p%2Fw@db",
        "mssql://a:p/w@db",
    ],
)
def test_what_cannot_be_meant_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SqlServerOptions(data_source=text)
    assert "p/w" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"table": "a.b.c"}, {"table": "[a%b]"}, {"lock_timeout": 0.0}, {"value_type": "x"}]
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SqlServerOptions(**wrong)


def test_options_keep_their_secrets_and_travel() -> None:
    options = SqlServerOptions(data_source="Server=db;Pwd=tiger")
    assert "tiger" not in repr(options)
    assert "tiger" not in repr(options.source)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((server_error(number), ErrorKind.TRANSIENT) for number in (
            1205, 1222, 233, 3906, 9002, 10053, 10054, 10060, 10061, 10961, 40197, 40501, 40549, 40613, 49918,
        )),
        *((server_error(65_000, severity=severity), ErrorKind.TRANSIENT) for severity in (17, 20)),
        *((server_error(number), ErrorKind.ACCESS_DENIED) for number in (
            229, 230, 262, 916, 4060, 18456, 18488,
        )),
        (server_error(208), ErrorKind.NO_TABLE),
        *((server_error(number), ErrorKind.EXISTS) for number in (2714, 2627, 2601)),
        *((server_error(number), ErrorKind.PERMANENT) for number in (102, 207, 334, 515, 65_000)),
        (pytds.ClosedConnectionError(), ErrorKind.TRANSIENT),
        (pytds.InterfaceError("Connection closed"), ErrorKind.TRANSIENT),
        (pytds.DataError("no such type"), ErrorKind.PERMANENT),
    ],
    ids=str,
)  # fmt: skip
def test_errors_mean_what_their_numbers_say(error: Exception, kind: ErrorKind) -> None:
    assert isinstance(error, SqlServerIdiom().errors)
    assert error_kind(error) is kind


def test_a_session_ends_its_transaction_with_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSqlServer()
    monkeypatch.setattr(connection, "connect_plain", lambda _: fake)
    SqlServerDialect(SqlServerOptions(lock_timeout=2.5)).open()
    assert fake.verbs == ["SET", "commit"]
    assert fake.log[0][0].startswith("SET ROWCOUNT 0; SET TEXTSIZE 2147483647; ")
    assert "SET XACT_ABORT ON; SET NOCOUNT OFF; SET LOCK_TIMEOUT 2500;" in fake.log[0][0]
    assert fake.cancelled == 0


def test_what_the_stasher_binds() -> None:
    offered = outbox_dialect().insert
    assert offered is not None
    insert = offered("shop.outbox", {})
    assert insert.sql.startswith("INSERT INTO [shop].[outbox] (create_time, kafka_topic")
    assert isinstance(insert.bind(Record("t", "k", b"v"))["kafka_value"], pytds.Binary)
    assert insert.bind(Record("t", "", ""))["kafka_value"] == ""
    assert insert.bind(Record("t", "k", None))["kafka_value"] is None


@pytest.mark.parametrize("record", [Record("t", "k" * 2001), Record("t", "🌍" * 1001)])
def test_what_the_table_cannot_hold_is_refused(record: Record) -> None:
    fake = FakeSqlServer()
    with pytest.raises(RecordError, match="is longer than"):
        Stasher("outbox", "sqlserver").stash(_application(fake), record)
    assert fake.log == []


def test_an_application_stashes_through_the_driver() -> None:
    fake = FakeSqlServer()
    Stasher("outbox", "sqlserver").stash_many(
        _application(fake), [Record("t", "k", "v"), Record("t", "k", None)]
    )
    assert "VALUES (SYSUTCDATETIME(), @kafka_topic, @kafka_key, @kafka_value, NULL, NULL)" in fake.log[0][0]
    assert [values["kafka_value"] for _, values in fake.log] == ["v", None]


def _application(fake: FakeSqlServer) -> Any:
    """A connection of the driver's own module, where the stasher looks for its style."""
    return type("Connection", (), {"__module__": "pytds", "cursor": lambda _: fake.cursor()})()


GOOD = {
    r"^SELECT SYSUTCDATETIME\(\)$": [(datetime(2026, 3, 1),)],  # noqa: DTZ001 - as the driver gives it
    "SERVERPROPERTY": [("16.0.4105.2", 3)],
    r"sys\.databases": [(160, True, "DISABLED", "READ_WRITE")],
    "^SELECT named.name": [("j", column) for column in JOURNAL_INDEX],
    r"sys\.index_columns": [(1,)],
}


def checked(monkeypatch: pytest.MonkeyPatch, **replies: Any) -> dict[str, Any]:
    fake = FakeSqlServer({**replies, **{name: rows for name, rows in GOOD.items() if name not in replies}})
    monkeypatch.setattr(connection, "connect_plain", lambda _: fake)
    return {finding.subject: finding for finding in SqlServerDialect(SqlServerOptions()).check()}


def test_the_check_judges_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch)
    for subject in ("connection", "version", "isolation", "durability", "privileges", "fence table"):
        assert found[subject].level is Level.OK


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("Server=db", ""),
        ("Server=db;Encrypt=no", "db in clear; Encrypt is no"),
        ("Server=db;TrustServerCertificate=yes", "TrustServerCertificate is yes"),
    ],
)
def test_the_check_warns_of_what_is_not_verified(
    monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    monkeypatch.setattr(connection, "connect_plain", lambda _: FakeSqlServer(GOOD))

    def transport(source: str) -> list[Finding]:
        dialect = SqlServerDialect(SqlServerOptions(data_source=source))
        return [finding for finding in dialect.check() if finding.subject == "transport"]

    [finding] = transport(source)
    assert finding.level is (Level.WARNING if said else Level.OK)
    assert said in finding.message
    assert not said or "CAFile=FILE" in finding.cure
    assert transport(source.replace("=db", "=localhost")) == []


@pytest.mark.parametrize(
    ("pattern", "reply", "subject", "level"),
    [
        ("SERVERPROPERTY", [("12.0.5000.0", 3)], "version", Level.ERROR),
        ("SERVERPROPERTY", [("12.0.2000.8", 5)], "version", Level.OK),
        (r"sys\.databases", [(120, True, "DISABLED", "READ_WRITE")], "compatibility", Level.ERROR),
        (r"sys\.databases", [(160, False, "DISABLED", "READ_WRITE")], "isolation", Level.WARNING),
        (r"sys\.databases", [(160, True, "FORCED", "READ_WRITE")], "durability", Level.WARNING),
        (r"sys\.databases", [(160, True, "DISABLED", "READ_ONLY")], "durability", Level.ERROR),
        (r"COUNT.*sys\.index_columns", [(0,)], "index", Level.WARNING),
        (r"^DELETE FROM \[outbox\] WHERE 1", server_error(229), "privileges", Level.ERROR),
        (r"^SELECT \* FROM \[outbox\]", server_error(208), "outbox table", Level.ERROR),
    ],
)
def test_the_check_finds(
    monkeypatch: pytest.MonkeyPatch, pattern: str, reply: Any, subject: str, level: Level
) -> None:
    found = checked(monkeypatch, **{pattern: reply})
    assert found[subject].level is level
    assert bool(found[subject].cure) == (level is not Level.OK)


@pytest.mark.parametrize(
    ("pattern", "found", "here"),
    [
        ("tenant_*.outbox", ["tenant_a.Outbox"], False),
        ("[tenant *].outbox", ['"tenant C".outbox'], False),
        ("outbox", ["Outbox", "outbox"], True),
    ],
)
def test_outboxes_are_found_by_a_pattern(
    monkeypatch: pytest.MonkeyPatch, pattern: str, found: list[str], *, here: bool
) -> None:
    tables = [("tenant_a", "Outbox"), ("tenant C", "outbox"), ("tenant_b", "other")]
    fake = FakeSqlServer({"INFORMATION_SCHEMA": tables})
    monkeypatch.setattr(connection, "connect", lambda _: fake)
    assert SqlServerDialect(SqlServerOptions()).find_outboxes(pattern) == found
    [(asked, _)] = fake.sent("SELECT schema_name")
    assert ("schema_name = SCHEMA_NAME()" in asked) == here
    assert fake.closed
