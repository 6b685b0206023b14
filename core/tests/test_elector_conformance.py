"""The electors ``lease``, on databases, and ``static`` do what every elector must."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from outbox_api import Lease, Seam, find
from outbox_core.builtin import LeaseOptions, NoOptions
from outbox_servers.services import MariaDbServer, PostgresServer
from outbox_testkit.conformance import ElectorConformance, ElectorUnderTest, ServiceUnderTest
from outbox_testkit.conformance.failover import FailoverConformance
from outbox_testkit.conformance.handover import HandOverConformance
from outbox_testkit.proxy import Proxy
from psycopg.conninfo import make_conninfo

SESSION = 8.0
"""Seconds: a leader that a busy machine halts for three seconds leads on."""


def connect(dialect: str, options: Any) -> Lease:
    return find(Seam.DIALECT, dialect).create(options).lease()


def lease(dialect: str, *, create: bool = False, **options: Any) -> LeaseOptions:
    driver = find(Seam.DIALECT, dialect)
    made = driver.options(**options)
    if create:
        driver.create(made).create()
    return LeaseOptions(partial(connect, dialect, made), session_timeout=SESSION)


@contextmanager
def on_server(
    dialect: str,
    server: PostgresServer | MariaDbServer,
    dsn: str,
    through: Callable[[int], str],
    elections: int = 200,
) -> Iterator[ElectorUnderTest]:
    """Makes an outbox in a new database.

    Args:
        dialect: The dialect.
        server: The server.
        dsn: The database.
        through: Returns its address by way of a port.
        elections: How many there are in a row.
    """
    with Proxy(lambda: server.port) as proxy:
        direct = lease(dialect, create=True, data_source=dsn)
        proxied = lease(dialect, data_source=through(proxy.port))
        service = ServiceUnderTest(server.kill, server.start, proxy, proxied)
        yield ElectorUnderTest("lease", direct, SESSION, service, elections=elections)


class TestLeaseOnPostgres(HandOverConformance):
    @pytest.fixture
    def elector(self, postgres_dsn: str) -> ElectorUnderTest:
        options = lease("postgres", create=True, data_source=postgres_dsn)
        return ElectorUnderTest("lease", options, SESSION)

    test_a_killed_leader_is_replaced_whoever_joins_meanwhile = (
        FailoverConformance.test_a_killed_leader_is_replaced_whoever_joins_meanwhile
    )
    test_who_comes_and_goes_does_not_disturb_the_leader = None  # type: ignore[assignment]  # slow: see below


class TestStatic(ElectorConformance):
    @pytest.fixture
    def elector(self) -> ElectorUnderTest:
        return ElectorUnderTest("static", NoOptions(), math.inf, elects=False)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDbServer]:
    with MariaDbServer() as server:
        yield server


@pytest.mark.slow
class TestLeaseOnPostgresFailover(FailoverConformance):
    @pytest.fixture
    def elector(self, postgres: PostgresServer) -> Iterator[ElectorUnderTest]:
        dsn = postgres.create_database(f"test_{uuid4().hex}")
        with on_server("postgres", postgres, dsn, lambda port: make_conninfo(dsn, port=port)) as under:
            yield under

    test_a_killed_leader_is_replaced_whoever_joins_meanwhile = None  # type: ignore[assignment]  # see above
    test_who_comes_and_goes_does_not_disturb_the_leader = (
        HandOverConformance.test_who_comes_and_goes_does_not_disturb_the_leader
    )


@pytest.mark.slow
class TestLeaseOnMariaDb(ElectorConformance):
    @pytest.fixture
    def elector(self, mariadb: MariaDbServer) -> Iterator[ElectorUnderTest]:
        dsn = mariadb.create_database(f"test_{uuid4().hex}")

        def through(port: int) -> str:
            place = urlsplit(dsn)
            return place._replace(netloc=place.netloc.replace(f":{place.port}", f":{port}")).geturl()

        with on_server("mysql", mariadb, dsn, through, elections=20) as under:
            yield under


@pytest.mark.slow
class TestLeaseOnSqlite(ElectorConformance):
    @pytest.fixture
    def elector(self, tmp_path: Path) -> ElectorUnderTest:
        options = lease("sqlite", create=True, data_source=str(tmp_path / "outbox.db"))
        return ElectorUnderTest("lease", options, SESSION, elections=50)
