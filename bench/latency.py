"""Measures the latency from commit to consumer, at a steady rate of writes.

The clock starts when the writer's commit returns, and stops when the consumer's poll returns the record; both
processes use the machine's monotonic clock. Commits of a few records follow each other at equal intervals.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

import psycopg
from confluent_kafka import Consumer
from environment import Environment, environment, harvester

INSERT = """INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
            kafka_header_values) VALUES (now(), %s, %s, %s, '{h}', '{v}')"""


def write(dsn: str, topic: str, out: Connection, *, rate: int, seconds: float, keys: int) -> None:
    """Writes ``rate`` records per second in commits 4 ms apart; sends the commit time of each."""
    committed: list[float] = []
    per_commit = max(1, rate // 250)
    with psycopg.connect(dsn) as connection:
        due = time.monotonic()
        while len(committed) < rate * seconds:
            first = len(committed)
            numbers = range(first, first + per_commit)
            rows = [(topic, f"key-{n % keys}", f"{n:0100}") for n in numbers]
            connection.cursor().executemany(INSERT, rows)
            connection.commit()
            committed += [time.monotonic()] * per_commit
            due += per_commit / rate
            time.sleep(max(0.0, due - time.monotonic()))
    out.send(committed)


def read(bootstrap: str, topic: str, out: Connection) -> None:
    """Reads until nothing arrives for three seconds; sends the first arrival time of each record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    out.send("ready")
    arrived: dict[int, float] = {}
    last = time.monotonic() + 10
    while time.monotonic() < last + 3:
        message = consumer.poll(0.1)
        now = time.monotonic()
        if message is not None and message.error() is None:
            arrived.setdefault(int(message.value()), now)
            last = now
    consumer.close()
    out.send(arrived)


def measure(on: Environment, topic: str, rate: int, seconds: float, keys: int) -> tuple[list[float], int]:
    """Returns latencies in milliseconds, and how many records were committed in all.

    The records of the first second are left out, in which writers and connections warm up.
    """
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.Process(target=read, args=(on.bootstrap, topic, theirs))
    reader.start()
    ours.recv()
    mine, yours = multiprocessing.Pipe()
    pace = {"rate": rate, "seconds": seconds, "keys": keys}
    writer = multiprocessing.Process(target=write, args=(on.dsn, topic, yours), kwargs=pace)
    writer.start()
    committed, arrived = mine.recv(), ours.recv()
    writer.join()
    reader.join()
    ages = [1000 * (arrived[n] - committed[n]) for n in range(rate, len(committed)) if n in arrived]
    return ages, len(committed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="records per second")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    parser.add_argument(
        "--delivery", default="at-least-once", choices=["at-least-once", "exactly-once"], help="the mode"
    )
    parser.add_argument("--limit", action="append", default=[], metavar="KEY=VALUE", help="a key of limits")
    arguments = parser.parse_args()
    limits: dict[str, object] = dict(each.split("=") for each in arguments.limit)
    limits = {key: int(value) if str(value).isdigit() else value for key, value in limits.items()}
    with environment() as on:
        topic = on.topic()
        settings = on.settings("bench", engine=arguments.engine, delivery=arguments.delivery, limits=limits)
        with harvester(settings):
            on.fill(on.topic(), 20_000, arguments.keys)  # warms up caches and compilers
            on.seconds_until_empty()
            ages, committed = measure(on, topic, arguments.rate, arguments.seconds, arguments.keys)
    cuts = statistics.quantiles(ages, n=1000)
    print(
        f"{arguments.rate:,}/s, {arguments.delivery}, engine {arguments.engine}: "
        f"{len(ages):,} of {committed - arguments.rate:,} arrived; "
        f"p50 {cuts[499]:.1f} ms, p90 {cuts[899]:.1f} ms, p99 {cuts[989]:.1f} ms, p99.9 {cuts[998]:.1f} ms"
    )


if __name__ == "__main__":
    main()
