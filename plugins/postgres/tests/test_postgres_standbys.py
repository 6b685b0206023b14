"""A synchronous standby that is away, and somebody who cancels the waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import sleep
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from outbox_api import DriverError, RolledBack
from outbox_servers.services import PostgresServer

from .outbox_hands import Hand, Outbox, ask, until
from .test_postgres_check import troubles

WAITERS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def name_standbys(admin: psycopg.Connection[Any], names: str) -> None:
    admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
    admin.execute("SELECT pg_reload_conf()")
    until(lambda: ask(admin, "SHOW synchronous_standby_names") == names)
    sleep(0.2)  # for the other processes


@pytest.fixture
def box(own_postgres: PostgresServer, stack: ExitStack) -> Outbox:
    made = Outbox(own_postgres.create_database(f"d{uuid4().hex}"), stack, statement_timeout=0.5)
    made.dialect.create()
    made.fill(2)
    return made


@pytest.fixture
def hand(box: Outbox) -> Hand:
    return box.lead()


@pytest.fixture
def away(box: Outbox, hand: Hand) -> Iterator[None]:
    """Has every commit wait for a standby that is not there."""
    name_standbys(box.admin, "away")
    yield
    name_standbys(box.admin, "")


@pytest.mark.usefixtures("away")
def test_a_purge_whose_wait_was_cancelled_has_an_unknown_outcome(
    box: Outbox, hand: Hand, pool: ThreadPoolExecutor
) -> None:
    ids = [record.id for record in hand.mark()]
    purge = pool.submit(hand.purge, *ids)
    until(lambda: ask(box.admin, WAITERS) == 1)
    box.admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    with pytest.raises(DriverError, match="canceling wait for synchronous replication") as caught:
        purge.result(30)
    assert caught.value.retryable
    assert not isinstance(caught.value, RolledBack)


@pytest.mark.usefixtures("away")
def test_a_wait_for_a_standby_is_named(box: Outbox) -> None:
    with pytest.raises(DriverError, match="commits wait for a synchronous standby that is away"):
        box.connect().bump(1, "next")
    assert "no such standby is attached" in troubles(box)["synchronous standbys"]
    name_standbys(box.admin, "")
    assert "synchronous standbys" not in troubles(box)
