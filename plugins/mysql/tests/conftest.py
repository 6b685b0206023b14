"""One database of each server for all tests: a table is made faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from outbox_servers.services.external import MySql
from outbox_servers.services.mysql import MariaDbServer, MySqlServer
from outbox_testkit.conformance import OutboxUnderTest

NewOutbox = Callable[[], OutboxUnderTest]


@pytest.fixture(scope="session")
def mysql_database(mysql_server: MySql) -> Iterator[str]:
    name = f"session_{uuid4().hex}"
    yield mysql_server.create_database(name)
    mysql_server.drop_database(name)


@pytest.fixture(scope="session")
def mariadb_database(mariadb_server: MySql) -> Iterator[str]:
    name = f"session_{uuid4().hex}"
    yield mariadb_server.create_database(name)
    mariadb_server.drop_database(name)


@pytest.fixture
def on_mysql(mysql_database: str) -> OutboxUnderTest:
    return an_outbox(mysql_database)


@pytest.fixture
def on_mariadb(mariadb_database: str) -> OutboxUnderTest:
    return an_outbox(mariadb_database)


@pytest.fixture(params=["mysql", "mariadb"])
def under(request: pytest.FixtureRequest) -> OutboxUnderTest:
    """An outbox on either server in turn."""
    found: OutboxUnderTest = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.fixture(scope="session")
def own_mysql() -> Iterator[MySql]:
    """A server of this process's own; a test may change what concerns all its sessions, for a while."""
    with MySqlServer() as server:
        yield server


@pytest.fixture(scope="session")
def own_mariadb() -> Iterator[MySql]:
    """As ``own_mysql``."""
    with MariaDbServer() as server:
        yield server


@pytest.fixture(params=["mysql", "mariadb"])
def under_alone(request: pytest.FixtureRequest) -> OutboxUnderTest:
    """An outbox on either server of this process's own in turn."""
    server: MySql = request.getfixturevalue(f"own_{request.param}")
    return an_outbox(server.create_database(f"d{uuid4().hex}"))


def an_outbox(database: str) -> OutboxUnderTest:
    # A server on this machine makes certificates by itself; without TLS the tests take half the time.
    database += "?ssl-mode=DISABLED"
    options = {"data_source": database, "table": f"outbox_{uuid4().hex}"}
    return OutboxUnderTest("mysql", options, bytes_values={"value_type": "bytes"})
