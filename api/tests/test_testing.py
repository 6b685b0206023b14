"""The fixture of applications' tests sees what is committed, and the examples of its page pass."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import django
import psycopg
import pymysql
import pytest
from django.conf import settings
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper
from outbox_api import AsyncStasher, Record, Stasher
from outbox_api.application.sqlalchemy import outbox_table
from outbox_api.application.testing import Stashed, place
from outbox_servers.services import connect_mysql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
FILE = re.compile(r"```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)
SECTIONS = {
    title: dict(FILE.findall(text))
    for title, text in re.findall(
        r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
}
FULL = Record("orders", "é 42", "100% 'ü'", (("source", "shop"), ("source", None)))
TOMBSTONE = Record("orders", "42")


@pytest.fixture(params=["postgres", "mysql", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "sqlite":
        return "sqlite", str(tmp_path / "shop.db")
    driver = "postgres" if request.param == "postgres" else "mysql"
    return driver, request.getfixturevalue(f"{request.param}_dsn")


def connect(database: tuple[str, str]) -> Any:
    driver, source = database
    opened: dict[str, Callable[[], Any]] = {
        "postgres": lambda: psycopg.connect(source, row_factory=dict_row),
        "mysql": lambda: pymysql_connection(source),
        "sqlite": lambda: sqlite3.connect(source),
    }
    return opened[driver]()


def pymysql_connection(source: str) -> Any:
    connection = connect_mysql(source)
    connection.autocommit(False)
    connection.cursorclass = pymysql.cursors.DictCursor
    return connection


def engine_of(database: tuple[str, str]) -> Engine:
    driver, source = database
    if driver == "postgres":
        return create_engine(f"postgresql+psycopg://?{urlencode(conninfo_to_dict(source))}")
    if driver == "mysql":
        return create_engine(make_url(source).set(drivername="mysql+pymysql", query={"charset": "utf8mb4"}))
    return create_engine(f"sqlite:///{source}")


def test_what_is_committed_is_seen_and_nothing_else(database: tuple[str, str]) -> None:
    Stashed(database)  # creates the tables
    connection, stasher = connect(database), Stasher(dialect=database[0])
    stasher.stash(connection, Record("orders", "earlier"))
    connection.commit()
    engine = engine_of(database)
    views = [Stashed(database), Stashed(engine), Stashed(place(engine))]

    stasher.stash(connection, FULL)
    assert [len(each) for each in views] == [0, 0, 0]
    connection.rollback()
    assert [len(each) for each in views] == [0, 0, 0]
    stasher.stash_many(connection, [FULL, TOMBSTONE])
    connection.commit()

    for each in views:
        assert list(each) == [FULL, TOMBSTONE]
        assert each.one(key="42") == TOMBSTONE
        assert each.of("orders") == [FULL, TOMBSTONE]
        assert each.of("orders", "43") == []
        with pytest.raises(
            AssertionError, match=r"^2 records of topic 'orders' were stashed, not one; .*'42'"
        ):
            each.one("orders")
        with pytest.raises(
            AssertionError, match=r"^0 records of topic 'bills' with key '1' were .*orders 'é 42'"
        ):
            each.one("bills", "1")
    connection.close()
    engine.dispose()


def test_the_tests_own_connection_sees_its_transaction(database: tuple[str, str]) -> None:
    Stashed(database)
    connection, stasher = connect(database), Stasher(dialect=database[0])
    own = Stashed(connection)
    stasher.stash(connection, FULL)
    assert own.one() == FULL
    connection.rollback()
    assert len(own) == 0
    connection.close()

    engine = engine_of(database)
    with engine.connect() as opened, Session(opened) as session:
        views = [Stashed(opened), Stashed(session)]
        stasher.stash(session, FULL)
        assert [each.one() for each in views] == [FULL, FULL]
        session.rollback()
        assert [len(each) for each in views] == [0, 0]
    engine.dispose()


def test_a_database_in_memory_will_do() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata = MetaData()
    outbox_table(metadata, "sqlite", table="sales")
    metadata.create_all(engine)
    stashed = Stashed(engine, table="sales")
    with engine.begin() as connection:
        Stasher("sales", "sqlite").stash(connection, FULL)
    assert stashed.one() == FULL
    engine.dispose()


def test_bytes_come_as_bytes(postgres_dsn: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_dsn))
    metadata = MetaData()
    outbox_table(metadata, "postgres", value_type="bytea")
    metadata.create_all(engine)
    stashed = Stashed(engine)
    with engine.begin() as connection:
        Stasher(bytes_values=True).stash(connection, Record("orders", "42", b"\x00\xff"))
    assert stashed.one().value == b"\x00\xff"
    engine.dispose()


def test_djangos_connection_is_read(tmp_path: Path) -> None:
    source = str(tmp_path / "shop.db")
    Stashed(("sqlite", source))
    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None)
        django.setup()
    known = {"default": {}, "shop": {"ENGINE": "django.db.backends.sqlite3", "NAME": source}}
    connection = DatabaseWrapper(connections.configure_settings(known)["shop"], "shop")
    stashed = Stashed(connection)
    connection.set_autocommit(False)
    Stasher(dialect="sqlite").stash(connection, FULL)
    assert stashed.one() == FULL
    connection.rollback()
    assert len(stashed) == 0
    connection.close()


async def test_asynchronous_connections_are_read(postgres_dsn: str) -> None:
    engine = create_async_engine(engine_of(("postgres", postgres_dsn)).url)
    whole = Stashed(engine)
    async with engine.connect() as connection:
        with pytest.raises(TypeError, match="run_sync"):
            Stashed(connection)
        own = await connection.run_sync(Stashed)
        await AsyncStasher().stash(connection, FULL)
        assert await connection.run_sync(lambda _: own.one()) == FULL
        assert len(whole) == 0
        await connection.commit()
    assert whole.one() == FULL
    await engine.dispose()


def test_a_row_that_can_be_no_message_is_told(database: tuple[str, str]) -> None:
    stashed = Stashed(database)
    connection = connect(database)
    names = "ARRAY['a', 'b']" if database[0] == "postgres" else '\'["a", "b"]\''
    values = "ARRAY['1']" if database[0] == "postgres" else "'[\"1\"]'"
    cursor = connection.cursor()
    cursor.execute(
        "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)"
        f" VALUES (CURRENT_TIMESTAMP, 'orders', '42', {names}, {values})"
    )
    connection.commit()
    connection.close()
    with pytest.raises(
        AssertionError, match="can be no message: the row has 2 header names and 1 header value"
    ):
        list(stashed)


def test_what_tells_no_data_source_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot be reached by a object: return the driver name"):
        place(object())
    with pytest.raises(TypeError, match="Engine"):
        place(create_engine("mssql+pyodbc://", module=sqlite3))


@pytest.mark.parametrize("title", [title for title, files in SECTIONS.items() if files])
def test_the_examples_of_the_page_pass(
    title: str, pytester: pytest.Pytester, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SECTIONS[title]
    for name, text in files.items():
        pytester.path.joinpath(name).write_text(text, "utf-8")
    if "DATABASE_URL" in files["conftest.py"]:
        url = engine_of(("postgres", request.getfixturevalue("postgres_dsn"))).url
        monkeypatch.setenv("DATABASE_URL", url.render_as_string(hide_password=False))
    if "KAFKA" in files["conftest.py"]:
        monkeypatch.setenv("KAFKA", request.getfixturevalue("kafka_bootstrap"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts sooner
    tests = sum(text.count("def test_") for text in files.values())
    assert tests
    plugins = ["-p", "outbox_api.application.fixtures", "-p", "outbox_core.testing"]
    pytester.runpytest_subprocess("-W", "error", *plugins).assert_outcomes(passed=tests)


def test_without_a_database_the_fixture_says_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(stashed): pass")
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines("*define a fixture 'outbox_database' that returns*")
