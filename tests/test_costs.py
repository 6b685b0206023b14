"""What records and an idle harvester cost the database: counts, which do not depend on the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from outbox_servers.services import Kafka, PostgresServer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .drained_lane import DrainedLane, open_lane_of
from .harvesters import Fleet
from .shop import Shop
from .wire import Wire

ROWS = 20_000
WARM_UP = 20_000
"""Rows before these, in which batches grow and connections prepare their statements."""
IDLE_SECONDS = 5.0
SETTLING = 2.0
"""Seconds for the database to count what its sessions did; each tells once a second."""

STASH = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
SELECT now(), %s, 'key-' || n %% 1000, 'sale ' || n, '{sequence}', ARRAY[n::text]
FROM generate_series(1, %s) AS n
"""
SYNCS = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
"""How often sessions have waited for the log to be on disk."""
SYNCS_BEFORE_18 = "SELECT wal_sync FROM pg_stat_wal"


class Costs(NamedTuple):
    """What a thousand records cost, or the most that they may cost.

    Attributes:
        statements: Statements that the database executed.
        round_trips: How often the lane waited for the database.
        durable_commits: How often the database waited for its disk.
        updated: Versions of rows that were written.
        deleted: Rows that were deleted.
        wal_bytes: What the database logged.
        produce_requests: Requests to the broker with records.
        blocks_held: Blocks of Python's memory in use while the lane has so many records.
        blocks_left: Those that are still in use when it has none.
    """

    statements: float
    round_trips: float
    durable_commits: float
    updated: float
    deleted: float
    wal_bytes: float
    produce_requests: float
    blocks_held: float
    blocks_left: float

    def exceeding(self, most: Costs) -> dict[str, tuple[float, float]]:
        """Returns what costs more than it may: its name → what it costs, and the most."""
        pairs = zip(self._fields, self, most, strict=True)
        return {name: (cost, limit) for name, cost, limit in pairs if cost > limit}


EXACTLY_ONCE = Costs(
    statements=0.45,
    round_trips=0.45,
    durable_commits=0.5,
    updated=0,
    deleted=1000,
    wal_bytes=250_000,
    produce_requests=1,
    blocks_held=15_700,
    blocks_left=50,
)
"""The most: in four batches of up to 10,000 records, each of which goes to four partitions with a checkpoint.

Bounds of counts are what was counted, but for durable commits: on a busy machine the log of one may be
written in two parts. One more for each batch exceeds the bound still. A record that needs one more block
exceeds that of ``blocks_held``.
"""
AT_LEAST_ONCE = Costs(
    statements=2.2,
    round_trips=2.2,
    durable_commits=1.8,
    updated=1000,
    deleted=1000,
    wal_bytes=650_000,
    produce_requests=4,
    blocks_held=10_700,
    blocks_left=50,
)
"""The most: in marks and waves of a thousand records, each of which goes to four partitions."""


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


def written(connection: psycopg.Connection, lane: DrainedLane) -> tuple[int, ...]:
    """Returns the database's counters of syncs, updates, deletions, and bytes of its log."""
    lane.settle()
    syncs = SYNCS if connection.info.server_version >= 180000 else SYNCS_BEFORE_18
    row = connection.execute(
        f"""
        SELECT ({syncs}), n_tup_upd, n_tup_del, pg_current_wal_lsn() - '0/0'::pg_lsn
        FROM pg_stat_user_tables WHERE relname = 'outbox'"""
    ).fetchone()
    assert row is not None
    return tuple(map(int, row))


def drain(shop: Shop, delivery: str, monkeypatch: pytest.MonkeyPatch) -> Costs:
    """Drains a backlog, and returns what that cost."""
    with ExitStack() as stack:
        wire = stack.enter_context(closing(Wire(int(conninfo_to_dict(shop.dsn)["port"] or 0))))
        settings = {
            "dataSource": make_conninfo(shop.dsn, port=wire.port, sslmode="disable", gssencmode="disable"),
            "baseKafkaConfig": {"bootstrap.servers": shop.kafka.bootstrap},
            "delivery": delivery,
            "elector": "static",
        }
        lane = stack.enter_context(open_lane_of(settings, monkeypatch))
        connection = stack.enter_context(shop.connect())
        connection.execute(STASH, (shop.topic, WARM_UP))
        lane.drain(WARM_UP)
        connection.execute(STASH, (shop.topic, ROWS))
        connection.execute("CHECKPOINT")  # from now on each page is logged whole when it is changed first

        writes = written(connection, lane)
        requests, asked, blocks = lane.produce_requests(), wire.counts(), lane.blocks()
        lane.drain(ROWS)
        costs = [
            *(b - a for a, b in zip(asked, wire.counts(), strict=True)),
            *(b - a for a, b in zip(writes, written(connection, lane), strict=True)),
            lane.produce_requests() - requests,
        ]
        held, left = (lane.fullest.blocks - blocks) / lane.fullest.records, lane.blocks() - blocks
    return Costs._make([*(1000 * cost / ROWS for cost in costs), 1000 * held, 1000 * left / ROWS])


def test_exactly_once_delivery_writes_nothing_but_deletions(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = drain(shop, "exactly-once", monkeypatch)
    assert (costs.updated, costs.deleted) == (0, 1000)
    assert costs.exceeding(EXACTLY_ONCE) == {}, costs


def test_at_least_once_delivery_writes_each_row_twice(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = drain(shop, "at-least-once", monkeypatch)
    assert (costs.updated, costs.deleted) == (1000, 1000)
    assert costs.exceeding(AT_LEAST_ONCE) == {}, costs


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


@pytest.mark.parametrize("delivery", ["at-least-once", pytest.param("exactly-once", marks=pytest.mark.slow)])
def test_an_idle_harvester_asks_for_new_rows_and_writes_heartbeats(
    delivery: str, shop: Shop, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path, shop)
    harvester = fleet.start("only", delivery=delivery, limits={})  # the default, of one lane
    try:
        harvester.wait_for("leader acquired", 120)
        time.sleep(SETTLING)
        before, started = activity(shop), time.monotonic()
        time.sleep(IDLE_SECONDS)
        seconds = time.monotonic() - started
        after = activity(shop)
    finally:
        fleet.close()
    asked = Asked(*((b - a) / seconds for a, b in zip(before, after, strict=True)))
    # A mark or selection every 50 to 100 ms, and heartbeats; those of a second before may be counted, too.
    assert 0 < asked.transactions < 30
    assert asked.writes < 1
    assert asked.wal_bytes < 8192  # a heartbeat may log a whole page; a mark or selection logs nothing
