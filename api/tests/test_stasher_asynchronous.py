"""Records written over SQLAlchemy's asynchronous drivers, each on its real server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
from outbox_api import AsyncStasher, Record
from outbox_api.application.testing import Stashed
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

RECORDS = [
    Record("orders", "é 42", "100% 'ü' \\ :a", (("source", "shop"), ("source", None))),
    Record("orders", "42"),
    Record("orders", "", ""),
]


@pytest.fixture(params=["asyncpg", "psycopg", "aiosqlite", "asyncmy", "asyncmy on mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str | URL]:
    """An outbox: the driver name of its dialect, its data source, and its address for SQLAlchemy."""
    driver: str = request.param
    if driver == "aiosqlite":
        source = str(tmp_path / "shop.db")
        return "sqlite", source, f"sqlite+aiosqlite:///{source}"
    if driver.startswith("asyncmy"):
        source = request.getfixturevalue("mariadb_dsn" if "mariadb" in driver else "mysql_dsn")
        url = make_url(source).set(drivername="mysql+asyncmy", query={"charset": "utf8mb4"})
        return "mysql", source, url
    source = request.getfixturevalue("postgres_dsn")
    named = conninfo_to_dict(source)
    named.pop("sslmode", None)  # psycopg's, which asyncpg calls otherwise
    address: dict[str, str] = {"password": ""} | {
        name: str(named.pop(name)) for name in ("user", "password", "host", "port", "dbname") if name in named
    }
    plain = "{user}:{password}@{host}:{port}/{dbname}".format_map(address)
    return "postgres", source, f"postgresql+{driver}://{plain}" + (f"?{urlencode(named)}" if named else "")


async def test_records_share_the_fate_of_the_transaction(place: tuple[str, str, str | URL]) -> None:
    dialect, source, url = place
    stasher, stashed = AsyncStasher(dialect=dialect), Stashed((dialect, source))
    engine = create_async_engine(url)
    async with AsyncSession(engine) as session:
        await stasher.stash_many(session, RECORDS)
        await session.rollback()
        await stasher.stash_many(session, RECORDS)
        await stasher.stash(session, RECORDS[0])
        assert len(stashed) == 0
        await session.commit()
    async with engine.begin() as connection:
        await stasher.stash(connection, RECORDS[1])
    assert list(stashed) == [*RECORDS, RECORDS[0], RECORDS[1]]
    alone = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with alone.connect() as connection:
        with pytest.raises(ValueError, match="autocommit"):
            await stasher.stash(connection, RECORDS[0])
    await engine.dispose()
