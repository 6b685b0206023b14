"""A server without a free connection: all of a process wait together, and go on once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from outbox_api import ServerFull
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_servers.services import PostgresServer

from .outbox_hands import until


@pytest.fixture(scope="module")
def small() -> Iterator[PostgresServer]:
    settings = {"max_connections": "10", "reserved_connections": "0", "autovacuum": "off"}
    with PostgresServer(settings=settings) as server:
        yield server


def test_whoever_finds_it_full_waits_and_connects_once_there_is_room(small: PostgresServer) -> None:
    dialect = PostgresDialect(PostgresOptions(data_source=small.create_database("full")))
    dialect.create()
    with ExitStack() as held:

        def fill() -> None:
            for _ in range(20):
                held.callback(dialect.connect().close)

        with pytest.raises(ServerFull, match="raise max_connections") as caught:
            fill()
        assert caught.value.retryable
        with pytest.raises(ServerFull, match="this process tries again in"):
            dialect.connect()

    def connects() -> bool:
        try:
            dialect.connect().close()
        except ServerFull:
            return False
        return True

    until(connects)
    assert all(connects() for _ in range(5))


def test_free_connections_are_as_many_as_can_be_opened(small: PostgresServer) -> None:
    address = small.create_database("counted")
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    dialect = PostgresDialect(PostgresOptions(data_source=address))
    until(lambda: dialect.free_connections() == 7)  # whoever has just disconnected counts for a moment
    with ExitStack() as held:
        for _ in range(7):
            held.enter_context(psycopg.connect(address, user="plain", password="plain"))
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(address, user="plain", password="plain")
