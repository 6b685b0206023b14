"""A record is in the outbox of its business row, and noted in its inbox, whichever way names a tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from itertools import cycle
from typing import Any

import psycopg
import pytest
import sqlalchemy
from outbox_api import AsyncStasher, Record, Seam, Stasher, find
from outbox_api.application.inbox import AsyncInbox, Inbox
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from .pooler import PgBouncer

TENANTS = ("public", "tenant_a", 'Tenant "B" 5%s')
TURNS = (0, 1, 2, 1, 0, 2, 2, 1)
"""Whose transaction is next."""

Business = sqlalchemy.Table(
    "business", sqlalchemy.MetaData(), sqlalchemy.Column("number", sqlalchemy.Integer)
)
Wrote = tuple[Any, Callable[[int], Any]]
"""What to stash over, and what writes a business row over it."""
Way = Callable[[ExitStack, str], Callable[[str], AbstractContextManager[Wrote]]]
"""A data source → the schema of a tenant → a transaction of that tenant."""


@pytest.fixture
def dsn(postgres_dsn: str) -> str:
    """A database with a schema for each tenant."""
    driver = find(Seam.DIALECT, "postgres")
    with psycopg.connect(postgres_dsn) as connection:
        for tenant in TENANTS:
            name = '"{}"'.format(tenant.replace('"', '""'))
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
            connection.execute(f"CREATE TABLE {name}.business (number INTEGER)")
            made = driver.create(driver.options(data_source=postgres_dsn, table=f"{name}.outbox"))
            for statement in (*made.ddl(), *Inbox("billing", table=f"{name}.outbox_inbox").ddl()):
                connection.execute(statement.encode())
    return postgres_dsn


def path(tenant: str) -> str:
    return 'SET LOCAL search_path = "{}"'.format(tenant.replace('"', '""'))


def by_driver(
    stack: ExitStack, dsn: str, connections: int = 1
) -> Callable[[str], AbstractContextManager[Wrote]]:
    """Each transaction is of the next connection."""
    opened = cycle([stack.enter_context(psycopg.connect(dsn)) for _ in range(connections)])

    @contextmanager
    def begin(tenant: str) -> Iterator[Wrote]:
        connection = next(opened)
        with connection.transaction():
            connection.execute(path(tenant))
            yield (
                connection,
                lambda number: connection.execute(b"INSERT INTO business VALUES (%s)", (number,)),
            )

    return begin


def url(dsn: str, library: str = "psycopg") -> sqlalchemy.URL:
    at = conninfo_to_dict(dsn)
    return sqlalchemy.URL.create(
        f"postgresql+{library}",
        str(at["user"]),
        str(at.get("password") or ""),
        str(at["host"]),
        int(str(at["port"])),
        str(at["dbname"]),
    )


def engine(stack: ExitStack, dsn: str) -> sqlalchemy.Engine:
    made = sqlalchemy.create_engine(url(dsn))
    stack.callback(made.dispose)
    return made


def mapped(tenant: str) -> dict[str, Any]:
    return {"schema_translate_map": {None: tenant}}


def core(stack: ExitStack, dsn: str) -> Callable[[str], AbstractContextManager[Wrote]]:
    made = engine(stack, dsn)

    @contextmanager
    def begin(tenant: str) -> Iterator[Wrote]:
        with made.connect().execution_options(**mapped(tenant)) as connection, connection.begin():
            yield (
                connection,
                lambda number: connection.execute(Business.insert(), {"number": number}),
            )

    return begin


def session(stack: ExitStack, dsn: str) -> Callable[[str], AbstractContextManager[Wrote]]:
    made = engine(stack, dsn)

    @contextmanager
    def begin(tenant: str) -> Iterator[Wrote]:
        with Session(made.execution_options(**mapped(tenant))) as opened, opened.begin():
            yield opened, lambda number: opened.execute(Business.insert(), {"number": number})

    return begin


def session_by_connection(stack: ExitStack, dsn: str) -> Callable[[str], AbstractContextManager[Wrote]]:
    made = engine(stack, dsn)

    @contextmanager
    def begin(tenant: str) -> Iterator[Wrote]:
        with Session(made) as opened, opened.begin():
            opened.connection(execution_options=mapped(tenant))
            yield opened, lambda number: opened.execute(Business.insert(), {"number": number})

    return begin


WAYS: dict[str, Way] = {
    "psycopg": by_driver,
    "a connection of SQLAlchemy": core,
    "a session of SQLAlchemy": session,
    "a session's connection of SQLAlchemy": session_by_connection,
}


def require_together(dsn: str) -> None:
    """Makes sure that each record is with its business row."""
    with psycopg.connect(dsn) as connection:
        for place, tenant in enumerate(TENANTS):
            connection.execute(path(tenant))
            turns = [number for number, each in enumerate(TURNS) if each == place]
            rows = connection.execute("SELECT number FROM business ORDER BY 1").fetchall()
            keys = connection.execute("SELECT kafka_key FROM outbox ORDER BY id").fetchall()
            noted = connection.execute("SELECT record_id FROM outbox_inbox ORDER BY 1").fetchall()
            assert [row[0] for row in rows] == turns, tenant
            assert [row[0] for row in keys] == [str(number) for number in turns for _ in range(3)], tenant
            assert [row[0] for row in noted] == ["shop:1"], tenant
            connection.commit()


def work(begin: Callable[[str], AbstractContextManager[Wrote]]) -> None:
    """Stashes in transactions of one tenant after the other; some have it as their first statement."""
    seen: set[int] = set()
    for number, tenant in enumerate(TURNS):
        with begin(TENANTS[tenant]) as (connection, write):
            record = Record("orders", str(number))
            if number % 2:
                write(number)
            Stasher().stash(connection, record)
            Stasher().stash_many(connection, [record, record])
            assert Inbox("billing").first(connection, "shop:1") == (tenant not in seen)
            seen.add(tenant)
            if not number % 2:
                write(number)


@pytest.mark.parametrize("way", WAYS)
def test_a_record_is_with_its_tenant(dsn: str, way: str) -> None:
    with ExitStack() as stack:
        work(WAYS[way](stack, dsn))
    require_together(dsn)


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler_loses_no_transaction_that_stashes(dsn: str, mode: str) -> None:
    with PgBouncer(dsn, mode) as pooler, ExitStack() as stack:
        work(by_driver(stack, pooler.dsn, connections=3))
    require_together(dsn)


@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("kind", ["connection", "session"])
async def test_a_record_is_with_its_tenant_asynchronously(dsn: str, library: str, kind: str) -> None:
    made = create_async_engine(url(dsn, library))

    @asynccontextmanager
    async def begin(tenant: str) -> AsyncIterator[Any]:
        tenants = made.execution_options(**mapped(tenant))
        async with tenants.begin() if kind == "connection" else AsyncSession(tenants) as opened:
            yield opened
            await opened.commit()

    seen: set[int] = set()
    for number, tenant in enumerate(TURNS):
        async with begin(TENANTS[tenant]) as opened:
            record = Record("orders", str(number))
            await AsyncStasher().stash(opened, record)
            await AsyncStasher().stash_many(opened, [record, record])
            assert await AsyncInbox("billing").first(opened, "shop:1") == (tenant not in seen)
            seen.add(tenant)
            await opened.execute(Business.insert(), {"number": number})
    await made.dispose()
    require_together(dsn)
