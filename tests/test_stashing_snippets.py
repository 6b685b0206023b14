"""The Python of pages about stashing does what they say."""

from __future__ import annotations

import ast
import asyncio
import json
import sqlite3
from contextlib import closing
from inspect import iscoroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from fastapi.testclient import TestClient
from outbox_api import Record, Stasher
from outbox_core.config import configure, parse
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from .test_snippets import OF

STASHED = {
    "api/README.md": 6,
    "docs/auditing.md": 1,
    "docs/sqlalchemy.md": 1,
}
"""Page → how many records its snippets stash."""


def run(page: str, given: dict[str, Any], dsn: str = "dbname=shop") -> dict[str, Any]:
    """Runs the snippets of a page in turn; each finds what is given, and what those before it have made.

    Returns:
        What the last one has made.
    """
    names: dict[str, Any] = {}
    for snippet in OF[page]:
        if snippet.language == "python":
            names |= given
            text = snippet.text.replace("dbname=shop", dsn)
            text = text.replace("//localhost/shop", f"//?{urlencode(conninfo_to_dict(dsn))}")
            code = compile(text, str(snippet), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            made = eval(code, names)
            if iscoroutine(made):
                asyncio.run(made)
    return names


@pytest.mark.parametrize("page", STASHED)
def test_a_page_stashes(
    page: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        paid: Mapped[bool] = mapped_column(default=False)

        def as_json(self) -> str:
            return json.dumps({"id": self.id})

    monkeypatch.chdir(tmp_path)  # for the ledger
    configure({"harvest": {"dataSource": postgres_dsn}}).harvest.dialect.create().create()
    address: Any = {"connect_args": conninfo_to_dict(postgres_dsn)}
    several = create_async_engine("postgresql+psycopg://", poolclass=NullPool, **address)
    engine = create_engine("postgresql+psycopg://", poolclass=NullPool, **address)
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)")
        connection.commit()
        given = {
            "connection": connection,
            "stasher": Stasher(),
            "records": [Record("orders", "42"), Record("orders", "43")],
            "order": Order(id=42),
            "order_id": 42,
            "key": "42",
            "value": "paid",
            "number": 7,
            "Base": Base,
            "Session": Session,
            "AsyncSession": AsyncSession,
            "engine": several if page == "api/README.md" else engine,
        }
        run(page, given, postgres_dsn)
        connection.commit()
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (STASHED[page],)


def test_the_front_page_pays_and_stashes_in_one_transaction(postgres_dsn: str) -> None:
    configure({"harvest": {"dataSource": postgres_dsn}}).harvest.dialect.create().create()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)")
        connection.execute("INSERT INTO orders VALUES (42, false)")
        names = run("README.md", {}, postgres_dsn)
        with TestClient(names["app"]) as client:
            assert client.post("/orders/42/payment").status_code == 200
            assert client.portal
            client.portal.call(names["engine"].dispose)
        both = "SELECT paid, kafka_key, kafka_value FROM orders, outbox"
        assert connection.execute(both).fetchall() == [(True, "42", '{"paid": true}')]


def test_the_page_of_fastapi_creates_the_tables_and_takes_an_order(postgres_dsn: str) -> None:
    names = run("docs/fastapi.md", {"__name__": "shop"}, postgres_dsn)
    with TestClient(names["app"]) as client:
        answers = [client.post("/orders", params={"goods": goods}) for goods in ("tea", "mug")]
    with psycopg.connect(postgres_dsn) as connection:
        orders = connection.execute("SELECT id, goods FROM orders ORDER BY id").fetchall()
        records = connection.execute("SELECT kafka_key, kafka_value FROM outbox ORDER BY id").fetchall()
    assert [{"order": number} for number, _ in orders] == [each.json() for each in answers]
    assert [goods for _, goods in orders] == ["tea", "mug"]
    assert records == [(str(number), json.dumps({"goods": goods})) for number, goods in orders]


def test_the_page_of_sqlite_stashes_into_the_file_of_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = "plugins/sqlite/README.md"
    [settings] = [snippet.text for snippet in OF[page] if snippet.language == "yaml"]
    parse(settings).harvest.dialect.create().create()
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, paid boolean)")
        run(page, {})
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (1,)


def test_the_page_of_the_configuration_reads_a_file_and_plain_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("outbox.yaml").write_text("harvest: {engine: inline}")
    run("docs/configuration.md", {})
