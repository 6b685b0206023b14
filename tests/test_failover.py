"""What stands between a harvester and its database forgets connections, or leads to another server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import psycopg
import pytest
from outbox_api import DriverError, Level
from outbox_postgres import PostgresDialect, PostgresOptions, data_source
from psycopg.conninfo import conninfo_to_dict

from . import standbys
from .faults.proxy import Proxy
from .pooler import PgBouncer


@pytest.fixture
def proxy(postgres_dsn: str) -> Iterator[Proxy]:
    proxy = Proxy(lambda: int(conninfo_to_dict(postgres_dsn)["port"] or 0))
    yield proxy
    proxy.close()


@pytest.mark.timeout(120)
def test_a_connection_that_was_forgotten_on_the_way_is_given_up(
    postgres_dsn: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "GRACE", 1.0)
    PostgresDialect(PostgresOptions(data_source=postgres_dsn)).create()
    source = standbys.named(postgres_dsn, proxy.port)
    dialect = PostgresDialect(PostgresOptions(data_source=source, statement_timeout=3.0))
    table = dialect.connect()
    fence = table.enter(0, 1, table.bump(1, "test"))
    assert proxy.forget_connections() == 1
    began = time.monotonic()
    with pytest.raises(DriverError, match="has not answered for 4 s") as caught:
        table.mark(fence, uuid4(), 10)
    assert caught.value.retryable
    assert time.monotonic() - began >= 4.0
    table.close()
    again = dialect.connect()
    assert again.mark(fence, uuid4(), 10) == []
    again.close()


def test_a_pooler_in_session_mode_gives_no_session_away_with_what_we_set(postgres_dsn: str) -> None:
    with PgBouncer(postgres_dsn) as pooler:
        dialect = PostgresDialect(PostgresOptions(data_source=pooler.dsn))
        dialect.create()
        for _ in range(5):
            table = dialect.connect()
            assert table.mark(table.enter(0, 1, table.bump(1, "test")), uuid4(), 10) == []
            table.close()
        with psycopg.connect(pooler.dsn) as stranger:
            assert stranger.execute("SHOW search_path").fetchone() == ('"$user", public',)


@pytest.mark.parametrize("prepare", [True, False])
def test_a_pooler_in_transaction_mode_is_refused(postgres_dsn: str, prepare: bool) -> None:
    PostgresDialect(PostgresOptions(data_source=postgres_dsn)).create()
    with PgBouncer(postgres_dsn, "transaction") as pooler:
        dialect = PostgresDialect(PostgresOptions(data_source=pooler.dsn, prepare=prepare))
        found = {finding.subject: finding for finding in dialect.check()}
        assert found["pooler"].level is Level.ERROR
        assert "session mode" in found["pooler"].cure
        with ExitStack() as opened, pytest.raises(DriverError, match="a pooler in transaction mode"):
            [opened.callback(dialect.connect().close) for _ in range(5)]
