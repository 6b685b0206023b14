"""Names of tables: two ways to write one share one fence, and any characters may be in them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest
from outbox_api import Action, LeadershipLost, Level, Record, Stasher
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_testkit.conformance import OutboxUnderTest


@pytest.mark.parametrize("server", ["on_mysql", "on_mariadb"])
def test_a_table_has_one_fence_however_it_is_written(server: str, request: pytest.FixtureRequest) -> None:
    under: OutboxUnderTest = request.getfixturevalue(server)
    options = MySqlOptions(**under.options)
    MySqlDialect(options).create()
    plain = MySqlDialect(options).connect()
    full = MySqlDialect(replace(options, table=f"{options.source.database}.{options.table}")).connect()
    fence = plain.enter(0, 1, plain.bump(1, "plain"))
    assert full.bump(1, "full") > fence.token
    with pytest.raises(LeadershipLost):
        plain.purge(fence, uuid4(), [1])
    plain.close()
    full.close()


@pytest.mark.parametrize("server", ["on_mysql", "on_mariadb"])
def test_a_name_may_have_any_characters(server: str, request: pytest.FixtureRequest) -> None:
    under: OutboxUnderTest = request.getfixturevalue(server)
    table = "`odd {x} %s 'box' \\`"
    dialect = MySqlDialect(replace(MySqlOptions(**under.options), table=table))
    assert len(dialect.create()) >= 1
    assert dialect.migrations() == []
    assert not [each for each in dialect.check() if each.level is Level.ERROR]
    with closing(dialect.stash_connection()) as connection:
        Stasher(table, "mysql").stash(connection, Record("orders", "key", "value"))
        connection.commit()
    with closing(dialect.connect()) as outbox, closing(dialect.journal()) as journal:
        fence = outbox.enter(0, 1, outbox.bump(1, "leader"))
        assert [record.key for record in outbox.mark(fence, uuid4(), 10)] == ["key"]
        journal.begin(Action("me", "cli", "retry"))
        assert len(journal.entries()) == 1
