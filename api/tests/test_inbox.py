"""A record is noted with its effects, over every kind of connection, by one of those that have it at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from outbox_api import ConfigError, PluginError, RecordError, Seam, find
from outbox_api.application.inbox import AsyncInbox, Inbox
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

HOUR = timedelta(hours=1)
AGED = {
    "postgres": "noted_at - INTERVAL '2 hours'",
    "mysql": "noted_at - INTERVAL 2 HOUR",
    "sqlite": "datetime(noted_at, '-2 hours')",
}
BRIEF = {
    "postgres": "SET lock_timeout = '2s'",
    "mysql": "SET SESSION innodb_lock_wait_timeout = 2",
    "sqlite": "PRAGMA busy_timeout = 60000",
}
RACED = 60


class Database:
    """A consumer's database with the table, as its dialect, SQLAlchemy and Django know it."""

    def __init__(self, driver: str, source: str, stack: ExitStack, scheme: str = "") -> None:
        self.driver = driver
        self.source = source
        self.scheme = scheme
        self.stack = stack
        dialect = find(Seam.DIALECT, driver)
        self._dialect = dialect.create(dialect.options(data_source=source))
        self.errors = self._dialect.idiom.errors
        self.inbox = Inbox("billing", driver)
        with closing(self._dialect.stash_connection()) as connection:
            for statement in self.inbox.ddl():
                connection.cursor().execute(statement)
            connection.cursor().execute(
                "CREATE TABLE effects (record INTEGER NOT NULL, who INTEGER NOT NULL)"
            )
            connection.commit()

    def connect(self) -> Any:
        """Connects as an application does; threads may share it."""
        connection: Any
        if self.driver == "sqlite":
            connection = sqlite3.connect(self.source, check_same_thread=False, timeout=60)
        else:
            connection = self._dialect.stash_connection()
        self.stack.callback(connection.close)
        return connection

    def url(self, library: str) -> Any:
        """Returns SQLAlchemy's URL of it, with a library."""
        if self.driver == "sqlite":
            return f"sqlite:///{self.source}"
        if self.driver == "mysql":
            return sqlalchemy.make_url(self.source).set(drivername=f"{self.scheme}+{library}", query={})
        query = conninfo_to_dict(self.source)
        return sqlalchemy.URL.create(f"postgresql+{library}", query={k: str(v) for k, v in query.items()})

    def execute(self, statement: str) -> Any:
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
        return rows


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture(params=["postgres", "mysql", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    kind: str = request.param
    file = str(tmp_path / "billing.db")
    source = file if kind == "sqlite" else request.getfixturevalue(f"{kind}_dsn")
    with ExitStack() as stack:  # closed before the database is dropped
        yield Database("mysql" if kind == "mariadb" else kind, source, stack, kind)


def test_a_record_is_new_until_its_transaction_is_committed(database: Database) -> None:
    inbox, connection = database.inbox, database.connect()
    assert inbox.first(connection, "shop:1")
    assert not inbox.first(connection, "shop:1")
    connection.rollback()
    assert inbox.first(connection, "shop:1")
    connection.commit()
    assert not inbox.first(connection, "shop:1")
    assert not inbox.first(connection.cursor(), "shop:1")
    assert inbox.first(connection.cursor(), "shop:2")
    assert Inbox("shipping", database.driver).first(connection, "shop:1")
    connection.commit()
    assert not inbox.first(database.connect(), "shop:1")


def test_ids_differ_in_every_character(database: Database) -> None:
    longest = "".join(map(chr, range(ord("!"), ord("~") + 1))).ljust(300, "x")
    ids = ["a", "A", "%s", ":a", "{a}", "a" * 299, longest, longest[:-1]]
    connection, inbox = database.connect(), Inbox("c" * 100, database.driver)
    assert [inbox.first(connection, each) for each in ids * 2] == [True] * len(ids) + [False] * len(ids)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_who_has_a_record_that_another_has_too_waits_for_its_end(database: Database, ending: str) -> None:
    one, other = database.connect(), database.connect()
    with ThreadPoolExecutor(1) as thread:
        assert database.inbox.first(one, "shop:1")
        waiting = thread.submit(database.inbox.first, other, "shop:1")
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        getattr(one, ending)()
        assert waiting.result(60) == (ending == "rollback")


def test_of_many_that_race_for_records_and_fail_now_and_then_each_is_taken_once(database: Database) -> None:
    def consume(who: int) -> None:
        random, connection = Random(who), database.connect()
        for record in range(RACED):
            start.wait(60)
            while True:
                try:
                    if database.inbox.first(connection, f"shop:{record}"):
                        connection.cursor().execute(f"INSERT INTO effects VALUES ({record}, {who})")
                        if random.random() < 0.3:
                            connection.rollback()
                            continue
                    connection.commit()
                    break
                except database.errors:  # a deadlock: the database has ended one of them
                    connection.rollback()

    start = Barrier(4)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(consume, range(4)))
    taken = database.execute("SELECT record FROM effects")
    assert sorted(record for (record,) in taken) == list(range(RACED))


def test_old_notes_are_forgotten_a_number_at_a_time(database: Database) -> None:
    inbox, other, connection = database.inbox, Inbox("shipping", database.driver), database.connect()
    for number in range(15):
        inbox.first(connection, f"old:{number}")
    other.first(connection, "old:0")
    connection.cursor().execute(f"UPDATE outbox_inbox SET noted_at = {AGED[database.driver]}")
    for number in range(5):
        inbox.first(connection, f"young:{number}")
    connection.commit()
    at_work = database.connect()
    at_work.cursor().execute(BRIEF[database.driver])
    at_work.commit()

    counts = []
    for number in range(4):
        counts.append(inbox.forget(connection, HOUR, 8))
        if database.driver != "postgres":  # others may wait, but not for what is left
            connection.commit()
        assert inbox.first(at_work, f"new:{number}")
        at_work.commit()
        connection.commit()
    assert counts == [8, 7, 0, 0]
    assert not inbox.first(connection, "young:4")
    assert inbox.first(connection, "old:0")
    assert not other.first(connection, "old:0")
    connection.rollback()
    assert inbox.forget(connection, -HOUR) == 9


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_over_sqlalchemy(database: Database, kind: str) -> None:
    engine = sqlalchemy.create_engine(database.url("psycopg" if database.driver == "postgres" else "pymysql"))
    database.stack.callback(engine.dispose)
    connection: Any = database.stack.enter_context(
        engine.connect() if kind == "connection" else Session(engine)
    )
    for ending in (connection.rollback, connection.commit):
        assert database.inbox.first(connection, "shop:1")
        assert not database.inbox.first(connection, "shop:1")
        ending()
    assert not database.inbox.first(connection, "shop:1")
    assert database.inbox.forget(connection, -HOUR) == 1


@pytest.mark.parametrize("kind", [AsyncConnection, AsyncSession])
@pytest.mark.parametrize("server", ["postgres", "mysql"])
async def test_over_asynchronous_sqlalchemy(
    request: pytest.FixtureRequest, stack: ExitStack, kind: type, server: str
) -> None:
    database = Database(server, request.getfixturevalue(f"{server}_dsn"), stack, server)
    inbox = AsyncInbox("billing", server)
    engine = create_async_engine(database.url("psycopg" if server == "postgres" else "aiomysql"))
    async with engine.connect() if kind is AsyncConnection else AsyncSession(engine) as connection:
        for ending in (connection.rollback, connection.commit):
            assert await inbox.first(connection, "shop:1")
            assert not await inbox.first(connection, "shop:1")
            await ending()
        assert not await inbox.first(connection, "shop:1")
        assert await inbox.forget(connection, -HOUR) == 1
        await connection.commit()
    await engine.dispose()


async def test_over_asynchronous_psycopg(postgres_dsn: str, stack: ExitStack) -> None:
    Database("postgres", postgres_dsn, stack)
    inbox = AsyncInbox("billing")
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
        assert await inbox.first(connection, "shop:1")
        assert not await inbox.first(connection.cursor(), "shop:1")
        await connection.commit()
        assert await inbox.forget(connection, -HOUR) == 1
        with pytest.raises(TypeError, match="asynchronous: use AsyncInbox"):
            Inbox("billing").first(connection, "shop:1")


def test_over_django(postgres_dsn: str, stack: ExitStack) -> None:
    inbox = Database("postgres", postgres_dsn, stack).inbox
    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None)
        django.setup()
    named = conninfo_to_dict(postgres_dsn)
    keys = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    known = {name: named[key] for name, key in keys.items() if key in named}
    known["ENGINE"] = "django.db.backends.postgresql"
    connections.settings["billing"] = connections.configure_settings({"default": {}, "billing": known})[
        "billing"
    ]
    connection = connections["billing"]
    try:
        with transaction.atomic(using="billing"):
            assert inbox.first(connection, "shop:1")
            with connection.cursor() as cursor:
                assert not inbox.first(cursor, "shop:1")
            with transaction.atomic(using="billing"):
                assert inbox.first(connection, "shop:2")
                transaction.set_rollback(True, using="billing")
        with transaction.atomic(using="billing"):
            assert [inbox.first(connection, f"shop:{number}") for number in (1, 2)] == [False, True]
        with pytest.raises(ValueError, match="atomic"):
            inbox.first(connection, "shop:3")
    finally:
        connection.close()
        del connections["billing"], connections.settings["billing"]


