"""What one mark or one selection costs in backlogs of many sizes, and behind rows that it may not take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
from outbox_api import ColumnIs, Poison

from bench.compare.backlog import Shape, fill
from bench.compare.bench import Bench
from bench.compare.candidates import Candidate, CandidateError
from bench.compare.loops import Own
from bench.compare.meter import Values
from bench.compare.own import connect, dialect
from bench.compare.servers import Place
from bench.compare.steady import held_snapshot

LIMIT = 100
"""Rows of one mark or selection."""
ROUNDS = 30
WARM_UP = 10
WARM_UP_PAUSE = 0.15
"""Seconds between the first claims, until the connection knows from which id it may start."""
IN_FRONT = 2000
"""Rows in front that may not be taken."""
DEAD = 200_000
OURS: tuple[ColumnIs, ...] = (ColumnIs("cluster", "ours"),)
"""What a cluster may take: its own rows, and those that another one has left for an hour."""

ROWS_IN_FRONT = """
    INSERT INTO outbox (id, create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
                        kafka_header_values, cluster)
    SELECT -g, now(), 'front', 'front-' || g, lpad(g::text, 100, '.'), '{{}}', '{{}}', '{}'
    FROM generate_series(1, {}) AS g"""


def claims(bench: Bench, rows: int) -> Callable[[Candidate], Values]:
    """Returns a function that measures claims of 100 rows in an outbox of ``rows`` rows.

    Each condition has a connection of its own. The values are the medians, in ms.
    """

    def take(candidate: Candidate) -> Values:
        if not isinstance(candidate, Own):
            raise CandidateError("only the statements of outbox are measured one by one")
        with bench.servers.place(own_table=candidate.own_table) as place, place.connect() as admin:
            dialect(place.bench_dsn).create()
            admin.execute("ALTER TABLE outbox ADD COLUMN cluster TEXT NOT NULL DEFAULT 'ours'")
            admin.execute("ALTER TABLE outbox SET (autovacuum_enabled = off)")
            fill(place, Shape(), rows + 5 * (WARM_UP + ROUNDS) * LIMIT)
            admin.execute("VACUUM ANALYZE outbox")

            def measured(eligible: tuple[ColumnIs, ...] = ()) -> float:
                with closing(connect(place.bench_dsn, candidate.statements, eligible)) as own:
                    for _ in range(WARM_UP):
                        own.next(LIMIT)
                        time.sleep(WARM_UP_PAUSE)
                    taken = [own.next(LIMIT) for _ in range(ROUNDS)]
                if any(found < LIMIT for found, _ in taken):
                    raise CandidateError("a claim found fewer rows than there were")
                return 1000 * statistics.median(seconds for _, seconds in taken)

            values = {"fresh": measured()}
            with rows_in_front(admin, IN_FRONT, "theirs"):
                values["affinity"] = measured(OURS)
            with rows_in_front(admin, IN_FRONT), parked(place, admin):
                values["parked"] = measured()
            with rows_in_front(admin, DEAD):
                pass
            values["dead rows"] = measured()
            with held_snapshot(place):
                with rows_in_front(admin, DEAD):
                    pass
                values["snapshot"] = measured()
        return values

    return take


@contextmanager
def rows_in_front(admin: psycopg.Connection, rows: int, cluster: str = "ours") -> Iterator[None]:
    """Keeps rows with lower ids than all others; their deletion leaves dead ones."""
    admin.execute(ROWS_IN_FRONT.format(cluster, rows).encode())
    try:
        yield
    finally:
        admin.execute("DELETE FROM outbox WHERE id < 0")


@contextmanager
def parked(place: Place, admin: psycopg.Connection) -> Iterator[None]:
    """Parks the keys of all rows in front."""
    with closing(dialect(place.bench_dsn).connect()) as table:
        fence = table.enter(0, 1, table.bump(1, "bench"))
        table.park(fence, None, [Poison(-number, "bench", 1) for number in range(1, IN_FRONT + 1)])
    try:
        yield
    finally:
        admin.execute("TRUNCATE outbox_dead_letters")
