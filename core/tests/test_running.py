"""A harvester within a test: it sends what is committed, in order, and fails a test with a parked key."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from outbox_api import DriverError, Record, Seam, Stasher, find
from outbox_core.testing import running
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine

pytest_plugins = ["pytester"]

HEADERS = (("source", "shop"), ("source", None))


@pytest.fixture(params=["postgres", "mysql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "sqlite":
        return "sqlite", str(tmp_path / "shop.db")
    return request.param, request.getfixturevalue(f"{request.param}_dsn")


def stash(database: tuple[str, str], *records: Record) -> None:
    kind = find(Seam.DIALECT, database[0])
    with closing(kind.create(kind.options(data_source=database[1])).stash_connection()) as connection:
        Stasher(dialect=database[0]).stash_many(connection, records)
        connection.commit()


def test_records_arrive_once_and_in_order(database: tuple[str, str]) -> None:
    sent = [Record("orders", f"k{number % 3}", f"é {number}", HEADERS) for number in range(300)]
    threads = {*threading.enumerate()}  # those of earlier tests may end meanwhile
    with running(database) as harvester:
        stash(database, *sent, Record("bills", "k0"))
        assert harvester.wait_for("bills", timeout=60) == Record("bills", "k0")
        for key in ("k0", "k1", "k2"):
            wanted = [record for record in sent if record.key == key]
            assert [harvester.wait_for(key=key, timeout=60) for _ in wanted] == wanted
        with pytest.raises(
            AssertionError, match=r"no record of topic 'orders' was sent within 0 s.*: nothing"
        ):
            harvester.wait_for("orders", timeout=0)
        stash(database, Record("orders", "last"))  # nobody waits for it
    assert not {*threading.enumerate()} - threads
    with running(database) as harvester, pytest.raises(AssertionError, match="not yet waited for: nothing"):
        harvester.wait_for(timeout=0.5)  # it was sent before the end


def test_an_outbox_that_is_not_the_tests_own_stays_as_it_is(database: tuple[str, str]) -> None:
    kind = find(Seam.DIALECT, database[0])
    dialect = kind.create(kind.options(data_source=database[1]))
    dialect.create()
    stash(database, *[Record("orders", str(number)) for number in range(42, 48)])
    found = "6 records from before the test: orders '42', .*orders '46', …;"
    with pytest.raises(AssertionError, match=found), running(database):
        pass
    with closing(dialect.connect()) as table:
        fence, leader = table.enter(0, 1, table.bump(1, "production")), uuid4()
        rows = table.mark(fence, leader, 10)  # nobody has raised the fence meanwhile
        assert len(rows) == 6
        table.purge(fence, leader, [row.id for row in rows])
        found = r"'production' has harvested it.* drop its tables"
        with pytest.raises(AssertionError, match=found), running(database):
            pass
        assert table.mark(fence, leader, 10) == []


def test_a_report_of_pytest_has_no_password(
    pytester: pytest.Pytester, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = find(Seam.DIALECT, "postgres")
    kind.create(kind.options(data_source=postgres_dsn)).create()
    stash(("postgres", postgres_dsn), Record("orders", "42"))
    monkeypatch.setenv("DATABASE", postgres_dsn)
    pytester.makepyfile(
        """
        import os

        import pytest

        @pytest.fixture
        def outbox_database():
            return "postgres", os.environ["DATABASE"]

        def test_one(outbox_running):
            pass
        """
    )
    report = pytester.runpytest_subprocess().stdout.str()
    assert "1 records from before the test" in report
    assert str(conninfo_to_dict(postgres_dsn)["password"]) not in report


BROKEN = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_header_keys, kafka_header_values)
VALUES (now(), 'orders', '42', '{a,b}', '{1}')
"""


def harvest_after(dsn: str, statement: str) -> None:
    with running(("postgres", dsn)) as harvester:
        with psycopg.connect(dsn) as connection:
            connection.execute(statement)
        if statement is not BROKEN:
            harvester.wait_for("orders")


def test_a_parked_key_fails_the_test(postgres_dsn: str) -> None:
    with pytest.raises(AssertionError, match=r"keys are parked: orders '42': .*2 header names"):
        harvest_after(postgres_dsn, BROKEN)


def test_what_has_ended_the_harvester_is_told(postgres_dsn: str) -> None:
    with pytest.raises(DriverError, match="outbox"):
        harvest_after(postgres_dsn, "DROP TABLE outbox")


def test_an_engine_tells_where_the_outbox_is(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with running(engine) as harvester:
        with engine.begin() as connection:
            Stasher(dialect="sqlite").stash(connection, Record("orders", "42"))
        assert harvester.wait_for().key == "42"
    engine.dispose()
