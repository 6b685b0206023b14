"""What an idle harvester asks of the database: counts, which do not depend on the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from outbox_servers.services import Kafka, PostgresServer

from .harvesters import Fleet
from .shop import Shop

SECONDS = 5.0
SETTLING = 2.0
"""Seconds for the database to count what its sessions did; each tells once a second."""


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
    shop = Shop(server.create_database(f"idle_{topic[-8:]}"), kafka_broker, topic)
    shop.open()
    return shop


def counts(shop: Shop) -> tuple[float, ...]:
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
        before, started = counts(shop), time.monotonic()
        time.sleep(SECONDS)
        seconds = time.monotonic() - started
        after = counts(shop)
    finally:
        fleet.close()
    asked = Asked(*((b - a) / seconds for a, b in zip(before, after, strict=True)))
    # A mark or selection every 50 ms, and heartbeats; those of a second before may be counted as well.
    assert 0 < asked.transactions < 30
    assert asked.writes < 1
    assert asked.wal_bytes < 8192  # a heartbeat may log a whole page; a mark or selection logs nothing
