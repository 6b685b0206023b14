"""A session that leads to several databases: a record is in the database of its business row, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_api import AsyncStasher, Record, Seam, Stasher, find
from outbox_api.application.inbox import Inbox
from sqlalchemy import Column, Engine, Integer, create_engine, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker

RECORD = Record("orders", key="k", value="v")
STASHER = Stasher("outbox", "sqlite")
SEVERAL = "leads to several databases"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)


class Routing(Session):
    """Writes to one database, and reads from another, as applications with replicas do."""

    engines: tuple[Engine, Engine]

    def get_bind(self, *_: Any, **__: Any) -> Engine:
        return self.engines[1 if self._flushing else 0]


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    def made(name: str) -> Engine:
        engine = create_engine(f"sqlite:///{tmp_path}/{name}.db")
        Base.metadata.create_all(engine)
        driver = find(Seam.DIALECT, "sqlite")
        with engine.begin() as connection:
            ddl = driver.create(driver.options(data_source=str(tmp_path / name))).ddl()
            for statement in (*ddl, *Inbox("billing", "sqlite").ddl()):
                connection.execute(text(statement))
        return engine

    one, two = made("one"), made("two")
    yield one, two
    one.dispose()
    two.dispose()


def counted(engine: Engine) -> tuple[int, int]:
    """Returns the business rows of a database, and its records."""
    with engine.connect() as connection:
        orders = connection.execute(select(func.count()).select_from(Order)).scalar_one()
        return orders, connection.execute(text("SELECT count(*) FROM outbox")).scalar_one()


def by_class(one: Engine, two: Engine) -> Session:
    return Session(one, binds={Order: two})


def by_base(one: Engine, two: Engine) -> Any:
    return scoped_session(sessionmaker(one, binds={Base: two}))


def by_routing(one: Engine, two: Engine) -> Session:
    Routing.engines = (one, two)
    return Routing()


@pytest.mark.parametrize("opened", [by_class, by_base, by_routing])
@pytest.mark.parametrize(
    "write", [STASHER.stash, lambda session, _: Inbox("billing", "sqlite").first(session, "1")]
)
def test_a_record_is_not_written_beside_another_databases_row(
    engines: tuple[Engine, Engine], opened: Callable[..., Any], write: Callable[..., Any]
) -> None:
    session = opened(*engines)
    session.add(Order())
    with pytest.raises(ValueError, match=SEVERAL):
        write(session, RECORD)
    session.rollback()
    assert [counted(engine) for engine in engines] == [(0, 0), (0, 0)]
    session.add(Order())
    STASHER.stash(session.connection(bind_arguments={"bind": engines[1]}), RECORD)
    session.commit()
    getattr(session, "remove", session.close)()
    assert [counted(engine) for engine in engines] == [(0, 0), (1, 1)]


def test_a_session_with_several_names_for_one_database_is_not_refused(engines: tuple[Engine, Engine]) -> None:
    one, _ = engines
    with Session(one, binds={Order: one}) as session, session.begin(), session.begin_nested():
        session.add(Order())
        STASHER.stash(session, RECORD)
    assert counted(one) == (1, 1)
    with one.connect() as connection, Session(connection) as session, session.begin():
        session.add(Order())
        STASHER.stash(session, RECORD)
    assert counted(one) == (2, 2)


async def test_an_asynchronous_session_is_likewise(engines: tuple[Engine, Engine]) -> None:
    one, two = (create_async_engine(f"sqlite+aiosqlite:///{engine.url.database}") for engine in engines)
    stasher = AsyncStasher("outbox", "sqlite")
    async with AsyncSession(one, binds={Order: two}) as session:
        with pytest.raises(ValueError, match=SEVERAL):
            await stasher.stash(session, RECORD)
    async with AsyncSession(one) as session, session.begin():
        session.add(Order())
        await stasher.stash(session, RECORD)
    assert counted(engines[0]) == (1, 1)
    await one.dispose()
    await two.dispose()
