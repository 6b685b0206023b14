"""Measures for how long a consumer hears nothing when a harvester or a broker dies, or brokers restart.

Two harvesters compete for an outbox into which an application commits 100 records a second. A consumer reads
the topic; it reconnects at once, so that its own pauses do not count. All processes use the same clock. For
each kind of outage the table has the longest silence of the consumer (no record at all), the longest time
from a commit to the arrival of its record, and, if the only broker was away, the silence from when it served
again: median and worst. Brokers run with Kafka's own defaults, where they matter here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Event, Thread

from confluent_kafka import Consumer, TopicPartition
from environment import BROKER_JVM, Environment, environment
from harvesters import Harvesters
from outbox_servers.services import KafkaBroker, KafkaCluster

PARTITIONS = 8
KEYS = 100
PACE_SECONDS = 0.01
INSERT = """INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys,
            kafka_header_values) VALUES (now(), %s, %s, %s, '{}', '{}')"""
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "3000",
    "group.min.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
}
"""Kafka's defaults, which the brokers of tests do without."""
OF_ONE = ("leader", "replaced", "broker", "broker-10s")
OF_THREE = ("one-of-three", "one-by-one")


@dataclass
class Traffic:
    """What an application commits, and what a consumer hears: numbers of records, with times."""

    committed: list[float] = field(default_factory=list)
    heard: list[tuple[int, float]] = field(default_factory=list)
    ending: Event = field(default_factory=Event)

    def write(self, on: Environment, topic: str) -> None:
        """Commits a record at a time, until the end."""
        with on.connect() as connection:
            due = time.monotonic()
            while not self.ending.is_set():
                number = len(self.committed)
                connection.execute(INSERT, [topic, f"key-{number % KEYS}", str(number)])
                self.committed.append(time.monotonic())
                due = max(due + PACE_SECONDS, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))

    def read(self, on: Environment, topic: str) -> None:
        """Reads until the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": on.bootstrap,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "fetch.error.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 250,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        while not self.ending.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.heard.append((int(message.value()), time.monotonic()))
        consumer.close()

    def wait(self, seconds: float = 0.0, timeout: float = 180.0) -> None:
        """Waits until all is heard that is committed by now, and then for some seconds more."""
        until, deadline = len(self.committed), time.monotonic() + timeout
        while len({number for number, _ in self.heard if number < until}) < until:
            if time.monotonic() > deadline:
                sys.exit("records do not arrive")
            time.sleep(0.1)
        time.sleep(seconds)

    def silence(self, since: float) -> float:
        """Returns the longest time without a record."""
        times = [since, *(at for _, at in self.heard if at >= since)]
        return max(later - earlier for earlier, later in pairwise(times))

    def delay(self, since: float) -> float:
        """Returns the longest time from a commit to the first arrival of its record."""
        first: dict[int, float] = {}
        for number, at in self.heard:
            first.setdefault(number, at)
        return max(at - self.committed[number] for number, at in first.items() if at >= since)

    def faults(self) -> tuple[int, int]:
        """Returns how many records were lost, and how many arrived first behind a later one of their key."""
        until = self.heard[-1][0] - KEYS  # what was committed just now may be on its way
        seen: dict[int, int] = {}
        overtaken, known = 0, set()
        for number, _ in self.heard:
            if number not in known:
                overtaken += number < seen.get(number % KEYS, -1)
                seen[number % KEYS] = max(number, seen.get(number % KEYS, -1))
                known.add(number)
        return len(set(range(until)) - known), overtaken


@dataclass
class Scene:
    """What an outage happens to."""

    traffic: Traffic
    harvesters: Harvesters
    broker: KafkaBroker | KafkaCluster

    def leader(self, joins: Sequence[float] = ()) -> float | None:
        """Kills the leader; others join so many seconds later."""
        killed = self.harvesters.kill_leader()
        for at in joins:
            time.sleep(max(0.0, killed + at - time.monotonic()))
            self.harvesters.start()
        return None

    def alone(self, pause: float = 0.0) -> float:
        """Kills the only broker, and starts it again; returns when it serves."""
        assert isinstance(self.broker, KafkaBroker)
        self.broker.kill()
        time.sleep(pause)
        self.broker.start()
        return time.monotonic()

    def one(self) -> float | None:
        """Kills one broker of three, each in its turn."""
        assert isinstance(self.broker, KafkaCluster)
        self.broker.brokers.append(self.broker.brokers.pop(0))
        self.broker.brokers[0].kill()
        return None

    def one_by_one(self) -> float | None:
        """Restarts three brokers in order, each when the one before is in sync."""
        assert isinstance(self.broker, KafkaCluster)
        for broker in self.broker.brokers:
            broker.restart()
            self.broker.wait_until_in_sync()
        return None

    def heal(self) -> None:
        """Starts brokers that are dead, and as many harvesters as are missing."""
        if isinstance(self.broker, KafkaCluster):
            for broker in self.broker.brokers:
                broker.start()
            self.broker.wait_until_in_sync()
        self.harvesters.restore()


@contextmanager
def scene(arguments: argparse.Namespace, delivery: str, elector: str, *, three: bool) -> Iterator[Scene]:
    """Starts everything; records flow."""
    options = {"jvm_options": BROKER_JVM, "properties": PROPERTIES}
    broker = KafkaCluster(**options) if three else KafkaBroker(**options)
    with environment(broker) as on:
        topic, traffic = on.topic(PARTITIONS), Traffic()
        settings = {
            "delivery": delivery,
            "elector": {"driver": elector, "sessionTimeout": f"{arguments.session:g}s"},
            "engine": arguments.engine,
            "leaderGroupID": "bench",
        }
        threads = [Thread(target=each, args=(on, topic)) for each in (traffic.write, traffic.read)]
        harvesters = Harvesters(partial(on.settings, **settings))
        try:
            harvesters.restore()
            for thread in threads:
                thread.start()
            yield Scene(traffic, harvesters, broker)
        finally:
            traffic.ending.set()
            for thread in threads:
                thread.join()
            harvesters.close()


def measure(arguments: argparse.Namespace, delivery: str, elector: str, outage: str) -> str:
    """Returns a line of the table."""
    silences, delays, returns = [], [], []
    with scene(arguments, delivery, elector, three=outage in OF_THREE) as on:
        cause = {
            "leader": on.leader,
            "replaced": lambda: on.leader(arguments.join),
            "broker": on.alone,
            "broker-10s": lambda: on.alone(10),
            "one-of-three": on.one,
            "one-by-one": on.one_by_one,
        }[outage]
        for _ in range(arguments.rounds):
            on.traffic.wait(3)
            began = time.monotonic()
            served = cause()
            on.traffic.wait(arguments.session + 2)  # an echo of the outage counts
            silences.append(on.traffic.silence(began))
            delays.append(on.traffic.delay(began))
            returns += [] if served is None else [on.traffic.silence(served)]
            print(outage, delivery, elector, f"{silences[-1]:.2f}", returns[-1:], file=sys.stderr)
            on.heal()
        on.traffic.wait()
        lost, overtaken = on.traffic.faults()
    cells = [outage, elector, delivery, *(spread(each) for each in (silences, delays, returns))]
    return f"| {' | '.join(cells)} | {lost} | {overtaken} |"


def spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} / {max(seconds):.1f}" if seconds else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    modes, outages = ("at-least-once", "exactly-once"), (*OF_ONE, *OF_THREE)
    parser.add_argument("--outage", nargs="+", default=outages, choices=outages)
    parser.add_argument("--delivery", nargs="+", default=modes, choices=modes)
    parser.add_argument("--elector", nargs="+", default=["neli-kafka"], choices=["neli-kafka", "lease"])
    parser.add_argument("--engine", default="inline", choices=["spark", "inline"])
    parser.add_argument("--session", type=float, default=10.0, help="the electors' session, in seconds")
    parser.add_argument(
        "--join", type=float, nargs="+", default=[3.0], help="when others join, in 'replaced'"
    )
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print("| outage | elector | delivery | silence | longest delay | once it serves | lost | overtaken |")
    print("|---|---|---|---|---|---|---|---|")
    for outage in arguments.outage:
        for elector in arguments.elector:
            for delivery in arguments.delivery:
                print(measure(arguments, delivery, elector, outage), flush=True)


if __name__ == "__main__":
    main()
