"""Records written inside the caller's transaction, over every kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
from outbox_api import AsyncStasher, OutboxError, PluginError, Record, RecordError, Stasher
from psycopg.adapt import PyFormat
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

TABLE = """
CREATE TABLE {table} (
    id BIGSERIAL PRIMARY KEY, create_time TIMESTAMPTZ NOT NULL, kafka_topic VARCHAR(249) NOT NULL,
    kafka_key VARCHAR(100) NOT NULL, kafka_value {type}, kafka_header_keys TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL, leader_id UUID)
"""
FULL = Record("orders", "key-1", 'va"lu\\e é', (("a", "1"), ("a", b"2"), ("none", None)))
FULL_ROW = ("orders", "key-1", 'va"lu\\e é', ["a", "a", "none"], ["1", "2", None])
BARE = Record("orders", "")
BARE_ROW: tuple[Any, ...] = ("orders", "", None, [], [])


@pytest.fixture
def dsn(postgres_dsn: str) -> str:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(TABLE.format(table="outbox", type="VARCHAR(10000)"))
    return postgres_dsn


@pytest.fixture
def rows(dsn: str) -> Iterator[Callable[[], list[tuple[Any, ...]]]]:
    """Returns what another session sees of the outbox, in the order of ids."""
    columns = "kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    with psycopg.connect(dsn, autocommit=True) as other:
        yield lambda: other.execute(f"SELECT {columns} FROM outbox ORDER BY id").fetchall()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def url(dsn: str) -> sqlalchemy.URL:
    where = conninfo_to_dict(dsn)
    return sqlalchemy.URL.create(
        "postgresql+psycopg",
        username=str(where["user"]),
        password=str(where.get("password") or "") or None,
        host=str(where["host"]),
        port=int(where.get("port") or 5432),
        database=str(where["dbname"]),
    )


Open = Callable[[str, ExitStack], tuple[Any, Callable[[], None], Callable[[], None]]]
"""What to stash over, and how to commit and roll back."""


def psycopg_connection(
    dsn: str, stack: ExitStack, **how: Any
) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    connection = stack.enter_context(psycopg.connect(dsn, **how))
    return connection, connection.commit, connection.rollback


def psycopg_raw(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    return psycopg_connection(dsn, stack, cursor_factory=psycopg.RawCursor)


def psycopg_client(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    return psycopg_connection(dsn, stack, cursor_factory=psycopg.ClientCursor)


def psycopg_cursor(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    connection, commit, rollback = psycopg_connection(dsn, stack)
    return connection.cursor(), commit, rollback


def psycopg_server_cursor(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    connection, commit, rollback = psycopg_connection(dsn, stack)
    return stack.enter_context(connection.cursor("named")), commit, rollback


def sqlalchemy_connection(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    engine = sqlalchemy.create_engine(url(dsn))
    stack.callback(engine.dispose)
    connection = stack.enter_context(engine.connect())
    return connection, connection.commit, connection.rollback


def sqlalchemy_session(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    engine = sqlalchemy.create_engine(url(dsn))
    stack.callback(engine.dispose)
    session = stack.enter_context(Session(engine))
    return session, session.commit, session.rollback


def sqlalchemy_scoped(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    engine = sqlalchemy.create_engine(url(dsn))
    stack.callback(engine.dispose)
    session = scoped_session(sessionmaker(engine))
    stack.callback(session.remove)
    return session, session.commit, session.rollback


def sqlalchemy_raw(dsn: str, stack: ExitStack) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    engine = sqlalchemy.create_engine(url(dsn))
    stack.callback(engine.dispose)
    connection = engine.raw_connection()
    stack.callback(connection.close)
    return connection, connection.commit, connection.rollback


KINDS: list[Open] = [
    psycopg_connection,
    psycopg_raw,
    psycopg_client,
    psycopg_cursor,
    psycopg_server_cursor,
    sqlalchemy_connection,
    sqlalchemy_session,
    sqlalchemy_scoped,
    sqlalchemy_raw,
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def opened(request: pytest.FixtureRequest, dsn: str, stack: ExitStack) -> Any:
    return request.param(dsn, stack)


def test_a_record_is_there_after_the_commit_and_not_before(opened: Any, rows: Any) -> None:
    connection, commit, _ = opened
    stasher = Stasher("outbox")
    stasher.stash(connection, FULL)
    stasher.stash(connection, BARE)
    assert rows() == []
    commit()
    assert rows() == [FULL_ROW, BARE_ROW]


def test_a_rollback_leaves_nothing(opened: Any, rows: Any) -> None:
    connection, _, rollback = opened
    stasher = Stasher()
    stasher.stash(connection, FULL)
    stasher.stash_many(connection, [BARE, FULL])
    stasher.prepare(connection).stash(BARE)
    rollback()
    assert rows() == []


def test_prepared_and_in_bulk(opened: Any, rows: Any) -> None:
    connection, commit, _ = opened
    stasher = Stasher()
    prepared = stasher.prepare(connection)
    for number in range(3):
        prepared.stash(Record("t", str(number)))
    prepared.stash_many([Record("t", "3"), Record("t", "4", "v", (("a", "b"),))])
    stasher.stash_many(connection, (Record("t", str(number)) for number in range(5, 8)))
    stasher.stash_many(connection, [])
    commit()
    assert [row[1] for row in rows()] == [str(number) for number in range(8)]


def test_ten_thousand_records_in_their_order(opened: Any, rows: Any) -> None:
    connection, commit, _ = opened
    Stasher().stash_many(
        connection, [Record("t", str(n % 7), f"v{n}", (("h", str(n)),)) for n in range(10_000)]
    )
    commit()
    assert [row[2] for row in rows()] == [f"v{n}" for n in range(10_000)]


def test_a_refused_record_leaves_the_transaction_as_it_was(opened: Any, rows: Any) -> None:
    connection, commit, _ = opened
    stasher = Stasher()
    stasher.stash(connection, BARE)
    with pytest.raises(RecordError, match="NUL"):
        stasher.stash_many(connection, [FULL, Record("t", "k", "a\0b"), FULL])
    commit()
    assert rows() == [BARE_ROW]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record("t", None), "key"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", b"k"), "key"),  # type: ignore[arg-type]  # the fault itself
        (Record("", "k"), "topic"),
        (Record("t" * 250, "k"), "topic"),
        (Record(None, "k"), "topic"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", {"a": 1}), "value"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", 1), "value"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", b"bytes"), "bytes_values=True"),
        (Record("t", "k", headers={"a": "b"}), "header"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", headers=None), "header"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", headers="ab"), "header"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", headers=(("a",),)), "header"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", headers=((None, "b"),)), "header"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", headers=(("a", 1),)), "header"),  # type: ignore[arg-type]  # the fault itself
        (Record("t", "k", headers=(("a", b"\xff"),)), "not UTF-8"),
        (Record("t", "k", "\ud800"), "surrogate"),
        (Record("t", "k\0"), "NUL"),
        ({"topic": "t", "key": "k"}, "Record"),
    ],
)
def test_records_that_cannot_be_stashed_are_explained(dsn: str, record: Any, reason: str) -> None:
    with psycopg.connect(dsn) as connection:
        with pytest.raises(RecordError, match=reason):
            Stasher().stash(connection, record)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE, "nothing was sent"


def test_a_value_is_not_shown_in_errors(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(RecordError) as caught:
        Stasher().stash(connection, Record("t", "k", b"s3cret"))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("kind", [psycopg_connection, psycopg_cursor, sqlalchemy_connection])
def test_bytes_values(dsn: str, stack: ExitStack, kind: Open) -> None:
    with psycopg.connect(dsn) as admin:
        admin.execute(TABLE.format(table="binary_outbox", type="BYTEA"))
    connection, commit, _ = kind(dsn, stack)
    stasher = Stasher("binary_outbox", bytes_values=True)
    stasher.stash(connection, Record("t", "k", bytes(range(256))))
    stasher.stash_many(connection, [Record("t", "k"), Record("t", "k", "a\\\\b\\101é")])
    commit()
    with psycopg.connect(dsn) as reader:
        values = [value for (value,) in reader.execute("SELECT kafka_value FROM binary_outbox ORDER BY id")]
    assert values == [bytes(range(256)), None, "a\\\\b\\101é".encode()]


@pytest.mark.parametrize(
    "kind", [psycopg_connection, psycopg_cursor, sqlalchemy_connection, sqlalchemy_session]
)
@pytest.mark.parametrize("many", [False, True])
def test_text_never_turns_into_other_bytes(dsn: str, stack: ExitStack, kind: Open, many: bool) -> None:
    with psycopg.connect(dsn) as admin:
        admin.execute(TABLE.format(table="binary_outbox", type="BYTEA"))
    connection, _, _ = kind(dsn, stack)
    records = [Record("t", "k"), Record("t", "k", "a\\\\b")] if many else [Record("t", "k", "a\\\\b")]
    with pytest.raises(
        (psycopg.Error, sqlalchemy.exc.DBAPIError), match="is of type bytea but expression is of type"
    ):
        Stasher("binary_outbox").stash_many(connection, records)


def test_names_that_need_quotes(dsn: str) -> None:
    name = '"we:ird %s {topic} ""table"""'
    with psycopg.connect(dsn) as connection:
        connection.execute(TABLE.format(table=name, type="TEXT"))
        Stasher(name).stash(connection, FULL)
        connection.commit()
        engine = sqlalchemy.create_engine(url(dsn))
        with engine.begin() as other:
            Stasher(name).stash(other, FULL)
        engine.dispose()
        count = connection.execute(b"SELECT count(*) FROM " + name.encode()).fetchone()
    assert count == (2,)


