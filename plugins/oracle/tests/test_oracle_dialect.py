"""Options, connections, errors, and what the check says."""

from __future__ import annotations

import pickle
import socket
from datetime import datetime
from typing import Any

import oracledb
import pytest
from outbox_api import AccessDenied, ConfigError, DriverError, Level, Record, Stasher
from outbox_api.base.errors import RecordError
from outbox_api.portable import ErrorKind
from outbox_api.portable.sources import JOURNAL_INDEX
from outbox_oracle import OracleDialect, OracleOptions, outbox_dialect
from outbox_oracle.connection import SETTINGS
from outbox_oracle.idiom import EMPTY, error_kind
from outbox_oracle.options import DataSource, table_name
from outbox_servers.services import free_port

from .fake_oracle import FakeOracle, database_error, driver_error

SECRET = "ti/g@er"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("oracle://scott:ti%2Fg%40er@db:1522/shop", ("tcp://db:1522/shop", "scott", SECRET)),
        ("oracle+oracledb://scott@db/?service_name=shop", ("tcp://db:1521/shop", "scott", "")),
        (
            "oracle://scott@[::1]/shop?ssl=true&retry_count=2",
            ("tcps://[::1]:2484/shop?retry_count=2", "scott", ""),
        ),
        ("scott/ti/g@er@db:1521/shop", ("db:1521/shop", "scott", SECRET)),
        ('scott/"ti/g@er"@alias', ("alias", "scott", SECRET)),
        ("tcps://db:2484/shop?wallet_location=/w", ("tcps://db:2484/shop?wallet_location=/w", "", "")),
        ("db:1521/shop", ("db:1521/shop", "", "")),
        ("(DESCRIPTION=(ADDRESS=(HOST=a@b)))", ("(DESCRIPTION=(ADDRESS=(HOST=a@b)))", "", "")),
    ],
)
def test_a_data_source_is_read(text: str, source: tuple[str, str, str]) -> None:
    assert DataSource.parse(text) == source


@pytest.mark.parametrize(
    "text", ["oracle://db", "oracle:///shop", "oracle://a:p/w@db/x", "oracle://db/x?protocol=udp"]
)
def test_a_url_that_says_too_little_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OracleOptions(data_source=text)
    assert "p/w" not in str(caught.value)


def test_options_keep_their_secrets_and_travel() -> None:
    options = OracleOptions(data_source="db/shop", user="scott", password=SECRET, wallet_password="w8")
    assert SECRET not in repr(options)
    assert "w8" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.source == ("db/shop", "scott", SECRET)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("outbox", "OUTBOX"),
        ("shop.Outbox", "SHOP.OUTBOX"),
        ('shop."a.b"', 'SHOP."a.b"'),
        ('"s"."o"', '"s"."o"'),
    ],
)
def test_unquoted_names_fold_to_upper_case(text: str, name: str) -> None:
    assert str(table_name(text)) == name


