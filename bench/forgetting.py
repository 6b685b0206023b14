"""Forgets a key with many kept records while others are written, and looks for it in every table.

It says how long that took, and how long live records took from commit to consumer before it and meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from environment import Environment, environment
from replaying import live, tell_ages

KEY = "customer-4711-of-the-benchmark"
FILL = """
INSERT INTO outbox_kept (delivered_at, token, key_hash, lacks, create_time, id, kafka_topic, kafka_key,
                         kafka_value, kafka_header_keys, kafka_header_values)
SELECT now() - interval '1 hour' * g / {rows}, 1, {hash}, 0, now(), g, 'others', {key},
       lpad(g::text, 100, '0'), '{{}}', '{{}}'
FROM (SELECT g, CASE WHEN g % {every} = 0 THEN '{name}' ELSE 'key-' || g % 1000 END AS kafka_key
      FROM generate_series(1, {rows}) AS g) AS rows
"""


def fill(on: Environment, rows: int, every: int) -> None:
    """Writes kept records, one of so many with the key; each has the hash that a purge would give it."""
    from outbox_api.portable.keeping import key_hash  # noqa: PLC0415
    from outbox_postgres.ddl import PostgresIdiom  # noqa: PLC0415

    idiom = PostgresIdiom()
    hashed = key_hash(idiom, idiom.comparable("kafka_key"))
    with on.connect() as connection:
        given = {"rows": rows, "every": every, "name": KEY, "hash": hashed, "key": "kafka_key"}
        connection.execute(FILL.format(**given).encode())
        connection.execute(
            "VACUUM ANALYZE outbox_kept"
        )  # as autovacuum does soon, for the index of positions


def found(on: Environment) -> dict[str, int]:
    """Returns how many rows of each table have the key's bytes anywhere."""
    with on.connect() as connection:
        tables = [
            str(row[0])
            for row in connection.execute(
                "SELECT oid::regclass::text FROM pg_class"
                " WHERE relkind IN ('r', 'm') AND relnamespace = 'public'::regnamespace"
            )
        ]
        looks = {
            table: connection.execute(
                f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE %s",
                (f"%{KEY}%",),
            ).fetchone()
            for table in tables
        }
    return {table: int(row[0]) for table, row in looks.items() if row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kept", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=10, help="one of so many has the key")
    parser.add_argument("--keys", type=int, default=1000, help="of the live records")
    parser.add_argument("--rate", type=int, default=1000, help="live records per second")
    parser.add_argument("--before", type=float, default=30, help="seconds of live records before")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of live records in all")
    parser.add_argument("--delivery", default="exactly-once", choices=["at-least-once", "exactly-once"])
    arguments = parser.parse_args()
    with environment() as on:
        topic = on.topic()
        kept = {"driver": "postgres", "keep": {"for": "2d"}}
        settings = on.settings("bench", dialect=kept, engine="inline", delivery=arguments.delivery)
        subprocess.run([sys.executable, "-m", "outbox_core", "init", "-f", str(settings)], check=True)
        fill(on, arguments.kept, arguments.every)
        with live(on, topic, settings, arguments) as records:
            before, begin = found(on), time.monotonic()
            command = [sys.executable, "-m", "outbox_core", "forget", "-f", str(settings), "--key", KEY]
            subprocess.run([*command, "--reason", f"asked by {KEY}", "--yes"], check=True)
            end = time.monotonic()
        left = {table: rows for table, rows in found(on).items() if rows}
    print(f"rows with the key before: {sum(before.values()):,}; after: {left or 'none'}; {end - begin:.1f} s")
    committed, seen = len(records.committed), records.seen
    print(f"live: {committed - len(seen.live):,} of {committed:,} missing, {seen.disorder} out of order")
    tell_ages(records, begin, end)


if __name__ == "__main__":
    main()