def test_an_autocommit_connection_is_refused_unless_a_transaction_is_open(dsn: str, rows: Any) -> None:
    stasher = Stasher()
    with psycopg.connect(dsn, autocommit=True) as connection:
        for stash in (
            stasher.stash,
            lambda c, r: stasher.stash_many(c, [r]),
            lambda c, r: stasher.prepare(c).stash(r),
        ):
            with pytest.raises(ValueError, match="autocommit"):
                stash(connection, FULL)
        with connection.transaction():
            stasher.stash(connection, FULL)
        with connection.transaction(), connection.pipeline():
            stasher.stash(connection, BARE)
        with connection.pipeline(), connection.transaction():
            stasher.stash(connection, BARE)
        connection.execute("BEGIN")
        prepared = stasher.prepare(connection)
        prepared.stash(BARE)
        connection.execute("COMMIT")
        with pytest.raises(ValueError, match="autocommit"):
            prepared.stash(FULL)
    assert rows() == [FULL_ROW, BARE_ROW, BARE_ROW, BARE_ROW]


@pytest.mark.parametrize("where", ["engine", "connection", "session"])
def test_a_sqlalchemy_connection_in_autocommit_is_refused(dsn: str, rows: Any, where: str) -> None:
    engine = sqlalchemy.create_engine(
        url(dsn), **({} if where == "connection" else {"isolation_level": "AUTOCOMMIT"})
    )
    with engine.connect() as connection, Session(engine) as session:
        if where == "connection":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(ValueError, match="autocommit"):
            Stasher().stash(session if where == "session" else connection, FULL)
    engine.dispose()
    assert rows() == []


