"""Pytest fixtures; pytest loads them wherever outbox-servers is installed.

The first test that uses a service starts it, and the end of the session stops it. If a service is not
available, the test fails; nothing is skipped.

Every run of pytest loads this module, so it imports clients only when a service is needed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outbox_servers.services.chromium import ChromiumBrowser
    from outbox_servers.services.external import Etcd, Kafka, MySql, Postgres, ZooKeeper


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL server that the whole session shares; do not stop it."""
    from outbox_servers.finding import open_postgres  # noqa: PLC0415 - see above

    with open_postgres() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: Postgres) -> Iterator[str]:
    """The libpq connection string of a database for the test alone; dropped afterwards."""
    yield from _database(postgres_server)


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySql]:
    """A MySQL server that the whole session shares; do not stop it."""
    from outbox_servers.finding import open_mysql  # noqa: PLC0415 - see above

    with open_mysql() as server:
        yield server


@pytest.fixture
def mysql_dsn(mysql_server: MySql) -> Iterator[str]:
    """The address of a MySQL database for the test alone; dropped afterwards."""
    yield from _database(mysql_server)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MySql]:
    """A MariaDB server that the whole session shares; do not stop it."""
    from outbox_servers.finding import open_mariadb  # noqa: PLC0415 - see above

    with open_mariadb() as server:
        yield server


@pytest.fixture
def mariadb_dsn(mariadb_server: MySql) -> Iterator[str]:
    """The address of a MariaDB database for the test alone; dropped afterwards."""
    yield from _database(mariadb_server)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Kafka]:
    """A Kafka cluster that the whole session shares; do not stop it."""
    from outbox_servers.finding import open_kafka  # noqa: PLC0415 - see above

    with open_kafka() as broker:
        yield broker


@pytest.fixture
def kafka_bootstrap(kafka_broker: Kafka) -> str:
    """The address of the session's Kafka, for ``bootstrap.servers``."""
    return kafka_broker.bootstrap


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[Etcd]:
    """An etcd cluster that the whole session shares; do not stop it."""
    from outbox_servers.finding import open_etcd  # noqa: PLC0415 - see above

    with open_etcd() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeper]:
    """A ZooKeeper that the whole session shares; do not stop it."""
    from outbox_servers.finding import open_zookeeper  # noqa: PLC0415 - see above

    with open_zookeeper() as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[ChromiumBrowser]:
    """A browser that the whole session shares; each test opens a context of its own in it."""
    from outbox_servers.services.chromium import ChromiumBrowser  # noqa: PLC0415 - see above

    with ChromiumBrowser() as browser:
        yield browser


@pytest.fixture
def topic() -> str:
    """A topic name that was never used before; the topic is not created."""
    return f"test-{uuid.uuid4().hex}"


def _database(server: Postgres | MySql) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    yield server.create_database(name)
    server.drop_database(name)
