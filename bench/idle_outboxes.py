"""Hundreds of outboxes of one database in one process: what they cost while they rest, and whom they hold up.

Starts PostgreSQL and Kafka, creates the outboxes, and has one process harvest all of them (engine inline,
elector lease). Prints threads, connections, CPU and memory once all rest; then how long the first record of
an outbox that rests is on its way; then the rate of some busy ones, beside a process that has no others; and
the latency of others while one outbox is locked, one is poisoned and one is dropped.

    python -m bench.idle_outboxes --outboxes 200 --busy 20
    python -m bench.idle_outboxes --outboxes 1000 --only-idle
    python -m bench.idle_outboxes --outboxes 40 --only-idle --rest-after 0   # none rests
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from uuid import uuid4

import psutil
import psycopg
from confluent_kafka import Message
from outbox_api import Record, Stasher
from outbox_core.config import configure
from outbox_kafka.publisher import KafkaOptions, KafkaPublisher
from outbox_servers.services import KafkaBroker, PostgresServer

from bench.listening import Listening
from tests.harvesters import Harvester, until

PARTITIONS = 4
FAULTY = 3
OBSERVED_SECONDS = 20.0
HEARD = "SELECT count(*) FROM outbox_fence WHERE heartbeat_at > now() - interval '15 s'"
RESTING = f"{HEARD} AND metrics::jsonb ? 'resting'"


class Arrivals(Listening):
    """A consumer of the topic: when each record came, by its value, and how many of each outbox."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.at: dict[str, float] = {}
        self.count: Counter[str] = Counter()
        super().__init__(bootstrap, [topic], PARTITIONS, {"fetch.wait.max.ms": 10})

    def note(self, message: Message) -> None:
        """Notes when it came."""
        value = (message.value() or b"").decode()
        self.at[value] = time.monotonic()
        self.count[value.partition("/")[0]] += 1


@dataclass
class Site:
    """One database with the outboxes, and the broker."""

    folder: Path
    dsn: str
    kafka: KafkaBroker
    topic: str
    arrivals: Arrivals
    rest_after: str
    delivery: str

    def start(self, outboxes: int) -> Harvester:
        """Starts a process that harvests the first so many outboxes."""
        name = f"of-{outboxes}-{uuid4().hex[:4]}"
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(self.document(outboxes) | {"logging": {"level": "info"}}))
        return Harvester(name, file)

    def document(self, outboxes: int) -> dict[str, object]:
        """Returns the configuration."""
        harvest = {
            "dataSource": self.dsn,
            "baseKafkaConfig": {"bootstrap.servers": self.kafka.bootstrap},
            "elector": "lease",
            "engine": "inline",
            "delivery": self.delivery,
            "limits": {"restAfter": self.rest_after},
        }
        return {"harvest": harvest, "outboxes": {box(i): {"outboxTable": box(i)} for i in range(outboxes)}}

    def stash(self, connection: psycopg.Connection, numbers: Sequence[int], start: int, records: int) -> None:
        """Commits records of each of these outboxes at once."""
        for number in numbers:
            stasher = Stasher(box(number), "postgres")
            for index in range(start, start + records):
                value = f"{box(number)}/{index}"
                stasher.stash(connection, Record(self.topic, f"{box(number)}-{index % 20}", value))
        connection.commit()

    def latency(self, connection: psycopg.Connection, number: int, index: int) -> float:
        """Commits a record; returns after how many seconds it was consumed."""
        self.stash(connection, [number], index, 1)
        committed, value = time.monotonic(), f"{box(number)}/{index}"
        until(lambda: value in self.arrivals.at, f"{value} arrives", 30, pause=0.002)
        return self.arrivals.at[value] - committed


def box(number: int) -> str:
    """Returns the name of an outbox."""
    return f"box_{number}"


def create(site: Site, outboxes: int) -> None:
    """Creates the tables."""
    began = time.monotonic()
    for settings in configure(site.document(outboxes)).outboxes:
        settings.dialect.create().create()
    print(f"{outboxes} outboxes created in {time.monotonic() - began:.0f} s", flush=True)


