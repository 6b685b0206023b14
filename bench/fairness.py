"""Measures how long a few records wait behind many rows of other keys: of failing keys, or of one hot key.

One transaction writes the obstacle and then the other records. The measurement ends when the other records
are purged.
"""

from __future__ import annotations

import argparse
import time

from backlog import insert
from environment import Environment, environment, harvester

OTHERS = 19
PATIENCE = 120.0
"""Seconds after which the other records count as not delivered."""


def write(on: Environment, topic: str, obstacle: str, rows: int, keys: int) -> None:
    """Writes the rows of the obstacle, with a number of keys, and the other records behind them."""
    with on.connect() as connection, connection.transaction():
        connection.execute("DELETE FROM outbox")
        for to, prefix, count, spread in ((obstacle, "front", rows, keys), (topic, "other", OTHERS, OTHERS)):
            insert(connection, to, count, f"'{prefix}' || mod(g, {spread})")


def seconds_of_others(on: Environment) -> float:
    """Returns how many seconds it takes until the other records are purged."""
    started = time.monotonic()
    with on.connect() as connection:
        others = "SELECT FROM outbox WHERE kafka_key LIKE 'other%' LIMIT 1"
        while connection.execute(others).fetchone() is not None:
            if time.monotonic() - started > PATIENCE:
                return float("inf")
            time.sleep(0.02)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=130_000, help="rows of failing keys")
    parser.add_argument("--hot-rows", type=int, default=30_000, help="rows of one key")
    parser.add_argument("--engine", default="inline", choices=["spark", "inline"])
    arguments = parser.parse_args()
    obstacles = (
        (f"{arguments.rows:,} rows of as many failing keys", "no-such-topic", arguments.rows, arguments.rows),
        (f"{arguments.rows:,} rows of 1,000 failing keys", "no-such-topic", arguments.rows, 1000),
        (f"{arguments.hot_rows:,} rows of one key", "", arguments.hot_rows, 1),
    )
    with environment(auto_create_topics=False) as on:
        topic = on.topic()
        for name, missing, rows, keys in obstacles:
            settings = on.settings("bench", engine=arguments.engine)
            with harvester(settings):
                on.fill(topic, 1000, 1000)
                on.seconds_until_empty()
                write(on, topic, missing or topic, rows, keys)
                waited = seconds_of_others(on)
                print(f"{name} in front: the others were delivered within {waited:.1f} s", flush=True)
            with on.connect() as connection:
                connection.execute("TRUNCATE outbox")
                connection.execute("DELETE FROM outbox_dead_letters")


if __name__ == "__main__":
    main()
