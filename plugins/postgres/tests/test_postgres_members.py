"""Members are rows of a table, of which nobody needs to delete any."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from outbox_api.portable.outboxes import MemberRow
from outbox_postgres.dialect import PostgresDialect
from outbox_servers.services import PostgresServer

from .outbox_hands import Outbox, ask


@pytest.fixture(scope="module")
def postgres_server(own_postgres: PostgresServer) -> PostgresServer:
    return own_postgres


def test_a_harvester_may_delete_no_member(outbox: Outbox, user: tuple[str, str]) -> None:
    name, dsn = user
    outbox.connect()  # creates what is beside the outbox
    outbox.admin.execute(f"GRANT SELECT, UPDATE, DELETE ON outbox TO {name}")
    beside = "outbox_fence, outbox_fence_notes, outbox_fence_members"
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE ON {beside} TO {name}")
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_dead_letters TO {name}")
    with closing(PostgresDialect(replace(outbox.options, data_source=dsn)).members()) as members:
        for restart in range(10):
            for member in (f"{restart} a", f"{restart} b"):
                members.note("group", member, 1, 60)
            assert members.note("group", f"{restart} c", 0, 60) == {
                f"{restart} a": 1, f"{restart} b": 1, f"{restart} c": 0
            }  # fmt: skip
            for letter in "abc":
                members.leave(f"{restart} {letter}")
    assert ask(outbox.admin, "SELECT count(*) FROM outbox_fence_members WHERE leads IS NULL") == 3


def test_no_row_is_taken_from_one_that_has_just_noted_itself(outbox: Outbox) -> None:
    with closing(outbox.dialect.members()) as members:
        members.note("group", "alive", 1, 60)
        assert not members.take_row("alive", MemberRow("next", "group", 0, 0), 60)
        assert members.take_row("alive", MemberRow("next", "group", 0, 0), -1)
        members.add_row(MemberRow("next", "group", 7, 0))
        assert members.note("group", "last", 2, 60) == {"last": 2, "next": 0}