def wait_for(site: Site, process: Harvester, outboxes: int, query: str) -> None:
    """Waits until so many outboxes are heard of, or rest, and prints when."""
    with psycopg.connect(site.dsn, autocommit=True) as connection:

        def count() -> int:
            assert process.running, process.tail()
            return int(connection.execute(query.encode()).fetchall()[0][0])

        until(lambda: count() >= outboxes, f"{outboxes}", 1800, pause=0.5)
    print(f"{outboxes} begun, {time.time() - process.started:.0f} s after the start", flush=True)


def costs(site: Site, process: Harvester) -> None:
    """Prints what the process costs, with nothing to do."""
    found = psutil.Process(process.pid)
    used, since = found.cpu_times(), time.monotonic()
    time.sleep(OBSERVED_SECONDS)
    seconds, after = time.monotonic() - since, found.cpu_times()
    core = (after.user + after.system - used.user - used.system) / seconds
    ports = [each.raddr.port for each in found.net_connections() if each.raddr]
    broker = int(site.kafka.bootstrap.rpartition(":")[2])
    memory = found.memory_full_info().pss / 2**20
    print(
        f"idle: {found.num_threads()} threads, {sum(port != broker for port in ports)} connections to the "
        f"database and {ports.count(broker)} to Kafka, {core:.3f} of a core, "
        f"{memory:.0f} MiB",
        flush=True,
    )


def first_records(site: Site, numbers: Sequence[int], index: int, what: str) -> None:
    """Prints how long a record of each outbox is on its way, one after the other."""
    with psycopg.connect(site.dsn) as connection:
        seconds = [site.latency(connection, number, index) for number in numbers]
    print(f"{what}: median {median(seconds):.3f} s, longest {max(seconds):.3f} s", flush=True)


def at_once(site: Site, numbers: Sequence[int], index: int) -> None:
    """Prints how long a record of each outbox is on its way, all of which are woken by one commit."""
    with psycopg.connect(site.dsn) as connection:
        site.stash(connection, numbers, index, 1)
    committed, values = time.monotonic(), [f"{box(number)}/{index}" for number in numbers]
    until(lambda: all(value in site.arrivals.at for value in values), "all arrive", 60, pause=0.002)
    seconds = [site.arrivals.at[value] - committed for value in values]
    print(f"{len(values)} at once: median {median(seconds):.3f} s, longest {max(seconds):.3f} s", flush=True)


def rate(site: Site, busy: int, start: int, records: int) -> float:
    """Commits a backlog into each of the first outboxes; returns records/s until all have arrived."""
    numbers, before = range(busy), dict(site.arrivals.count)
    with psycopg.connect(site.dsn) as connection:
        site.stash(connection, numbers, start, records)
    since = time.monotonic()
    until(
        lambda: all(site.arrivals.count[box(i)] - before.get(box(i), 0) >= records for i in numbers),
        "all arrive",
        600,
    )
    return busy * records / (time.monotonic() - since)


def compare(site: Site, outboxes: int, busy: int, records: int, rounds: int) -> None:
    """Prints the rate of some outboxes among many that rest, beside that of a process without others."""
    rates: dict[int, list[float]] = {outboxes: [], busy: []}
    start = 1_000_000
    for number in range(rounds):
        for known in rates if number % 2 else [*rates][::-1]:
            process = site.start(known)
            wait_for(site, process, known, RESTING)
            rate(site, busy, start, 20)  # all are awake then
            rates[known].append(rate(site, busy, start + 20, records))
            start += records + 20
            process.leave()
    among, alone = median(rates[outboxes]), median(rates[busy])
    print(
        f"{busy} busy among {outboxes}: {among:,.0f} records/s, alone {alone:,.0f}: {among / alone:.2f}; "
        f"runs {[round(each) for each in rates[outboxes]]}, {[round(each) for each in rates[busy]]}",
        flush=True,
    )