@pytest.mark.parametrize("text", ["", "a.b.c", "a b", "a;drop"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        OracleOptions(table=text)


def test_a_connection_is_set_up_so_that_commits_last(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOracle()
    asked: dict[str, object] = {}

    def connect(**given: object) -> FakeOracle:
        asked.update(given)
        return fake

    monkeypatch.setattr(oracledb, "connect", connect)
    OracleDialect(OracleOptions(data_source=f"scott/{SECRET}@db/shop", wallet_location="/w")).open()
    assert asked == {
        "dsn": "db/shop",
        "user": "scott",
        "password": SECRET,
        "tcp_connect_timeout": 5.0,
        "wallet_location": "/w",
        "expire_time": 1,
    }
    assert [text for text, _ in fake.log] == list(SETTINGS)
    assert fake.call_timeout == 30_000
    assert fake.outputtypehandler is not None


def test_large_objects_come_with_their_rows() -> None:
    class Cursor:
        arraysize = 7

        def var(self, kind: Any, arraysize: int) -> tuple[Any, int]:
            return kind, arraysize

    class Column:
        def __init__(self, kind: Any) -> None:
            self.type_code = kind

    fake = FakeOracle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracledb, "connect", lambda **_: fake)
        OracleDialect(OracleOptions()).open()
    handler = fake.outputtypehandler
    assert handler(Cursor(), Column(oracledb.DB_TYPE_CLOB)) == (oracledb.DB_TYPE_LONG, 7)
    assert handler(Cursor(), Column(oracledb.DB_TYPE_BLOB)) == (oracledb.DB_TYPE_LONG_RAW, 7)
    assert handler(Cursor(), Column(oracledb.DB_TYPE_VARCHAR)) is None


def test_nobody_listens() -> None:
    dialect = OracleDialect(OracleOptions(data_source=f"scott/{SECRET}@127.0.0.1:{free_port()}/shop"))
    with pytest.raises(DriverError, match="DPY-6005") as caught:
        dialect.connect()
    assert caught.value.retryable
    assert SECRET not in str(caught.value)
    assert [finding.level for finding in dialect.check()] == [Level.ERROR]


def test_a_host_without_an_address_may_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(oracledb, "connect", nowhere)
    with pytest.raises(DriverError, match="Name or service") as caught:
        OracleDialect(OracleOptions()).connect()
    assert caught.value.retryable


def test_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessDenied, match="put user and password into dataSource"):
        OracleDialect(OracleOptions(data_source="tcp://127.0.0.1:1/shop")).connect()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((database_error(code), ErrorKind.TRANSIENT) for code in (
            28, 40, 54, 60, 600, 1012, 1033, 1034, 1089, 1555, 2392, 2393, 2399, 3113, 3114, 3135, 8177,
            12170, 12514, 12535, 12541, 16000, 30006, 56735,
        )),
        *((driver_error(code), ErrorKind.TRANSIENT) for code in (1001, 4011, 4024, 6000, 6001, 6005)),
        *((database_error(code), ErrorKind.ACCESS_DENIED) for code in (
            1005, 1017, 1031, 1045, 28000, 28001, 41900,
        )),
        (driver_error(4001), ErrorKind.ACCESS_DENIED),
        (database_error(942), ErrorKind.NO_TABLE),
        (database_error(955), ErrorKind.EXISTS),
        (database_error(1), ErrorKind.EXISTS),
        *((database_error(code), ErrorKind.PERMANENT) for code in (904, 1400, 12899, 2014)),
        *((driver_error(code), ErrorKind.PERMANENT) for code in (4000, 4010, 6002)),
    ],
    ids=str,
)  # fmt: skip
def test_errors_mean_what_their_codes_say(error: Exception, kind: ErrorKind) -> None:
    assert isinstance(error, oracledb.Error)
    assert error_kind(error) is kind


def test_what_the_stasher_binds() -> None:
    offered = outbox_dialect().insert
    assert offered is not None
    insert = offered("shop.outbox", {})
    assert insert.sql.startswith('INSERT INTO "SHOP"."OUTBOX" (create_time, kafka_topic')
    assert insert.bind(Record("t", "", ""))["kafka_value"] == EMPTY
    assert insert.bind(Record("t", "k", b""))["kafka_value"] == EMPTY.encode()
    assert insert.bind(Record("t", "k", None))["kafka_value"] is None


@pytest.mark.parametrize("record", [Record("t", "é" * 2001), Record("t", "k", EMPTY)])
def test_what_the_table_cannot_hold_is_refused(record: Record) -> None:
    fake = FakeOracle()
    with pytest.raises(RecordError, match=r"key is longer|stands for an empty one"):
        Stasher("outbox", "oracle").prepare(_application(fake)).stash(record)
    assert fake.log == []


def test_an_application_stashes_by_named_binds() -> None:
    fake = FakeOracle()
    Stasher("outbox", "oracle").stash_many(_application(fake), [Record("t", "", "v"), Record("t", "k", "")])
    ((sql, rows),) = fake.log
    assert "VALUES (SYSTIMESTAMP, :kafka_topic, :kafka_key, :kafka_value, :kafka_header_keys," in sql
    assert [row["kafka_value"] for row in rows] == ["v", EMPTY]