def test_a_transaction_that_failed_says_so(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            Stasher().stash(connection, FULL)
        connection.rollback()


@pytest.mark.parametrize("thing", [None, "dsn", object(), sqlalchemy])
def test_what_is_no_connection_is_refused(thing: object) -> None:
    with pytest.raises(TypeError, match="connection"):
        Stasher().stash(thing, FULL)


def test_an_engine_is_refused_because_it_has_no_transaction(dsn: str) -> None:
    engine = sqlalchemy.create_engine(url(dsn))
    with pytest.raises(TypeError, match="Engine"):
        Stasher().stash(engine, FULL)
    engine.dispose()


def test_a_dialect_that_is_not_installed() -> None:
    with pytest.raises(PluginError, match="nosuch"):
        Stasher("outbox", "nosuch")
    with pytest.raises(OutboxError, match="not a table name"):
        Stasher("a.b.c")


def test_the_connections_own_adapters_and_cursors_stay_as_they_were(dsn: str) -> None:
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        before = connection.adapters.get_dumper(str, PyFormat.AUTO)
        Stasher().stash(connection, FULL)
        assert connection.adapters.get_dumper(str, PyFormat.AUTO) is before
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}


async def test_asynchronous_psycopg(dsn: str, rows: Any) -> None:
    stasher = AsyncStasher()
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await stasher.stash(connection, FULL)
        await stasher.stash_many(connection.cursor(), [BARE, BARE])
        assert rows() == []
        await connection.rollback()
        prepared = stasher.prepare(connection)
        await prepared.stash(FULL)
        await prepared.stash_many([BARE, BARE])
        await stasher.stash_many(connection, [])
        await connection.commit()
        assert rows() == [FULL_ROW, BARE_ROW, BARE_ROW]
        await stasher.stash_many(connection, [Record("t", str(n)) for n in range(10_000)])
    assert len(rows()) == 10_003


async def test_asynchronous_psycopg_in_autocommit(dsn: str, rows: Any) -> None:
    stasher = AsyncStasher()
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        with pytest.raises(ValueError, match="autocommit"):
            await stasher.stash(connection, FULL)
        async with connection.transaction():
            await stasher.stash(connection, FULL)
    assert rows() == [FULL_ROW]


