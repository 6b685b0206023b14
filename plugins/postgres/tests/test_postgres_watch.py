"""Watching: it shows what there is, creates and writes nothing, and needs nobody who can write."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from outbox_api import AccessDenied, DriverError, Intake
from outbox_postgres.rows import PostgresDeadLetters
from outbox_servers.services import PostgresServer
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask

INTAKE = Intake(table="events", id="number", topic="shop", key="customer", value="body")
NEXT_TRANSACTION = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"


@pytest.fixture(scope="module")
def postgres_server(own_postgres: PostgresServer) -> PostgresServer:
    return own_postgres


def test_it_shows_what_the_harvester_wrote_and_uses_no_transaction_id(outbox: Outbox) -> None:
    outbox.fill(10)
    with closing(outbox.dialect.watch()) as view:
        assert (view.lane_statuses(), view.known_identity(), view.backlog().records) == ([], None, 10)
    hand = outbox.lead()
    outbox.park(hand, "k1")
    hand.table.heartbeat(hand.fence, {"purged": 7})
    before = ask(outbox.admin, NEXT_TRANSACTION)
    with closing(outbox.dialect.watch()) as view:
        assert [status.metrics for status in view.lane_statuses()] == [{"purged": 7}]
        assert view.parked().keys == 1
        assert view.transactional_lanes() == {}
        assert ask(outbox.admin, NEXT_TRANSACTION) == before
        identity = hand.table.identity()
        assert view.known_identity() == identity == hand.table.known_identity()


def test_the_session_cannot_write_whoever_the_user_is(outbox: Outbox) -> None:
    outbox.fill(1)
    head = outbox.park(outbox.lead(), "k1")["k1"]
    view: Any = outbox.dialect.watch()
    letters: PostgresDeadLetters = outbox.dialect.dead_letters(read_only=True)
    with closing(view), closing(letters):
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            view._session.connection.execute("DELETE FROM public.outbox")
        for change in (letters.retry, letters.skip, letters.redrive):
            with pytest.raises(DriverError, match="look only"):
                change([head])
        assert [letter.record.id for letter in letters.find()] == [head]


def test_it_works_where_nothing_can_be_written(outbox: Outbox) -> None:
    outbox.fill(3)
    outbox.set_default("default_transaction_read_only", "on")
    with pytest.raises(DriverError, match="is read-only; name the primary") as caught:
        outbox.connect()
    assert caught.value.retryable
    with closing(outbox.dialect.watch()) as view:
        assert view.backlog().records == 3
    with closing(outbox.dialect.dead_letters(read_only=True)) as letters:
        assert letters.find() == []
    assert outbox.dialect.migrations() == []


def test_of_several_hosts_it_takes_the_one_that_the_harvester_takes(
    outbox: Outbox, make_outbox: MakeOutbox
) -> None:
    found = psycopg.conninfo.conninfo_to_dict(outbox.dsn)
    twice = {"host": f"{found['host']},{found['host']}", "port": f"{found['port']},{found['port']}"}
    with closing(make_outbox(make_conninfo(outbox.dsn, **twice)).dialect.watch()) as view:
        assert view.backlog().records == 0


def test_the_right_to_select_is_enough_and_each_that_is_missing_is_told(
    outbox: Outbox, make_outbox: MakeOutbox, user: tuple[str, str]
) -> None:
    name, dsn = user
    reader = make_outbox(dsn)
    for table in ("outbox", "outbox_fence", "outbox_fence_notes", "outbox_dead_letters"):
        with pytest.raises(AccessDenied, match=f'GRANT SELECT ON "public"."{table}" TO "{name}"'):
            reader.dialect.watch()
        outbox.admin.execute(f"GRANT SELECT ON {table} TO {name}".encode())
    reader.dialect.watch().close()


def test_rows_of_an_intake_count_and_need_nothing_but_select(
    outbox: Outbox, make_outbox: MakeOutbox, user: tuple[str, str]
) -> None:
    name, dsn = user
    outbox.admin.execute(
        "CREATE TABLE events (number bigserial PRIMARY KEY, customer text, body text);"
        "INSERT INTO events (customer, body) VALUES ('ann', 'one'), ('bob', 'two')"
    )
    outbox.admin.execute(
        "GRANT SELECT ON outbox, outbox_fence, outbox_fence_notes, outbox_dead_letters, events"
        f" TO {name}".encode()
    )
    with closing(make_outbox(dsn, intake=INTAKE).dialect.watch()) as view:
        assert view.backlog().records == 2
    with pytest.raises(DriverError, match="there is no such table"):
        make_outbox(dsn, intake=replace(INTAKE, table="nowhere")).dialect.watch()
