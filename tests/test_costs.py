"""What records and an idle harvester cost the database: counts, which do not depend on the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from outbox_servers.services import Kafka, PostgresServer

from .harvesters import Fleet
from .shop import Shop

ROWS = 20_000
IDLE_SECONDS = 5.0
SETTLING = 2.0
"""Seconds for the database to count what its sessions did; each tells once a second."""


class Costs(NamedTuple):
    """What the database did for one row, on average."""

    updated: float
    deleted: float
    wal_bytes: float


class Asked(NamedTuple):
    """What the database was asked for, in one second."""

    transactions: float
    wal_bytes: float
    writes: float


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that nobody else uses; it does nothing on its own that would be counted."""
    with PostgresServer(settings={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def shop(server: PostgresServer, kafka_broker: Kafka, topic: str) -> Shop:
    shop = Shop(server.create_database(f"costs_{topic[-8:]}"), kafka_broker, topic)
    shop.open()
    return shop


def counts(connection: psycopg.Connection) -> tuple[int, int, int]:
    row = connection.execute(
        """
        SELECT n_tup_upd, n_tup_del, pg_current_wal_lsn() - '0/0'::pg_lsn
        FROM pg_stat_user_tables WHERE relname = 'outbox'"""
    ).fetchone()
    assert row is not None
    return row


def harvest(shop: Shop, folder: Path, delivery: str) -> Costs:
    """Drains a backlog, and returns what that cost."""
    shop.stash(ROWS, keys=1000)
    with shop.connect() as connection:
        connection.execute("CHECKPOINT")  # from now on each page is logged whole when it is changed first
        before = counts(connection)
        fleet = Fleet(folder, shop)
        harvester = fleet.start("only", delivery=delivery)
        shop.wait_until_harvested(60)
        harvester.leave()
        fleet.close()
        after = counts(connection)
    updated, deleted, wal_bytes = ((b - a) / ROWS for a, b in zip(before, after, strict=True))
    return Costs(updated, deleted, float(wal_bytes))


def test_exactly_once_delivery_writes_nothing_but_deletions(shop: Shop, tmp_path: Path) -> None:
    costs = harvest(shop, tmp_path, "exactly-once")
    assert (costs.updated, costs.deleted) == (0, 1)
    assert costs.wal_bytes < 350


def test_at_least_once_delivery_writes_each_row_twice(shop: Shop, tmp_path: Path) -> None:
    costs = harvest(shop, tmp_path, "at-least-once")
    assert (costs.updated, costs.deleted) == (1, 1)
    assert costs.wal_bytes < 1000


def activity(shop: Shop) -> tuple[float, ...]:
    with shop.connect() as connection:
        row = connection.execute(
            """
            SELECT xact_commit + xact_rollback, pg_current_wal_lsn() - '0/0'::pg_lsn,
                tup_inserted + tup_updated + tup_deleted
            FROM pg_stat_database WHERE datname = current_database()"""
        ).fetchone()
    assert row is not None
    return tuple(map(float, row))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_an_idle_harvester_asks_for_new_rows_and_writes_heartbeats(
    delivery: str, shop: Shop, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path, shop)
    harvester = fleet.start("only", delivery=delivery, limits={})  # the default, of one lane
    try:
        harvester.wait_for("leader acquired", 30)
        time.sleep(SETTLING)
        before, started = activity(shop), time.monotonic()
        time.sleep(IDLE_SECONDS)
        seconds = time.monotonic() - started
        after = activity(shop)
    finally:
        fleet.close()
    asked = Asked(*((b - a) / seconds for a, b in zip(before, after, strict=True)))
    # A mark or selection every 50 ms, and heartbeats; those of a second before may be counted as well.
    assert 0 < asked.transactions < 30
    assert asked.writes < 1
    assert asked.wal_bytes < 8192  # a heartbeat may log a whole page; a mark or selection logs nothing