@pytest.mark.parametrize("kind", [AsyncConnection, AsyncSession])
async def test_asynchronous_sqlalchemy(dsn: str, rows: Any, kind: type) -> None:
    stasher = AsyncStasher()
    engine = create_async_engine(url(dsn))
    async with engine.connect() if kind is AsyncConnection else AsyncSession(engine) as connection:
        await stasher.stash(connection, FULL)
        await connection.rollback()
        await stasher.stash(connection, FULL)
        prepared = stasher.prepare(connection)
        await prepared.stash(BARE)
        await prepared.stash_many([BARE, FULL])
        assert rows() == []
        await connection.commit()
        assert rows() == [FULL_ROW, BARE_ROW, BARE_ROW, FULL_ROW]
        await stasher.stash_many(connection, [Record("t", str(n), "v") for n in range(10_000)])
        await connection.commit()
    await engine.dispose()
    assert len(rows()) == 10_004


@pytest.mark.parametrize("kind", [AsyncConnection, AsyncSession])
async def test_asynchronous_sqlalchemy_in_autocommit(dsn: str, rows: Any, kind: type) -> None:
    engine = create_async_engine(url(dsn), isolation_level="AUTOCOMMIT")
    async with engine.connect() if kind is AsyncConnection else AsyncSession(engine) as connection:
        with pytest.raises(ValueError, match="autocommit"):
            await AsyncStasher().stash(connection, FULL)
    await engine.dispose()
    assert rows() == []


async def test_an_engine_is_no_transaction(dsn: str) -> None:
    for engine in (sqlalchemy.create_engine(url(dsn)), sessionmaker(sqlalchemy.create_engine(url(dsn)))):
        with pytest.raises(TypeError, match=r"in no transaction: .*with engine\.begin\(\)"):
            Stasher().stash(engine, FULL)
    with pytest.raises(TypeError, match=r"in no transaction: .*async with engine\.begin\(\)"):
        await AsyncStasher().stash(create_async_engine(url(dsn)), FULL)


class AsyncDriverConnection:
    """As the connections of asyncpg, aiomysql or aiosqlite look."""

    async def execute(self, query: str, *arguments: object) -> None:
        """Executes a query."""


async def test_for_another_asynchronous_driver_a_way_is_named_that_works() -> None:
    cure = "AsyncStasher with SQLAlchemy's AsyncConnection or AsyncSession over this driver"
    with pytest.raises(TypeError, match=cure):
        await AsyncStasher().stash(AsyncDriverConnection(), FULL)
    with pytest.raises(TypeError, match=cure):
        Stasher().stash(AsyncDriverConnection(), FULL)


@pytest.mark.parametrize(
    ("record", "cure"),
    [
        (Record("t", 7), r"key=str\(…\) for a int"),  # type: ignore[arg-type]
        (Record("t", uuid4()), r"key=str\(…\) for a UUID"),  # type: ignore[arg-type]
        (Record("t", None), "'' for no key"),  # type: ignore[arg-type]
        (Record("t", "k", headers={"a": "b"}), r"tuple\(headers\.items\(\)\)"),  # type: ignore[arg-type]
        *((Record(topic, "k"), "a record's topic is") for topic in ("", ".", "..", "a b", "ü", "a/b", "a\n")),
    ],
)
def test_what_kafka_or_an_outbox_never_takes_is_refused_with_its_cure(record: Record, cure: str) -> None:
    with sqlite3.connect(":memory:") as connection, pytest.raises(RecordError, match=cure):
        Stasher().stash(connection, record)


async def test_the_other_kind_of_stasher_is_named(dsn: str) -> None:
    engine = create_async_engine(url(dsn))
    async with (
        await psycopg.AsyncConnection.connect(dsn) as one,
        engine.connect() as two,
        AsyncSession(engine) as three,
    ):
        for connection in (one, one.cursor(), two, three):
            with pytest.raises(TypeError, match="use AsyncStasher"):
                Stasher().stash(connection, FULL)
    await engine.dispose()
    with psycopg.connect(dsn) as synchronous, pytest.raises(TypeError, match="use Stasher"):
        await AsyncStasher().stash(synchronous, FULL)


async def test_refused_records_leave_an_asynchronous_transaction_as_it_was(dsn: str, rows: Any) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await AsyncStasher().stash(connection, BARE)
        with pytest.raises(RecordError):
            await AsyncStasher().stash_many(connection, [FULL, Record("t", "a\0")])
    await asyncio.sleep(0)
    assert rows() == [BARE_ROW]


def test_importing_outbox_api_loads_nothing_heavy() -> None:
    heavy = ["pyspark", "psycopg", "sqlalchemy", "confluent_kafka"]
    loaded = f"print([m for m in {heavy} if m in sys.modules])"
    code = f"import sys, outbox_api, outbox_api.application.stasher; {loaded}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_making_a_stasher_loads_no_database_driver() -> None:
    code = "import sys; from outbox_api import Stasher; Stasher('outbox'); print('psycopg' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
