"""Measures the cost of a transaction, and the age of records when a reader of committed messages gets them.

No database and no lane: one transactional sender publishes batches to a broker of its own, in turn with a
plain producer, without transactions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from environment import BROKER_JVM
from outbox_api import Batch, MarkedRecord
from outbox_core.delivery.checkpoint import encode
from outbox_kafka import KafkaOptions, KafkaPublisher
from outbox_kafka.checkpoint import CheckpointStore
from outbox_kafka.produce import produce
from outbox_kafka.settings import producer_settings, transactional_settings
from outbox_kafka.topics import ensure_checkpoint_topic, unwritable
from outbox_kafka.trace import Tracer
from outbox_kafka.transactional_sender import KafkaTransactionalSender
from outbox_servers.services import KafkaBroker

STEPS = ("send", "_wait", "commit")
CHECKPOINT_TOPIC = "outbox.checkpoints"


class Way:
    """One way to publish, with its own topic and its times so far."""

    def __init__(self, name: str, kafka: dict[str, str], partitions: int, sender: type | None) -> None:
        self.name = name
        self.topic = f"bench-{uuid4().hex[:8]}"
        self.steps: dict[str, list[float]] = defaultdict(list)
        publisher = KafkaPublisher(KafkaOptions(kafka))
        publisher.prepare([self.topic], partitions)
        topic = ensure_checkpoint_topic(kafka, CHECKPOINT_TOPIC)
        if sender is None:
            self._producer = Producer(producer_settings(kafka))
            self._publish = self._flush
            return
        lane = f"outbox.{self.topic}"
        store = CheckpointStore(kafka, topic, lane, 15)
        made = sender(transactional_settings(kafka, lane), store, Tracer(kafka), partial(unwritable, kafka))
        producer = made._producer  # noqa: SLF001 - measures its internal steps
        for step in STEPS:
            setattr(producer, step, self._timed(step, getattr(producer, step)))
        self._publish = lambda records: made.publish(records, encode([Batch(((0, len(records)),))]))

    def publish(self, records: Sequence[MarkedRecord]) -> None:
        """Publishes, and records how long it took."""
        failures = self._timed("all", self._publish)(records)
        assert not failures, failures

    def _flush(self, records: Sequence[MarkedRecord]) -> None:
        produce(self._producer, records, lambda *_: None, lambda *_: None)
        self._producer.flush()

    def _timed(self, step: str, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object) -> object:
            began = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.steps[step].append(1000 * (time.perf_counter() - began))

        return timed


def records(topic: str, values: Sequence[object], size: int) -> list[MarkedRecord]:
    return [
        MarkedRecord(n, topic, f"key-{n % 1000}", f"{value}".rjust(size)) for n, value in enumerate(values)
    ]


def quantiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, n=100, method="inclusive")


def measure(ways: Sequence[Way], count: int, pause: float, arguments: argparse.Namespace) -> None:
    """Publishes batches of ``count`` records, ``pause`` ms apart, each way in turn; prints the times."""
    for way in ways:
        way.publish(records(way.topic, range(count), arguments.size))
        way.steps.clear()
    rounds = max(arguments.rounds // 10, min(arguments.rounds, 100_000 // count))
    for _ in range(10):
        for way in ways:
            batch = records(way.topic, range(count), arguments.size)
            for _ in range(rounds // 10):
                way.publish(batch)
                time.sleep(pause / 1000)
    least = quantiles(ways[0].steps["all"])[49]
    for way in ways:
        cuts = quantiles(way.steps["all"])
        steps = [
            f"{step.lstrip('_')} {statistics.median(way.steps[step]):.1f}"
            for step in STEPS
            if step in way.steps
        ]
        print(
            f"{count:>6,} records, {pause:>2g} ms apart, {way.name:<20} "
            f"p50 {cuts[49]:6.1f} ms, p99 {cuts[98]:6.1f} ms, ratio {cuts[49] / least:.2f}, "
            f"{1000 * count / statistics.mean(way.steps['all']):>9,.0f} records/s  {', '.join(steps)}",
            flush=True,
        )


def read(bootstrap: str, topic: str, partitions: int, out: Connection) -> None:
    """Reads committed messages until nothing arrives for two seconds; sends each record's age in ms."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    ends = [
        TopicPartition(topic, n, consumer.get_watermark_offsets(TopicPartition(topic, n))[1])
        for n in range(partitions)
    ]
    consumer.assign(ends)
    consumer.poll(1)
    out.send("ready")
    ages: list[float] = []
    last = time.monotonic() + 10
    while time.monotonic() < last + 2:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            last = time.monotonic()
            ages.append(1000 * (last - float(message.value() or 0)))
    consumer.close()
    out.send(ages)


def flow(way: Way, rate: int, bootstrap: str, arguments: argparse.Namespace) -> None:
    """Publishes records that are due at equal intervals, always all that wait; prints their ages."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    reader = spawn.Process(target=read, args=(bootstrap, way.topic, arguments.partitions, theirs))
    reader.start()
    ours.recv()
    way.steps.clear()
    began, sent, total = time.monotonic(), 0, int(rate * arguments.seconds)
    while sent < total:
        due = min(total, int((time.monotonic() - began) * rate))
        if due > sent:
            stamps = [began + n / rate for n in range(sent, due)]
            way.publish(records(way.topic, stamps, arguments.size))
            sent = due
        else:
            time.sleep(0.0005)
    cuts, took = quantiles(ours.recv()), quantiles(way.steps["all"])
    reader.join()
    print(
        f"{rate:>6,} records/s, {way.name:<20} "
        f"age p50 {cuts[49]:.1f} ms, p90 {cuts[89]:.1f} ms, p99 {cuts[98]:.1f} ms; "
        f"{total / len(way.steps['all']):.0f} records per publish, "
        f"which took p50 {took[49]:.1f} ms, p99 {took[98]:.1f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100, 1000, 5000, 10_000])
    parser.add_argument(
        "--pauses", type=float, nargs="+", default=[0, 5, 20], help="ms between small batches"
    )
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[1000, 10_000], help="records per second, evenly"
    )
    parser.add_argument(
        "--rounds", type=int, default=200, help="transactions of each count, fewer of large ones"
    )
    parser.add_argument("--seconds", type=float, default=10, help="of each rate")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--size", type=int, default=200, help="bytes of a value")
    parser.add_argument(
        "--quick-broker", action="store_true", help="a broker as the tests have it, not compiled"
    )
    arguments = parser.parse_args()
    with KafkaBroker() if arguments.quick_broker else KafkaBroker(jvm_options=BROKER_JVM) as broker:
        kafka = {"bootstrap.servers": broker.bootstrap}
        senders: dict[str, type | None] = {
            "as it is": KafkaTransactionalSender,
            "without transactions": None,
        }
        ways = [Way(name, kafka, arguments.partitions, sender) for name, sender in senders.items()]
        for way in ways:
            for _ in range(300):  # warms up the broker's caches and compilers
                way.publish(records(way.topic, range(100), arguments.size))
        for count in arguments.counts:
            for pause in arguments.pauses if count <= 100 else [0]:  # noqa: PLR2004 - larger ones follow without a pause
                measure(ways, count, pause, arguments)
        for rate in arguments.rates:
            for way in ways:
                flow(way, rate, broker.bootstrap, arguments)


if __name__ == "__main__":
    main()
