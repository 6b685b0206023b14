"""Counts what is in the log of records that are published to topics just made.

A broker may refuse a producer's first request in a partition that it does not lead yet, and take the next.
The client then reports the refused records without an error and without an offset; a sender that trusts such
reports loses them. No database and no lane: a sender publishes to one new topic after another, with each size
of the client's batches, and sends again what it reports as failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from threading import Event, Thread
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, TopicPartition
from environment import BROKER_JVM
from outbox_api import DriverError, MarkedRecord, TransactionalSender
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_servers.services import KafkaBroker, KafkaCluster

PATIENCE = 120.0
"""Seconds to publish one topic's records, or to read all."""
MODES = ("at-least-once", "exactly-once")

Publish = Callable[[KafkaPublisher, Iterable[Sequence[MarkedRecord]]], int]
"""Publishes the records of one topic after the other; returns how many reports had no offset."""


def at_least_once(kafka: KafkaPublisher, batches: Iterable[Sequence[MarkedRecord]]) -> int:
    """Sends until all are delivered, as a lane does."""
    without_offset, sender = 0, kafka.open("bench.0")
    for batch in batches:
        left = {record.id: record for record in batch}
        sender.send(batch)
        until = time.monotonic() + PATIENCE
        while left:
            try:
                reports = sender.poll(0.1)
                for record in reports.delivered:
                    del left[record.id]
                without_offset += sum("without an offset" in each.reason for each in reports.failed)
                sender.send([each.record for each in reports.failed])
            except DriverError as error:
                print(f"a new sender: {error}", file=sys.stderr)
                sender.close(0)
                sender = kafka.open("bench.0")
                sender.send(list(left.values()))
            if time.monotonic() > until:
                sys.exit(f"not published within {PATIENCE:g} s: {len(left)} records")
    sender.close(10)
    return without_offset


def exactly_once(kafka: KafkaPublisher, batches: Iterable[Sequence[MarkedRecord]]) -> int:
    """Publishes until all are committed, and looks for them in the log where the outcome is unknown."""
    without_offset = 0
    sender: TransactionalSender | None = kafka.open_transactional("bench.0")
    for number, batch in enumerate(batches):
        left, checkpoint = list(batch), ""
        until = time.monotonic() + PATIENCE
        while left:
            if time.monotonic() > until:
                sys.exit(f"not published within {PATIENCE:g} s: {len(left)} records")
            try:
                if sender is None:
                    sender = kafka.open_transactional("bench.0")
                    attempt = sender.attempt()
                    if attempt is not None and attempt.checkpoint == checkpoint:
                        published = set(sender.find(left, attempt.trace).published)
                        left = [record for record in left if record.id not in published]
                checkpoint = f"{number}-{time.monotonic()}"
                failures = sender.publish(left, checkpoint) if left else []
                without_offset += sum("without an offset" in each.reason for each in failures)
                left = left if failures else []
            except DriverError as error:
                without_offset += "without an offset" in str(error)
                print(f"a new sender: {error}", file=sys.stderr)
                if sender is not None:
                    sender.close()
                sender = None
    if sender is not None:
        sender.close()
    return without_offset


def batches(
    topics: Sequence[str], records: int, size: int, seconds: float
) -> Iterator[Sequence[MarkedRecord]]:
    """Makes the records of each topic, whose keys are their ids, with a pause before each topic."""
    for place, topic in enumerate(topics):
        time.sleep(seconds)
        first = place * records
        yield [
            MarkedRecord(number, topic, str(number), "x" * size) for number in range(first, first + records)
        ]


def count(bootstrap: str, topics: Sequence[str], partitions: int) -> Counter[int]:
    """Returns how often each record is in the log, for readers of committed messages."""
    settings = {"group.id": "bench", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    places = {(topic, partition) for topic in topics for partition in range(partitions)}
    consumer.assign([TopicPartition(*place, 0) for place in places])
    found, until = Counter[int](), time.monotonic() + PATIENCE
    while places:
        if time.monotonic() > until:
            sys.exit(f"not read within {PATIENCE:g} s: {len(places)} partitions")
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                found[int(message.key() or b"")] += 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's spelling
                places.discard((message.topic() or "", message.partition() or 0))
    consumer.close()
    return found


@contextmanager
def restarted(brokers: Sequence[KafkaBroker], seconds: float) -> Iterator[None]:
    """Kills one broker after the other every so many seconds and starts it again; never if that is 0."""
    over = Event()

    def restart() -> None:
        for broker in cycle(brokers):
            if over.wait(seconds):
                return
            broker.kill()
            broker.start()

    thread = Thread(target=restart)
    if seconds:
        thread.start()
    yield
    over.set()
    if seconds:
        thread.join()


def measure(brokers: KafkaBroker | KafkaCluster, mode: str, batch: str, arguments: argparse.Namespace) -> int:
    """Prints what became of the records; returns how many are lost."""
    own = {} if batch == "default" else {"batch.num.messages": batch, "linger.ms": 0}
    kafka = KafkaPublisher(KafkaOptions({"bootstrap.servers": brokers.bootstrap, **own}))
    topics = [f"bench-{uuid4().hex[:12]}" for _ in range(arguments.topics)]
    publish: Publish = exactly_once if mode == "exactly-once" else at_least_once
    began = time.monotonic()
    members = brokers.brokers if isinstance(brokers, KafkaCluster) else [brokers]
    with restarted(members, arguments.restart):
        without_offset = publish(kafka, batches(topics, arguments.records, arguments.size, arguments.pause))
    took = time.monotonic() - began
    found = count(brokers.bootstrap, topics, arguments.partitions)
    total: int = arguments.topics * arguments.records
    lost, twice = total - len(found), found.total() - len(found)
    print(
        f"{mode:<13}  {batch:>7}  {len(topics):>4}  {total:>7,}  {without_offset:>5}  {lost:>5}  {twice:>5}"
        f"  {took:>6.0f} s",
        flush=True,
    )
    return lost


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Exit code: 1 if a record was lost, 0 if none was.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="ways of delivery")
    parser.add_argument("--batches", nargs="+", default=["1", "10", "default"], help="batch.num.messages")
    parser.add_argument("--topics", type=int, default=150, help="new topics")
    parser.add_argument("--partitions", type=int, default=8, help="partitions of each")
    parser.add_argument("--records", type=int, default=400, help="records for each topic, each with a key")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--pause", type=float, default=0, help="seconds before each topic")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--restart", type=float, default=0, help="seconds until a broker is killed; 0: never")
    parser.add_argument("--rounds", type=int, default=1, help="repetitions")
    arguments = parser.parse_args()
    kind = KafkaBroker if arguments.brokers == 1 else KafkaCluster
    properties = {"num.partitions": str(arguments.partitions)}
    lost = 0
    with kind(jvm_options=BROKER_JVM, properties=properties) as brokers:
        print("mode             batch  topics  records  no offset  lost  twice    time")
        for _ in range(arguments.rounds):
            for batch in arguments.batches:
                for mode in arguments.modes:
                    lost += measure(brokers, mode, batch, arguments)
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
