"""Members are rows of the fence, and need no right that a harvester does not have."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from outbox_postgres.dialect import PostgresDialect
from outbox_sdk.portable.members import MemberRow
from outbox_servers.services import PostgresServer

from .outbox_hands import Outbox, ask


@pytest.fixture(scope="module")
def postgres_server(own_postgres: PostgresServer) -> PostgresServer:
    return own_postgres


def test_a_harvester_may_delete_nothing_of_the_fence(outbox: Outbox, user: tuple[str, str]) -> None:
    name, dsn = user
    outbox.connect()  # creates what is beside the outbox
    outbox.admin.execute(f"GRANT SELECT, UPDATE, DELETE ON outbox TO {name}")
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE ON outbox_fence TO {name}")
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
    assert ask(outbox.admin, "SELECT count(*) FROM outbox_fence WHERE lane = -3 AND token = -1") == 3


def test_no_row_is_taken_from_one_that_has_just_noted_itself(outbox: Outbox) -> None:
    with closing(outbox.dialect.members()) as members:
        members.note("group", "alive", 1, 60)
        assert not members.take_row("alive", MemberRow("next", "group", 0, 0), 60)
        assert members.take_row("alive", MemberRow("next", "group", 0, 0), -1)
        members.add_row(MemberRow("next", "group", 7, 0))
        assert members.note("group", "last", 2, 60) == {"last": 2, "next": 0}


def test_a_note_waits_for_no_disk_and_leaves_the_session_as_it_was(outbox: Outbox) -> None:
    with closing(outbox.dialect.members()) as members:
        members.note("group", "one", 0, 60)
        for number in range(20):
            before = written(outbox)
            members.note("group", "one", number, 60)
            # What was not asked for at once waits for the WAL writer, which comes by every 200 ms.
            if written(outbox) == before:
                break
        else:
            pytest.fail("every note was flushed")
        session = members._connection.execute("SELECT current_setting('synchronous_commit')").fetchone()
    assert session == ("on",)


def written(outbox: Outbox) -> object:
    """Returns how far the log is on the disk."""
    return ask(outbox.admin, "SELECT pg_current_wal_flush_lsn()")
