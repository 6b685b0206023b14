"""Two ways to write one table share one fence."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_sdk import LeadershipLost
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