def _application(fake: FakeOracle) -> Any:
    """A connection of the driver's own module, where the stasher looks for its style."""
    kind = type("Connection", (), {"__module__": "oracledb", "cursor": lambda _: fake.cursor()})
    return kind()


GOOD = {
    "^SELECT SYS_EXTRACT_UTC": [(datetime(2026, 3, 1),)],  # noqa: DTZ001 - as the driver gives it
    "NLS_CHARACTERSET": [("AL32UTF8",)],
    r"v_\$database": [("READ WRITE", "MAXIMUM PERFORMANCE", "ARCHIVELOG")],
    "^SELECT index_name": [("J", column.upper()) for column in JOURNAL_INDEX],
    "all_ind_columns": [(1,)],
    "SELECT s.last_number": [(7,)],
    "SELECT identity_options": [("START WITH: 1, CACHE_SIZE: 1000, ORDER_FLAG: Y",)],
}


def checked(monkeypatch: pytest.MonkeyPatch, **replies: Any) -> dict[str, Any]:
    fake = FakeOracle({**replies, **{name: rows for name, rows in GOOD.items() if name not in replies}})
    monkeypatch.setattr(oracledb, "connect", lambda **_: fake)
    return {finding.subject: finding for finding in OracleDialect(OracleOptions()).check()}


def test_the_check_judges_what_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(monkeypatch)
    for subject in ("connection", "version", "character set", "session", "durability", "privileges", "ids"):
        assert found[subject].level is Level.OK


@pytest.mark.parametrize(
    ("pattern", "reply", "subject", "level"),
    [
        ("NLS_CHARACTERSET", [("WE8MSWIN1252",)], "character set", Level.WARNING),
        (r"v_\$database", [("READ ONLY", "x", "ARCHIVELOG")], "durability", Level.ERROR),
        (r"v_\$database", [("READ WRITE", "x", "NOARCHIVELOG")], "durability", Level.WARNING),
        (r"v_\$database", database_error(942), "durability", Level.OK),
        ("COUNT.*all_ind_columns", [(0,)], "index", Level.WARNING),
        ("SELECT identity_options", [("CACHE_SIZE: 20, ORDER_FLAG: N",)], "ids", Level.WARNING),
        (r'^DELETE FROM "OUTBOX" WHERE 1', database_error(1031), "privileges", Level.ERROR),
        (r'FROM "OUTBOX" WHERE 1 = 0', database_error(942), "outbox table", Level.ERROR),
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
        ("tenant_*.outbox", ['"tenant_C"."Outbox"', "TENANT_A.OUTBOX", "TENANT_B.OUTBOX"], False),
        ('"tenant_C".*', ['"tenant_C"."Outbox"'], False),
        ("other.outbox", ["OTHER.OUTBOX"], False),
        ("Out*", ['"Outbox"', "OUTBOX", "OUTBOX", "OUTBOX"], True),
    ],
)
def test_outboxes_are_found_by_a_pattern(
    monkeypatch: pytest.MonkeyPatch, pattern: str, found: list[str], *, here: bool
) -> None:
    tables = [("TENANT_B", "OUTBOX"), ("TENANT_A", "OUTBOX"), ("tenant_C", "Outbox"), ("OTHER", "OUTBOX")]
    fake = FakeOracle({"all_tab_columns": tables})
    monkeypatch.setattr(oracledb, "connect", lambda **_: fake)
    assert OracleDialect(OracleOptions()).find_outboxes(pattern) == found
    [(asked, _)] = fake.sent("SELECT schema_name")
    assert ("schema_name = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')" in asked) == here
    assert fake.closed


@pytest.mark.parametrize("pattern", ["", "a b", "a.b.c", '"outbox*'])
def test_a_malformed_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        OracleDialect(OracleOptions()).find_outboxes(pattern)
