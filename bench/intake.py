"""Measures how fast rows of another table are taken in and published, and the memory that this takes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from environment import BROKER_JVM
from outbox_servers.finding import open_mysql
from outbox_servers.services import KafkaBroker, PostgresServer

ROWS = {
    "postgres": (
        "INSERT INTO events SELECT {id}, 'bench', 'k' || i % 1000, 'made', '{{\"n\": ' || i || '}}'"
        " FROM generate_series({first}, {last}) AS i"
    ),
    "mysql": (
        "INSERT INTO events SELECT {id}, 'bench', CONCAT('k', i % 1000), 'made', CONCAT('{{\"n\": ', i, '}}')"
        " FROM (WITH RECURSIVE s AS (SELECT {first} AS i UNION ALL SELECT i + 1 FROM s WHERE i < {last})"
        " SELECT i FROM s) AS series"
    ),
}
TYPES = {"commits": ("UUID", "gen_random_uuid()"), "id": ("BIGINT", "i")}
STEP = 1000


def fill(connection: Any, database: str, order: str, rows: int) -> None:
    """Writes rows in transactions of some."""
    type_, id_ = TYPES[order]
    cursor = connection.cursor()
    cursor.execute(
        f"CREATE TABLE events (id {type_} PRIMARY KEY, aggregatetype VARCHAR(99), aggregateid VARCHAR(99),"
        " type VARCHAR(99), payload VARCHAR(999))"
    )
    for first in range(1, rows + 1, STEP):
        cursor.execute(ROWS[database].format(id=id_, first=first, last=first + STEP - 1))
        connection.commit()


def peak(pid: int) -> int:
    """Returns the greatest resident memory of a process, in MiB."""
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def measure(connection: Any, harvest: dict[str, object], seconds: float) -> tuple[int, float, int]:
    """Harvests; returns how many rows, in how many seconds, with how many MiB."""
    count = "SELECT (SELECT COUNT(*) FROM events) + (SELECT COUNT(*) FROM outbox)"
    cursor = connection.cursor()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outbox.yaml"
        path.write_text(json.dumps({"harvest": harvest}))
        command = [sys.executable, "-m", "outbox_core"]
        subprocess.run([*command, "init", "-f", str(path)], check=True, stdout=subprocess.DEVNULL)
        cursor.execute(count)
        before = left = int(cursor.fetchone()[0])
        connection.commit()
        process = subprocess.Popen([*command, "run", "-f", str(path)], stderr=subprocess.DEVNULL)
        started = time.monotonic()
        while left and time.monotonic() < started + seconds:
            time.sleep(1)
            cursor.execute(count)
            left = int(cursor.fetchone()[0])
            connection.commit()
        taken, memory = time.monotonic() - started, peak(process.pid)
        process.terminate()
        process.wait()
        return before - left, taken, memory


def main() -> None:
    """Fills a table, harvests it, and prints the rate and the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=ROWS, default="postgres")
    parser.add_argument("--order", choices=TYPES, default="commits")
    parser.add_argument("--delivery", default="at-least-once")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args()
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(jvm_options=BROKER_JVM))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("outbox.event.bench", 6)])["outbox.event.bench"].result(30)
        if given.database == "postgres":
            import psycopg  # noqa: PLC0415 - of the database that is measured

            server: Any = stack.enter_context(PostgresServer(settings={"track_commit_timestamp": "on"}))
            dsn = server.create_database("bench")
            connection: Any = stack.enter_context(psycopg.connect(dsn))
        else:
            import pymysql  # noqa: PLC0415 - likewise
            from outbox_mysql.options import DataSource  # noqa: PLC0415 - likewise

            server = stack.enter_context(open_mysql())
            dsn = server.create_database("bench")
            source = DataSource.parse(dsn)
            connection = pymysql.connect(
                host=source.host,
                port=source.port,
                user=source.user,
                password=source.password or "",
                database=source.database,
            )
            connection.cursor().execute("SET SESSION cte_max_recursion_depth = 1000000")
        fill(connection, given.database, given.order, given.rows)
        harvest = {
            "name": "bench",
            "baseKafkaConfig": {"bootstrap.servers": broker.bootstrap},
            "dataSource": dsn,
            "dialect": {"driver": given.database, "intake": {"table": "events", "layout": "debezium"}},
            "elector": "static",
            "engine": "inline",
            "delivery": given.delivery,
        }
        rows, seconds, memory = measure(connection, harvest, given.seconds)
        print(
            f"{given.database}, order of {given.order}, {given.delivery}: {rows:,} of {given.rows:,} rows in"
            f" {seconds:.0f} s, {rows / seconds:,.0f}/s, {memory} MiB"
        )


if __name__ == "__main__":
    main()
