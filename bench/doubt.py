"""Measures how long a lane takes to find out what became of a transaction of unknown outcome.

No database: a transactional sender publishes a batch, other producers write to the same topics before and
after it, and the lane's next sender is opened, reads the last attempt, and looks for the batch's records.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from uuid import uuid4

from confluent_kafka import Producer
from environment import BROKER_JVM
from outbox_api import MarkedRecord
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_servers.services import KafkaBroker

PORTION = 10_000


def fill(bootstrap: str, topics: Sequence[str], records: int, size: int) -> None:
    """Writes records of somebody else, of ``size`` bytes, to all topics in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})
    value = "x" * size
    for start in range(0, records, PORTION):
        for number in range(start, min(start + PORTION, records)):
            producer.produce(topics[number % len(topics)], value, f"other-{number % 1000}")
            if not number % 1000:
                producer.poll(0)
        producer.flush()


def measure(broker: KafkaBroker, arguments: argparse.Namespace, topics: int, partitions: int) -> None:
    """Prints the time for each number of rows in doubt, committed and aborted."""
    kafka = KafkaPublisher(KafkaOptions({"bootstrap.servers": broker.bootstrap}))
    names = [f"bench-{uuid4().hex[:8]}" for _ in range(topics)]
    kafka.prepare(names, partitions)
    fill(broker.bootstrap, names, arguments.before, arguments.size)
    for rows in arguments.rows:
        batch = [
            MarkedRecord(
                number, names[number % topics], f"key-{number % 1000}", f"{number}".rjust(arguments.size)
            )
            for number in range(rows)
        ]
        for aborted in (False, True):
            times = []
            for _ in range(arguments.rounds):
                lane = f"{names[0]}.{uuid4().hex[:4]}"
                with closing(kafka.open_transactional(lane)) as sender:
                    if aborted:
                        sender._producer.commit = lambda _deadline, sender=sender: sender._producer.abort()  # noqa: SLF001
                    assert not sender.publish(batch, "attempt")
                fill(broker.bootstrap, names, arguments.after, arguments.size)
                with closing(kafka.open_transactional(lane)) as sender:
                    began = time.perf_counter()
                    attempt = sender.attempt()
                    assert attempt is not None
                    if batch:
                        found = sender.find(batch, attempt.trace)
                        assert len(found.published) == (0 if aborted else rows)
                    times.append(time.perf_counter() - began)
            fate = "aborted" if aborted else "committed"
            print(
                f"{topics:>3} topics, {partitions:>3} partitions each, {arguments.before:,} records before, "
                f"{arguments.after:,} after, {rows:>6,} rows in doubt, {fate:<9}: "
                f"median {statistics.median(times):.2f} s, longest {max(times):.2f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=int, default=1_000_000, help="records of others before the attempt")
    parser.add_argument("--after", type=int, default=10_000, help="records of others behind it")
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 1000, 10_000], help="rows in doubt")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions")
    arguments = parser.parse_args()
    with KafkaBroker(jvm_options=BROKER_JVM) as broker:
        for topics, partitions in ((1, 1), (1, 64), (10, 12)):
            measure(broker, arguments, topics, partitions)


if __name__ == "__main__":
    main()
