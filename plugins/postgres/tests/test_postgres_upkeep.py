"""Dead rows, the snapshot that keeps them, and what a user without rights sees of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from outbox_api import OldSnapshot, Upkeep
from outbox_postgres.settled import FIRST
from outbox_postgres.table import PostgresTable
from outbox_servers.services import PostgresServer
from psycopg import IsolationLevel

from .outbox_hands import MakeOutbox, Outbox, until

pytestmark = pytest.mark.slow

ROWS = 5_000
SETTINGS: dict[str, str | int] = {"max_prepared_transactions": 2, "wal_level": "logical", "autovacuum": "off"}


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of their own: its transactions are counted, and slots keep rows of all its databases."""
    with PostgresServer(settings=SETTINGS) as server:
        yield server


@pytest.fixture
def watcher(make_outbox: MakeOutbox, outbox: Outbox, user: tuple[str, str]) -> Outbox:
    """The outbox as a user sees it who may read its tables, and nothing else."""
    name, dsn = user
    outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON outbox TO {name}")
    for table in ("outbox_fence", "outbox_fence_notes", "outbox_dead_letters"):
        outbox.admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {name}")
    outbox.admin.execute(f"GRANT USAGE ON SEQUENCE outbox_id_seq TO {name}")
    return make_outbox(dsn)


def hold(box: Outbox, **settings: str) -> psycopg.Connection[tuple[int]]:
    """Opens a transaction that keeps a snapshot."""
    holder = box.session(autocommit=False, **settings)
    holder.isolation_level = IsolationLevel.REPEATABLE_READ
    holder.execute("SELECT count(*) FROM outbox")
    return holder


def oldest(table: PostgresTable) -> OldSnapshot:
    found = table.upkeep().snapshot
    assert found is not None
    return found


def test_dead_rows_are_counted_until_a_vacuum_removes_them(outbox: Outbox) -> None:
    table = outbox.connect()
    assert (table.upkeep().dead, table.upkeep().vacuumed) == (0, None)
    outbox.fill(ROWS)
    outbox.admin.execute("DELETE FROM outbox")
    until(lambda: table.upkeep().dead == ROWS)
    assert table.upkeep().visible
    outbox.admin.execute("VACUUM outbox")
    assert table.upkeep().dead == 0
    assert 0 <= (table.upkeep().vacuumed or 0) < 60


def test_who_keeps_the_oldest_snapshot(outbox: Outbox) -> None:
    table = outbox.connect()
    holder = hold(outbox, application_name="report")
    outbox.fill(1)
    found = oldest(table)
    assert found.owner == f"process {holder.info.backend_pid} (report of user postgres)"
    assert found.seconds is not None
    assert found.transactions == 1
    holder.close()
    until(lambda: table.upkeep().snapshot is None)


def test_a_transaction_that_has_written_keeps_rows_without_a_snapshot(outbox: Outbox) -> None:
    table = outbox.connect()
    writer = outbox.session(autocommit=False, application_name="writer")
    outbox.write(connection=writer)
    assert "writer" in oldest(table).owner


def test_prepared_transactions_and_slots(postgres_server: PostgresServer, make_outbox: MakeOutbox) -> None:
    box = make_outbox(postgres_server.create_database("held"))
    box.dialect.create()
    table = box.connect()
    writer = box.session(autocommit=True)
    writer.execute("BEGIN")
    box.write(connection=writer)
    writer.execute("PREPARE TRANSACTION 'forgotten'")
    found = oldest(table)
    assert found.owner == "prepared transaction 'forgotten' of user postgres"
    assert found.seconds is not None
    writer.execute("ROLLBACK PREPARED 'forgotten'")
    assert table.upkeep().snapshot is None
    # While a slot is made, it keeps the rows of its first snapshot.
    with psycopg.connect(box.dsn, replication="database", autocommit=True) as copier:
        copier.execute("CREATE_REPLICATION_SLOT copied TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')")
        box.fill(1)
        found = oldest(table)
        assert found.owner.startswith((f"process {copier.info.backend_pid} ", "replication slot 'copied'"))
        assert found.transactions == 1
    until(lambda: table.upkeep().snapshot is None)


def test_select_alone_is_enough(make_outbox: MakeOutbox, outbox: Outbox, user: tuple[str, str]) -> None:
    name, dsn = user
    outbox.lead()
    for table in ("outbox", "outbox_fence", "outbox_fence_notes", "outbox_dead_letters"):
        outbox.admin.execute(f"GRANT SELECT ON {table} TO {name}")
    hold(outbox, application_name="report")
    with closing(make_outbox(dsn).dialect.watch()) as view:
        found = view.upkeep()
    assert found.dead is not None
    assert found.snapshot is not None
    assert "report" in found.snapshot.owner


def test_a_user_without_rights_sees_who_keeps_a_snapshot_but_not_for_how_long(
    outbox: Outbox, watcher: Outbox
) -> None:
    table = watcher.connect()
    holder = hold(outbox, application_name="report")
    outbox.fill(1)
    owner = f"process {holder.info.backend_pid} (report of user postgres)"
    seen = table.upkeep()
    assert seen == Upkeep(seen.dead, snapshot=OldSnapshot(owner, None, 1), visible=False)
    assert seen.dead is not None


def test_check_says_that_it_cannot_see_other_users_transactions(
    outbox: Outbox, watcher: Outbox, user: tuple[str, str]
) -> None:
    def old_transactions() -> list[tuple[str, str, str]]:
        found = watcher.dialect.check()
        return [(f.level, f.message, f.cure) for f in found if f.subject == "old transactions"]

    hold(outbox)
    cure = f"GRANT pg_read_all_stats TO {user[0]}"
    assert old_transactions() == [("warning", "cannot see other users' transactions", cure)]
    outbox.admin.execute(cure)
    assert old_transactions() == [("ok", "none", "")]


def test_a_horizon_is_safe_without_the_right_to_see_others(
    outbox: Outbox, watcher: Outbox, eager: None
) -> None:
    """Who holds the sequence is in pg_locks, of which everybody sees all: a late row is waited for."""
    writer = outbox.session(autocommit=False)
    late = outbox.write(key="late", connection=writer)
    hand = watcher.lead()
    outbox.fill(10)
    for _ in range(5):
        taken = [record.id for record in hand.mark(100)]
        assert late not in taken
    starts = hand.table._starts
    assert starts.settled
    assert starts.settled._start == FIRST
    writer.commit()
    assert [record.id for record in hand.mark(100)] == [late]


def test_the_rows_of_partitions_count(make_outbox: MakeOutbox) -> None:
    box = make_outbox(table=f"parted_{uuid4().hex[:8]}")
    box.dialect.create()
    name = box.options.outbox
    box.admin.execute(f"ALTER TABLE {name} RENAME TO part")
    box.admin.execute(f"CREATE TABLE {name} (LIKE part INCLUDING DEFAULTS) PARTITION BY RANGE (id)")
    box.admin.execute(f"ALTER TABLE {name} ATTACH PARTITION part DEFAULT")
    box.fill(ROWS)
    box.admin.execute(f"DELETE FROM {name}")
    table = box.connect()
    until(lambda: table.upkeep().dead == ROWS)
