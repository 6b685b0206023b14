"""Replays a part of many kept records while others are written, is killed twice, and looks at the topic.

It says whether each record came, how often and in which order of its key, and how long live records took
from commit to consumer before the replay and during it. Clocks are those of ``latency.py``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Event, Pipe, Process
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event as Flag
from pathlib import Path

from confluent_kafka import Consumer
from environment import Environment, environment, harvester
from latency import quantile, write

KILLS = (0.3, 0.6)
"""When a replay is killed: once this share of the records was stashed."""
QUANTILES = (("p50", 0.5), ("p99", 0.99), ("most", 1.0))
QUIET = 5.0
"""Seconds without a record after which there are none any more."""

FILL = """
INSERT INTO outbox_kept (delivered_at, token, key_hash, lacks, create_time, id, kafka_topic, kafka_key,
                         kafka_value, kafka_header_keys, kafka_header_values)
SELECT now() - interval '1 hour' + interval '1 hour' * g / {rows}, 1, 0, 0, now(), g,
       CASE WHEN g % {every} = 0 THEN '{topic}' ELSE 'others' END,
       'key-' || g / {every} % {keys}, 'r' || lpad(g::text, 99, '0'), '{{}}', '{{}}'
FROM generate_series({first}, {last}) AS g
"""
DONE = "SELECT outcome::json->>4 FROM outbox_journal WHERE ended IS NULL AND outcome LIKE '[%'"
"""How many records a replay has stashed that has not ended: its entry holds its state."""


class Seen:
    """What a consumer has seen: when live records arrived first, and what was repeated or out of order."""

    def __init__(self) -> None:
        self.arrived: dict[int, float] = {}
        self.replayed: Counter[int] = Counter()
        self.live: Counter[int] = Counter()
        self.disorder = 0
        self._last: dict[tuple[bool, bytes], int] = {}

    def add(self, key: bytes, value: bytes) -> None:
        """Notes a record."""
        replayed = value.startswith(b"r")
        number = int(value.removeprefix(b"r"))
        (self.replayed if replayed else self.live)[number] += 1
        if not replayed:
            self.arrived.setdefault(number, time.monotonic())
        # One that was seen may come again, in at-least-once delivery.
        last = self._last.get((replayed, key), -1)
        counts = self.replayed if replayed else self.live
        if number < last and counts[number] == 1:
            self.disorder += 1
        self._last[replayed, key] = max(last, number)


def read(bootstrap: str, topic: str, ended: Flag, out: Connection) -> None:
    """Reads a topic until nothing arrives behind the end of all writers; sends what it has seen."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    seen, last = Seen(), time.monotonic()
    while not ended.is_set() or time.monotonic() < last + QUIET:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                last = time.monotonic()
                seen.add(message.key() or b"", message.value() or b"")
    consumer.close()
    out.send(seen)


@dataclass
class Live:
    """What is known of live records, once all of them have come."""

    committed: list[float] = field(default_factory=list)  # when each was, in the order of their numbers
    seen: Seen = field(default_factory=Seen)


@contextmanager
def live(on: Environment, topic: str, settings: Path, arguments: argparse.Namespace) -> Iterator[Live]:
    """Runs a harvester while live records are written and read; enters the block after some seconds."""
    found, ended, (mine, yours), (ours, theirs) = Live(), Event(), Pipe(), Pipe()
    with harvester(settings):
        pace = {"rate": arguments.rate, "seconds": arguments.seconds, "keys": arguments.keys}
        Process(target=read, args=(on.bootstrap, topic, ended, theirs)).start()
        Process(target=write, args=(on.dsn, topic, yours), kwargs=pace).start()
        time.sleep(arguments.before)
        yield found
        found.committed = mine.recv()
        on.seconds_until_empty()
        ended.set()
        found.seen = ours.recv()


def replay(on: Environment, settings: Path, topic: str, chosen: int) -> tuple[float, str]:
    """Replays, killed at some shares; returns seconds from the first start, and what the last one said."""
    command = [sys.executable, "-m", "outbox_core", "replay", "-f", str(settings), "--name", "bench"]
    command += ["--topic", topic, "--where", "token = 1", "--reason", "benchmark", "--yes"]
    began = time.monotonic()
    with on.connect() as connection:
        for share in KILLS:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            done = 0
            while done < share * chosen and process.poll() is None:
                time.sleep(0.1)
                row = connection.execute(DONE).fetchone()
                done = int(row[0] or 0) if row else 0
            process.kill()
            process.wait()
            print(f"killed after {done:,} records", flush=True)
    last = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.monotonic() - began, (last.stdout + last.stderr).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kept", type=int, default=10_000_000)
    parser.add_argument("--every", type=int, default=10, help="one of so many is replayed")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1000, help="live records per second")
    parser.add_argument("--before", type=float, default=30, help="seconds of live records before the replay")
    parser.add_argument("--seconds", type=float, default=300, help="seconds of live records in all")
    parser.add_argument("--delivery", default="exactly-once", choices=["at-least-once", "exactly-once"])
    arguments = parser.parse_args()
    with environment() as on:
        topic = on.topic()
        kept = {"driver": "postgres", "keep": {"for": "2d"}}
        settings = on.settings("bench", dialect=kept, engine="inline", delivery=arguments.delivery)
        subprocess.run([sys.executable, "-m", "outbox_core", "init", "-f", str(settings)], check=True)
        fill(on, topic, arguments)
        with live(on, topic, settings, arguments) as records:
            begin = time.monotonic()
            took, said = replay(on, settings, topic, arguments.kept // arguments.every)
    print(said)
    report(records, begin, took, arguments)


def fill(on: Environment, topic: str, arguments: argparse.Namespace) -> None:
    """Writes kept records of the last hour, a million in a transaction."""
    with on.connect() as connection:
        for first in range(1, arguments.kept + 1, 1_000_000):
            last = min(first + 999_999, arguments.kept)
            given = {"rows": arguments.kept, "every": arguments.every, "keys": arguments.keys}
            connection.execute(FILL.format(topic=topic, first=first, last=last, **given).encode())
        connection.execute(
            "VACUUM ANALYZE outbox_kept"
        )  # as autovacuum does soon, for the index of positions


def report(records: Live, begin: float, took: float, arguments: argparse.Namespace) -> None:
    """Prints what came, and how long it took."""
    chosen, end = arguments.kept // arguments.every, begin + took
    seen, written = records.seen, len(records.committed)
    print(f"replayed in {took:.0f} s, {chosen / took:,.0f}/s")
    for name, counts, wanted in (("replayed", seen.replayed, chosen), ("live", seen.live, written)):
        twice = sum(count > 1 for count in counts.values())
        print(f"{name}: {wanted:,} wanted, {wanted - len(counts):,} missing, {twice:,} more than once")
    print(f"out of order of their key: {seen.disorder:,}")
    tell_ages(records, begin, end)


def tell_ages(records: Live, begin: float, end: float) -> None:
    """Prints how long live records took that were committed before a time, and until another one."""
    committed, arrived = records.committed, records.seen.arrived
    for name, after, before in (("before", committed[0] + 5, begin), ("during", begin, end)):
        ages = [
            1000 * (arrived[number] - moment)
            for number, moment in enumerate(committed)
            if after <= moment < before and number in arrived
        ]
        if ages:
            quantiles = ", ".join(f"{words} {quantile(ages, share):.1f} ms" for words, share in QUANTILES)
            print(f"live records {name}: {quantiles}")


if __name__ == "__main__":
    main()