def test_what_nobody_could_rely_on_is_refused(postgres_dsn: str, stack: ExitStack) -> None:
    inbox = Database("postgres", postgres_dsn, stack).inbox
    with psycopg.connect(postgres_dsn) as connection:
        for each in ("", "two words", "trailing ", "é", "x" * 301, "nul\0", "line\n", None, 7, b"shop:1"):
            with pytest.raises(RecordError, match="visible characters"):
                inbox.first(connection, each)  # type: ignore[arg-type]  # the fault itself
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE, "nothing was sent"
        with connection.pipeline(), pytest.raises(RuntimeError, match="pipeline"):
            inbox.first(connection, "shop:1")
        connection.rollback()
        connection.autocommit = True
        with pytest.raises(ValueError, match="autocommit"):
            inbox.first(connection, "shop:1")
        with connection.transaction():
            assert inbox.first(connection, "shop:1")
    with pytest.raises(TypeError, match="Inbox takes"):
        inbox.first(postgres_dsn, "shop:1")
    for consumer in ("", "two words", "c" * 101):
        with pytest.raises(ConfigError, match="consumer is"):
            Inbox(consumer)
    with pytest.raises(PluginError, match="mongo"):
        Inbox("billing", "mongo")
    with pytest.raises(ConfigError, match="table name"):
        Inbox("billing", table="a.b.c")


