"""Measures the latency from commit to consumer, at a steady rate of writes.

The clock starts when the writer's commit returns, and stops when the consumer's poll returns the record; both
processes use the machine's monotonic clock. Commits of a few records follow each other at equal intervals.

With ``--beside``, the code of another checkout takes turns with this one's in the same run: compare the two.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import psycopg
from confluent_kafka import Consumer, TopicPartition
from environment import Environment, cpu_seconds, environment, harvester

CHECKPOINTS = "outbox.checkpoints"
CODE = ("core/outbox_core", "api/outbox_api", "plugins/*/outbox_*")
OFFSETS = 2
"""Of a transaction in the topic of checkpoints: the checkpoint, and the marker behind it."""

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


def transactions(bootstrap: str) -> int:
    """Returns how many transactions have ended."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": CHECKPOINTS, "log_level": 0})
    topic = consumer.list_topics(timeout=10).topics.get(CHECKPOINTS)
    ends = [
        consumer.get_watermark_offsets(TopicPartition(CHECKPOINTS, number), timeout=10)[1]
        for number in (topic.partitions if topic else ())
    ]
    consumer.close()
    return sum(ends) // OFFSETS


def broker() -> psutil.Process:
    """Returns the broker's process."""
    family = psutil.Process().children(recursive=True)
    return next(each for each in family if "kafka.Kafka" in each.cmdline())


def quantile(ages: list[float], share: float) -> float:
    """Returns the age that so many records have at most."""
    return sorted(ages)[int(share * (len(ages) - 1))]


def take(on: Environment, checkout: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Measures the code of one checkout once."""
    code = [str(folder.parent) for each in CODE for folder in checkout.glob(each)]
    os.environ["PYTHONPATH"] = os.pathsep.join(code)
    limits = dict(each.split("=") for each in arguments.limit)
    limits = {key: int(value) if value.isdigit() else value for key, value in limits.items()}
    mode = {"engine": arguments.engine, "delivery": arguments.delivery, "limits": limits}
    with harvester(on.settings("bench", **mode)) as running:
        on.fill(on.topic(), arguments.backlog, arguments.keys)  # warms up caches and compilers
        drain = arguments.backlog / on.seconds_until_empty()
        topic, processes = on.topic(), (psutil.Process(running.pid), broker())
        ended, used = transactions(on.bootstrap), [cpu_seconds(each) for each in processes]
        ages, committed = measure(on, topic, arguments.rate, arguments.seconds, arguments.keys)
        used = [cpu_seconds(each) - before for each, before in zip(processes, used, strict=True)]
        ended = transactions(on.bootstrap) - ended
    quarter = len(ages) // 4
    return {
        "p50 ms": quantile(ages, 0.5),
        "p90 ms": quantile(ages, 0.9),
        "p99 ms": quantile(ages, 0.99),
        "p99.9 ms": quantile(ages, 0.999),
        "p99 of the first quarter": quantile(ages[:quarter], 0.99),
        "of the last": quantile(ages[-quarter:], 0.99),
        "transactions/s": ended / arguments.seconds,
        "records of one": committed / ended if ended else 0.0,
        "cpu µs of the harvester": 1e6 * used[0] / committed,
        "of the broker": 1e6 * used[1] / committed,
        "backlog/s": drain,
        "missing": committed - arguments.rate - len(ages),
    }


def line(name: str, values: dict[str, float]) -> str:
    """Returns values as one line."""
    return f"{name}: " + ", ".join(f"{each} {value:,.1f}" for each, value in values.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000, help="records per second")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--backlog", type=int, default=20_000, help="records that are drained before")
    parser.add_argument("--engine", default="spark", choices=["spark", "inline"])
    parser.add_argument(
        "--delivery", default="at-least-once", choices=["at-least-once", "exactly-once"], help="the mode"
    )
    parser.add_argument("--limit", action="append", default=[], metavar="KEY=VALUE", help="a key of limits")
    parser.add_argument("--rounds", type=int, default=1, help="the first of several is not counted")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another checkout")
    arguments = parser.parse_args()
    checkouts = [Path(__file__).parents[1], *(each.resolve() for each in arguments.beside)]
    taken: dict[Path, list[dict[str, float]]] = {each: [] for each in checkouts}
    with environment() as on:
        for number in range(arguments.rounds):
            for checkout in checkouts if number % 2 == 0 else checkouts[::-1]:
                taken[checkout].append(take(on, checkout, arguments))
                print(line(f"{number + 1} {checkout.name}", taken[checkout][-1]), flush=True)
    for checkout, rounds in taken.items() if arguments.rounds > 1 else ():
        medians = {name: statistics.median(each[name] for each in rounds[1:]) for name in rounds[0]}
        print(line(f"median of {checkout.name}", medians))


if __name__ == "__main__":
    main()
