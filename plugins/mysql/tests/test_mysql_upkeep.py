"""Transactions that keep the server from purging, and what an account without rights sees of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import Finding, Level, Upkeep
from outbox_mysql import MySqlDialect, MySqlOptions, check
from outbox_mysql.idiom import MAY_SEE
from outbox_mysql.options import DataSource
from outbox_servers.services.external import connect_mysql
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_testkit.conformance import OutboxUnderTest

pytestmark = pytest.mark.slow

UNIT = "transactions in the history list"


@pytest.fixture
def under(under_alone: OutboxUnderTest) -> OutboxUnderTest:
    return under_alone


@pytest.fixture
def root(under: OutboxUnderTest) -> Iterator[Any]:
    with closing(connect(under)) as connection:
        yield connection


@pytest.fixture
def holder(under: OutboxUnderTest) -> Iterator[Any]:
    """A session that keeps a view of the outbox."""
    MySqlDialect(MySqlOptions(**under.options)).create()
    with closing(connect(under, autocommit=False)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(f"SELECT COUNT(*) FROM {under.options['table']}")
        yield connection


@pytest.fixture
def plain(under: OutboxUnderTest, root: Any) -> Iterator[tuple[str, MySqlDialect]]:
    """An account that may do everything with the outbox's database, and nothing else; and its dialect."""
    account, address = f"u{uuid4().hex[:8]}", DataSource.parse(under.options["data_source"])
    with root.cursor() as cursor:
        cursor.execute(f"CREATE USER {account}@'%' IDENTIFIED BY 'plain'")
        cursor.execute(f"GRANT ALL ON {address.database}.* TO {account}@'%'")
    source = f"mysql://{account}:plain@{address.host}:{address.port}/{address.database}"
    yield account, MySqlDialect(MySqlOptions(**{**under.options, "data_source": source}))
    with root.cursor() as cursor:
        cursor.execute(f"DROP USER {account}@'%'")


def connect(under: OutboxUnderTest, *, autocommit: bool = True) -> Any:
    return connect_mysql(under.options["data_source"].partition("?")[0], autocommit=autocommit)


def upkeep(dialect: MySqlDialect) -> Upkeep:
    with closing(dialect.watch()) as view:
        return view.upkeep()


def transactions(dialect: MySqlDialect) -> Finding:
    [found] = [finding for finding in dialect.check() if finding.subject == "open transactions"]
    return found


def test_who_keeps_the_oldest_view(under: OutboxUnderTest, holder: Any) -> None:
    found = upkeep(MySqlDialect(MySqlOptions(**under.options)))
    assert found.visible
    assert found.unit == UNIT
    assert found.dead is not None
    assert found.snapshot is not None
    assert found.snapshot.owner.startswith(f"session {holder.thread_id()} (user root at ")
    assert 0 <= (found.snapshot.seconds or 0) < 600


def test_an_account_without_rights_is_told_that_it_sees_nothing(
    under: OutboxUnderTest, plain: tuple[str, MySqlDialect], holder: Any, root: Any
) -> None:
    account, dialect = plain
    found = upkeep(dialect)
    mariadb = "MariaDB" in root.get_server_info()
    assert found == Upkeep(found.dead, UNIT, visible=False)
    assert (found.dead is not None) == mariadb, "MariaDB tells everybody how much waits"
    blind = transactions(dialect)
    assert (blind.level, blind.message) == (Level.WARNING, "cannot see other users' transactions")
    assert MAY_SEE in blind.cure
    with root.cursor() as cursor:
        cursor.execute(f"GRANT {MAY_SEE} ON *.* TO {account}@'%'")
    assert transactions(dialect).level is Level.OK
    assert upkeep(dialect).snapshot


@pytest.mark.parametrize("server_type", [MariaDbServer, MySqlServer])
def test_ages_are_right_whatever_the_servers_time_zone(
    server_type: type[MariaDbServer | MySqlServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "JST-9")
    monkeypatch.setattr(check, "_LONG", 0)
    with server_type() as server:
        dialect = MySqlDialect(MySqlOptions(data_source=server.create_database("east")))
        dialect.create()
        with closing(dialect.stash_connection()) as holder, holder.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM outbox")
            assert "open for" in transactions(dialect).message
            found = upkeep(dialect).snapshot
            assert found is not None
            assert 0 <= (found.seconds or 0) < 600
