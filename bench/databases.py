"""Measures how fast each database is harvested, compared with mark and purge alone, in one run."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic
from environment import BROKER_JVM, harvester
from outbox_api import Batch, Dialect, Record, Seam, Stasher, find
from outbox_servers.finding import open_mariadb, open_mysql, open_postgres
from outbox_servers.services import KafkaBroker

MODES = ("at-least-once", "exactly-once")
ALONE = ("mark-purge", "advance")
"""Mark, then purge; and delete one batch and select the next, as exactly-once delivery does."""
DATABASES = ("postgres", "mysql", "mariadb", "sqlite")
PORTION = 2000
TOPIC = f"bench-{uuid4().hex[:8]}"


def place(database: str, stack: ExitStack) -> tuple[str, str]:
    """Starts a database; returns the driver's name and the data source."""
    if database == "sqlite":
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return "sqlite", str(Path(folder) / "bench.db")
    opener = {"postgres": open_postgres, "mysql": open_mysql, "mariadb": open_mariadb}[database]
    server: Any = stack.enter_context(opener())  # type: ignore[arg-type]  # each is a context manager
    return ("postgres" if database == "postgres" else "mysql"), server.create_database("bench")


def fill(dialect: Dialect, driver: str, rows: int, keys: int, table: str = "outbox") -> None:
    """Stashes a backlog in one transaction."""
    connection = dialect.stash_connection()
    stasher = Stasher(table, driver)
    for start in range(0, rows, 10_000):
        portion = range(start, min(start + 10_000, rows))
        records = [Record(TOPIC, f"key-{n * 7919 % keys}", f"{n:.>100}", (("h", "v"),)) for n in portion]
        stasher.stash_many(connection, records)
    connection.commit()
    connection.close()


def alone(dialect: Dialect, who: str) -> None:
    """Marks and purges, or selects and deletes, until nothing is left, without publishing."""
    table = dialect.connect()
    fence = table.enter(0, 1, table.bump(1, "bench"))
    leader, finished = uuid4(), list[Batch]()
    while True:
        if who == "advance":
            advanced = table.advance(fence, finished, [], PORTION)
            records = advanced.records
            finished = [Batch.of([record.id for record in records], advanced.newest)] if records else []
        else:
            records = table.mark(fence, leader, PORTION)
            table.purge(fence, leader, [record.id for record in records])
        if not records:
            table.close()
            return


def settings(folder: Path, harvest: dict[str, object]) -> Path:
    """Writes a configuration file."""
    path = folder / f"{uuid4().hex}.yaml"
    path.write_text(json.dumps({"harvest": harvest}))
    return path


def empty(dialect: Dialect) -> float:
    """Waits until the outbox is empty; returns the time."""
    table = dialect.connect()
    while table.backlog().records:
        time.sleep(0.02)
    table.close()
    return time.monotonic()


def measure(database: str, arguments: argparse.Namespace, bootstrap: str, folder: Path) -> dict[str, float]:
    """Returns contender → rows per second, the median of all rounds."""
    found: dict[str, list[float]] = {who: [] for who in (*ALONE, *arguments.delivery)}
    with ExitStack() as stack:
        driver, source = place(database, stack)
        plugin = find(Seam.DIALECT, driver)
        dialect = plugin.create(plugin.options(data_source=source))
        dialect.create()
        base = {
            "baseKafkaConfig": {"bootstrap.servers": bootstrap},
            "dataSource": source,
            "dialect": driver,
            "elector": "static",
            "engine": arguments.engine,
        }
        for round_ in range(arguments.rounds):
            for who, rates in found.items():
                if who in ALONE:
                    fill(dialect, driver, arguments.rows, arguments.keys)
                    started = time.monotonic()
                    alone(dialect, who)
                    seconds = time.monotonic() - started
                else:
                    with harvester(settings(folder, {**base, "name": f"{database}-{who}", "delivery": who})):
                        fill(dialect, driver, arguments.rows // 10, arguments.keys)  # warm-up
                        empty(dialect)
                        fill(dialect, driver, arguments.rows, arguments.keys)
                        started = time.monotonic()
                        seconds = empty(dialect) - started
                rates.append(arguments.rows / seconds)
                print(f"round {round_ + 1}: {database:9} {who:14} {rates[-1]:9,.0f}/s", flush=True)
    return {who: statistics.median(rates) for who, rates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", nargs="+", default=DATABASES, choices=DATABASES)
    parser.add_argument("--delivery", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    arguments = parser.parse_args()
    with KafkaBroker(jvm_options=BROKER_JVM) as kafka, tempfile.TemporaryDirectory() as folder:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 8)])[TOPIC].result()
        rates = {
            database: measure(database, arguments, kafka.bootstrap, Path(folder))
            for database in arguments.databases
        }
    print(f"{arguments.rows:,} rows, {arguments.keys:,} keys, engine {arguments.engine}, medians:")
    for database, found in rates.items():
        print(f"  {database}")
        for who, rate in found.items():
            beside = ", ".join(f"{rate / found[other]:.2f} of {other}" for other in ALONE if other != who)
            print(f"    {who:14} {rate:9,.0f}/s  {beside}")


if __name__ == "__main__":
    main()
