"""Measures what the storage settings of an outbox cost and save, on PostgreSQL with autovacuum at work.

All variants are harvested at the same time in one server, each by mark and purge on a thread of its own:
they share whatever else the machine does. A backlog drains first, while records flow in steadily. In the last
third another session keeps an old snapshot, if asked to. Run ``uv run bench/vacuum.py --help``.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import uuid
from dataclasses import dataclass, field

import psycopg
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_servers.services import PostgresServer

NAIVE = "fillfactor = 100"
"""The server's own defaults."""
EAGER = "fillfactor = 45, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000"
VARIANTS = {
    "server's defaults": NAIVE,
    "fill factor alone": "fillfactor = 45",
    "threshold": EAGER,
    "cost delay 0": f"{EAGER}, autovacuum_vacuum_cost_delay = 0",
    "no insert vacuum": f"{EAGER}, autovacuum_vacuum_insert_threshold = -1",
    "no truncation": f"{EAGER}, vacuum_truncate = off",
    "all": f"{EAGER}, autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1,"
    " vacuum_truncate = off",
}
LIMIT = 500
"""Rows of one mark."""
PERIOD = 0.1
INSERT = """
    INSERT INTO {} (kafka_topic, kafka_key, kafka_value)
    SELECT 'bench', 'key-' || mod(g, 1000), repeat('x', 200) FROM generate_series(1, %s) AS g"""


@dataclass
class Outbox:
    """One variant, and what was seen of it."""

    title: str
    dsn: str
    table: str
    marks: list[float] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    drained: float | None = None
    records: int = 0

    def make(self, settings: str, admin: psycopg.Connection, backlog: int) -> None:
        """Creates the outbox with these settings, and fills it."""
        self.dialect = PostgresDialect(
            PostgresOptions(data_source=self.dsn, table=self.table, fence_table=f"{self.table}_fence")
        )
        self.dialect.create()
        reset = "autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, fillfactor"
        admin.execute(f"ALTER TABLE {self.table} RESET ({reset})")
        admin.execute(f"ALTER TABLE {self.table} SET ({settings})")
        admin.execute(INSERT.format(self.table), (backlog,))

    def write(self, stop: threading.Event, rate: int) -> None:
        """Writes records at a steady rate until told to stop."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            due = time.monotonic()
            while not stop.is_set():
                connection.execute(INSERT.format(self.table), (round(rate * PERIOD),))
                due += PERIOD
                stop.wait(max(0.0, due - time.monotonic()))

    def harvest(self, stop: threading.Event) -> None:
        """Marks and purges until told to stop."""
        table = self.dialect.connect()
        fence = table.enter(0, 1, table.bump(1, "bench"))
        leader, began = uuid.uuid4(), time.monotonic()
        while not stop.is_set():
            start = time.monotonic()
            records = table.mark(fence, leader, LIMIT)
            self.marks.append(time.monotonic() - start)
            if records:
                table.purge(fence, leader, [record.id for record in records])
                self.records += len(records)
            if len(records) < LIMIT:
                self.drained = self.drained or time.monotonic() - began
                stop.wait(PERIOD)
        table.close()

    def look(self, admin: psycopg.Connection) -> None:
        """Notes how many dead rows there are, and how large the table is."""
        query = """
            SELECT pg_stat_get_dead_tuples(%s::regclass::oid), pg_total_relation_size(%s::regclass)"""
        [(dead, size)] = admin.execute(query, (self.table, self.table)).fetchall()
        self.dead.append(dead)
        self.size.append(size)

    def row(self, admin: psycopg.Connection) -> str:
        """Returns what was seen, as a row of a table."""
        query = "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relid = %s::regclass"
        [(vacuums,)] = admin.execute(query, (self.table,)).fetchall()
        marks = sorted(self.marks)
        cells = (
            f"{self.drained or float('nan'):.1f}", f"{self.records:,}",
            f"{statistics.median(self.dead):,.0f}", f"{max(self.dead):,}",
            f"{max(self.size) / 1e6:,.0f}", f"{self.size[-1] / 1e6:,.0f}",
            f"{statistics.median(marks) * 1e3:.2f}", f"{marks[len(marks) * 99 // 100] * 1e3:.1f}",
            f"{marks[-1] * 1e3:.0f}", vacuums,
        )  # fmt: skip
        return f"| {self.title} | {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--backlog", type=int, default=100_000, help="records of each variant at the start")
    parser.add_argument("--rate", type=int, default=400, help="records per second of each variant")
    parser.add_argument("--snapshot", action="store_true", help="keep an old snapshot in the last third")
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    settings = {"autovacuum_max_workers": len(arguments.only)}
    with PostgresServer(settings=settings) as server, psycopg.connect(server.dsn, autocommit=True) as admin:
        print(admin.execute("SELECT version()").fetchone())
        outboxes = [Outbox(title, server.dsn, f"box{n}") for n, title in enumerate(arguments.only)]
        for outbox in outboxes:
            outbox.make(VARIANTS[outbox.title], admin, arguments.backlog)
        run(outboxes, admin, server.dsn, arguments)
        print("| variant | drained s | records | dead median | dead most | MB most | MB end", end="")
        print(" | mark ms | p99 | longest | vacuums |")
        for outbox in outboxes:
            print(outbox.row(admin))


def run(outboxes: list[Outbox], admin: psycopg.Connection, dsn: str, arguments: argparse.Namespace) -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=outbox.harvest, args=(stop,)) for outbox in outboxes]
    threads += [threading.Thread(target=outbox.write, args=(stop, arguments.rate)) for outbox in outboxes]
    for thread in threads:
        thread.start()
    began, held = time.monotonic(), None
    while (passed := time.monotonic() - began) < arguments.seconds:
        if arguments.snapshot and held is None and passed > arguments.seconds * 2 / 3:
            held = psycopg.connect(dsn)
            held.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            held.execute("SELECT count(*) FROM pg_class")
        for outbox in outboxes:
            outbox.look(admin)
        time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join()
    if held is not None:
        held.close()


if __name__ == "__main__":
    main()