def test_the_table_has_any_name(postgres_dsn: str) -> None:
    inbox = Inbox("billing", table='"{my} sh%p"."in:box"')
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute('CREATE SCHEMA "{my} sh%p"')
        for statement in inbox.ddl():
            connection.execute(statement.encode())
        assert [inbox.first(connection, "shop:1") for _ in range(2)] == [True, False]
        assert inbox.forget(connection, -HOUR) == 1


@pytest.mark.parametrize(
    "headers",
    [
        [("type", b"paid"), ("outbox-id", b"shop:1")],  # confluent-kafka
        (("outbox-id", b"shop:1"), ("type", None)),  # aiokafka
        {"outbox-id": b"shop:1"},
        {"outbox-id": "shop:1"},
        {"outbox-id": bytearray(b"shop:1")},
        {"outbox-id": memoryview(b"shop:1")},
        [("outbox-id", b"older:1"), ("outbox-id", None), ("outbox-id", b"shop:1")],
    ],
)
def test_the_id_is_read_from_a_message(headers: Any) -> None:
    assert Inbox.id_of(headers) == "shop:1"


@pytest.mark.parametrize("headers", [None, [], {}, [("Outbox-Id", b"shop:1")], [("outbox-id", None)]])
def test_a_message_without_id_says_what_to_do(headers: Any) -> None:
    with pytest.raises(RecordError, match=r"transform: \[\{driver: identity\}\]"):
        Inbox.id_of(headers)