@contextmanager
def faults(site: Site, hung: int, poisoned: int, dropped: int) -> Iterator[None]:
    """Locks one outbox for as long as it lasts, poisons another, and drops a third, with records in all."""
    with psycopg.connect(site.dsn) as locking, psycopg.connect(site.dsn) as writing:
        Stasher(box(poisoned), "postgres").stash(writing, Record(site.topic, "poison", "value"))
        writing.execute(f"UPDATE {box(poisoned)} SET kafka_topic = 'no topic'")
        writing.commit()
        site.stash(writing, [hung, dropped], 9_000_000, 1)
        locking.execute(f"LOCK TABLE {box(hung)} IN ACCESS EXCLUSIVE MODE")
        writing.execute(f"DROP TABLE {box(dropped)}")
        writing.commit()
        yield


def disturb(site: Site, process: Harvester, outboxes: int) -> None:
    """Prints the latency of outboxes, awake and resting, before and while others fail.

    The outboxes that were woken for a measurement rest again before the next one.
    """
    count = min(20, outboxes // 10)

    def measure(part: int, when: str) -> None:
        wait_for(site, process, outboxes - FAULTY, RESTING)
        awake, index = range(5 * part, 5 * part + 5), 2_000_000 + 10 * part
        first_records(site, awake, index, f"{when}: {len(awake)} outboxes that rest")
        first_records(site, awake, index + 1, f"{when}: the same, awake")
        others = range(15 + count * part, 15 + count * (part + 1))
        first_records(site, others, index, f"{when}: {count} more that rest")

    measure(0, "before")
    with faults(site, *range(outboxes - FAULTY, outboxes)):
        measure(1, "one locked, one poisoned, one dropped")
        measure(2, "later")


def play(site: Site, arguments: argparse.Namespace) -> None:
    """Measures everything."""
    outboxes, busy = arguments.outboxes, arguments.busy
    create(site, outboxes)
    process = site.start(outboxes)
    wait_for(site, process, outboxes, HEARD if arguments.rest_after == "0" else RESTING)
    time.sleep(30)  # idle connections for purges are closed, and the last have come to rest
    costs(site, process)
    first_records(site, range(outboxes - 20, outboxes), 0, "20 first records, one after the other")
    at_once(site, range(max(0, outboxes - 40), outboxes - 20), 0)
    if not arguments.only_idle:
        disturb(site, process, outboxes)
        costs(site, process)
    warnings = Counter(line.text[25:200] for line in process.lines() if " WARNING" in line.text)
    for text, count in warnings.most_common(8):
        print(f"  {count} x {text}", file=sys.stderr)
    print(f"stopped in {process.leave():.1f} s", flush=True)
    if not arguments.only_idle:
        compare(site, outboxes - FAULTY, busy, arguments.records, arguments.rounds)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--outboxes", type=int, default=200, help="how many there are")
    parser.add_argument("--busy", type=int, default=20, help="how many of them are busy at last")
    parser.add_argument("--records", type=int, default=2000, help="the backlog of each busy outbox")
    parser.add_argument("--rounds", type=int, default=3, help="how often both rates are measured")
    parser.add_argument("--rest-after", default="30s", help="limits.restAfter; 0 for never")
    parser.add_argument("--delivery", default="at-least-once", help="harvest.delivery")
    parser.add_argument("--only-idle", action="store_true", help="measure nothing but outboxes that rest")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(settings={"max_connections": 300}))
        kafka = stack.enter_context(KafkaBroker())
        topic = f"bench-{uuid4().hex[:8]}"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-bench-")))
        dsn = server.create_database("tenants")
        KafkaPublisher(KafkaOptions({"bootstrap.servers": kafka.bootstrap})).prepare([topic], PARTITIONS)
        arrivals = stack.enter_context(closing(Arrivals(kafka.bootstrap, topic)))
        site = Site(folder, dsn, kafka, topic, arrivals, arguments.rest_after, arguments.delivery)
        play(site, arguments)


if __name__ == "__main__":
    main()
