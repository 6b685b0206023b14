"""Records written into MySQL and MariaDB over what applications have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import django
import pymysql
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from outbox_api import AsyncStasher, Record, RecordError
from outbox_mysql.options import DataSource
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box
from pymysql.cursors import DictCursor
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

RECORDS = [Record("orders", f"k{n}", f"100% 'é' 🌍 {n}", (("h", None), ("h", "1"))) for n in range(3)]
WHERE = ["host", "port", "user", "password", "database"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def box(under: OutboxUnderTest, stack: ExitStack) -> Box:
    box = Box(under, stack)
    box.dialect.create()
    return box


def place(box: Box) -> dict[str, Any]:
    address = DataSource.parse(box.options.data_source)
    return {name: getattr(address, name) for name in WHERE}


def url(box: Box, driver: str) -> sqlalchemy.URL:
    found = place(box)
    return sqlalchemy.URL.create(f"mysql+{driver}", username=found.pop("user"), **found)


def plain(box: Box, stack: ExitStack, **how: Any) -> Any:
    connection = stack.enter_context(pymysql.connect(**place(box), **how))
    return connection, connection.commit, connection.rollback


def of_dicts(box: Box, stack: ExitStack) -> Any:
    return plain(box, stack, cursorclass=DictCursor)


def in_ansi_mode(box: Box, stack: ExitStack) -> Any:
    return plain(box, stack, sql_mode="ANSI,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES")


def begun(box: Box, stack: ExitStack) -> Any:
    connection, commit, rollback = plain(box, stack, autocommit=True)
    connection.begin()
    return connection, commit, rollback


def cursor(box: Box, stack: ExitStack) -> Any:
    connection, commit, rollback = plain(box, stack)
    return connection.cursor(), commit, rollback


def alchemy_connection(box: Box, stack: ExitStack) -> Any:
    engine = sqlalchemy.create_engine(url(box, "pymysql"))
    stack.callback(engine.dispose)
    connection = stack.enter_context(engine.connect())
    return connection, connection.commit, connection.rollback


def alchemy_session(box: Box, stack: ExitStack) -> Any:
    engine = sqlalchemy.create_engine(url(box, "pymysql"))
    stack.callback(engine.dispose)
    session = stack.enter_context(Session(engine))
    return session, session.commit, session.rollback


KINDS = [plain, of_dicts, in_ansi_mode, begun, cursor, alchemy_connection, alchemy_session]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_records_share_the_fate_of_the_transaction(
    box: Box, stack: ExitStack, kind: Callable[[Box, ExitStack], Any]
) -> None:
    connection, commit, rollback = kind(box, stack)
    box.stasher.stash(connection, RECORDS[0])
    box.stasher.stash_many(connection, RECORDS[1:])
    assert box.survey() == []
    commit()
    found = box.lead().mark()
    assert [(record.key, record.value, tuple(record.headers)) for record in found] == [
        (record.key, record.value, record.headers) for record in RECORDS
    ]
    if kind is not begun:
        box.stasher.stash_many(connection, RECORDS)
        rollback()
        assert len(box.survey()) == 3


def test_autocommit_is_refused(box: Box, stack: ExitStack) -> None:
    connection, _, _ = plain(box, stack, autocommit=True)
    engine = sqlalchemy.create_engine(url(box, "pymysql"), isolation_level="AUTOCOMMIT")
    stack.callback(engine.dispose)
    for each in (connection, connection.cursor(), stack.enter_context(engine.connect())):
        with pytest.raises(ValueError, match="autocommit"):
            box.stasher.stash(each, RECORDS[0])


async def test_records_are_written_over_asynchronous_connections(box: Box) -> None:
    stasher = AsyncStasher(box.options.table, "mysql")
    engine = create_async_engine(url(box, "aiomysql"))
    async with engine.begin() as connection:
        await stasher.stash(connection, RECORDS[0])
    async with AsyncSession(engine) as session:
        await stasher.stash_many(session, RECORDS[1:])
        await session.commit()
        await stasher.stash(session, RECORDS[0])
        await session.rollback()
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with alone.connect() as connection:
        with pytest.raises(ValueError, match="autocommit"):
            await stasher.stash(connection, RECORDS[0])
    await engine.dispose()
    assert box.survey() == [record.value for record in RECORDS]


def test_records_are_written_in_djangos_atomic_blocks(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    pymysql.install_as_MySQLdb()
    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None)
        django.setup()
    database = {"ENGINE": "django.db.backends.mysql"}
    database |= {
        ("NAME" if name == "database" else name.upper()): value for name, value in place(box).items()
    }
    known = connections.configure_settings({"default": {}, "shop": database})
    monkeypatch.setitem(connections.settings, "shop", known["shop"])
    with transaction.atomic(using="shop"), connections["shop"].cursor() as open_cursor:
        box.stasher.stash(open_cursor, RECORDS[0])
        box.stasher.stash_many(connections["shop"], RECORDS[1:])
    with transaction.atomic(using="shop"):
        box.stasher.stash(connections["shop"], RECORDS[0])
        transaction.set_rollback(True, using="shop")
    with pytest.raises(ValueError, match="atomic"):
        box.stasher.stash(connections["shop"], RECORDS[0])
    connections["shop"].close()
    del connections["shop"]
    assert box.survey() == [record.value for record in RECORDS]


def test_a_key_that_is_longer_than_the_column_is_refused(box: Box) -> None:
    box.stash(Record("orders", "k" * 65_535, "v"))
    with pytest.raises(RecordError, match="65,535 bytes"):
        box.stash(Record("orders", "é" * 32_768, "w"))
    assert box.survey() == ["v"]


def test_a_record_that_is_larger_than_a_packet_fails_and_leaves_nothing(box: Box) -> None:
    connection = box.application()
    connection.cursor().execute("SELECT @@max_allowed_packet")
    with connection.cursor() as asked:
        asked.execute("SELECT @@max_allowed_packet")
        [(size,)] = asked.fetchall()
    with pytest.raises(pymysql.OperationalError, match=r"max_allowed_packet|gone away|Lost connection"):
        box.stasher.stash(connection, Record("orders", "k", "v" * int(size)))
    assert box.survey() == []
