"""Outboxes are found in all databases of a server, each of which is a schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_testkit.conformance import OutboxUnderTest


@pytest.fixture
def tenants(under: OutboxUnderTest) -> Iterator[tuple[MySqlDialect, str]]:
    """A dialect, and the beginning of the names of two databases with an outbox each."""
    options, prefix = MySqlOptions(**under.options), f"tenant-{uuid4().hex[:8]}"
    dialect = MySqlDialect(options)
    names = [f"{prefix}-{tenant}" for tenant in "ab"]
    with closing(dialect.stash_connection()) as connection, connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"CREATE DATABASE `{name}`")
            MySqlDialect(replace(options, table=f'"{name}".outbox')).create()
        cursor.execute(f"CREATE VIEW `{names[0]}`.outbox_view AS SELECT * FROM `{names[0]}`.outbox")
        yield dialect, prefix
        for name in names:
            cursor.execute(f"DROP DATABASE `{name}`")


def test_outboxes_are_found_in_other_databases(tenants: tuple[MySqlDialect, str]) -> None:
    dialect, prefix = tenants
    every = [f'"{prefix}-{tenant}".outbox' for tenant in "ab"]
    assert dialect.find_outboxes(f'"{prefix}*".outbox') == every
    assert dialect.find_outboxes(f'"{prefix}*".*') == every
    assert dialect.find_outboxes(f'"{prefix}-b".o*') == every[1:]
    for name in every:
        with closing(MySqlDialect(replace(dialect.options, table=name)).connect()) as table:
            assert table.bump(1, "test") > 0


def test_without_a_schema_only_the_connections_database_is_searched(
    tenants: tuple[MySqlDialect, str], under: OutboxUnderTest
) -> None:
    dialect, _ = tenants
    with closing(dialect.stash_connection()) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS outbox")
    assert "outbox" not in dialect.find_outboxes("*")
    dialect.create()
    assert under.options["table"] in dialect.find_outboxes("*")
