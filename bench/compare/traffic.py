"""Steady traffic: a process that writes at a fixed rate, and one that consumes and notes when what arrives.

Both read the machine's monotonic clock. A record's latency is the time from the return of its commit until
the consumer's poll returns it.
"""

from __future__ import annotations

import heapq
import multiprocessing
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Self

import psycopg
from confluent_kafka import Consumer, TopicPartition

from bench.compare.servers import PARTITIONS, Place

COMMITS = 250
"""Commits per second, at most; a commit has more than one row at a higher rate."""
ODD = 50
"""One in so many transactions is rolled back, and one commits late."""
LATE = 0.2
"""Seconds that a transaction which commits late stays open."""
ROLLED_BACK = -1
"""The number in rows that nobody may ever see."""

INSERT = """
    INSERT INTO outbox
        (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
    SELECT now(), %s, %s || n %% 1000, lpad(n::text, 100, ' '), '{h}', '{v}'
    FROM generate_series(%s::int, %s::int) AS n RETURNING id
"""
DELETE = "DELETE FROM outbox WHERE id = ANY(%s)"

_spawning = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is written.

    Attributes:
        rate: Rows per second.
        deleting: Whether each transaction deletes its rows again, as Debezium's users have it do.
    """

    rate: int
    deleting: bool = False


class Traffic:
    """A writer and a consumer at work.

    Args:
        place: Where they work.
        pace: How much is written, from :meth:`write` on.
    """

    def __init__(self, place: Place, pace: Pace) -> None:
        self._stop_writing, self._stop_reading = _spawning.Event(), _spawning.Event()
        self._arrived: Any = _spawning.Value("q", 0, lock=False)
        self._read, theirs = _spawning.Pipe()
        arguments = (place.servers.bootstrap, place.topic, self._arrived, self._stop_reading, theirs)
        self._reader = _spawning.Process(target=read, args=arguments, daemon=True)
        self._reader.start()
        self._read.recv()
        self._written, theirs = _spawning.Pipe()
        ours = (place.bench_dsn, place.topic, pace, self._stop_writing, theirs)
        self._writer = _spawning.Process(target=write, args=ours, daemon=True)

    def write(self) -> None:
        """Starts the writer; returns when it is connected."""
        self._writer.start()
        self._written.recv()

    @property
    def arrived(self) -> int:
        """How many records have arrived by now."""
        return int(self._arrived.value)

    def finish(self, patience: float) -> Journal:
        """Stops the writer, waits until all has arrived (at most ``patience`` seconds), stops the reader."""
        self._stop_writing.set()
        committed = self._written.recv()
        until = time.monotonic() + patience
        while self.arrived < len(committed) and time.monotonic() < until:
            time.sleep(0.05)
        ended = time.monotonic()
        self._stop_reading.set()
        arrived, repeats, disordered = self._read.recv()
        return Journal(committed, arrived, repeats, disordered, ended)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._writer, self._reader):
            if process.pid is not None:
                process.kill()
                process.join()


@dataclass(frozen=True, slots=True)
class Journal:
    """What was written and what arrived.

    Attributes:
        committed: Number → the time at which its commit returned.
        arrived: Number → the time of its first arrival.
        repeats: Arrivals beyond the first ones.
        disordered: First arrivals behind a higher number of the same key.
        ended: When the reader was stopped.
    """

    committed: dict[int, float]
    arrived: dict[int, float]
    repeats: int
    disordered: int
    ended: float

    def latencies(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Returns the latencies of what was committed in a span, in ms, ascending.

        What never arrived counts as if it had arrived when the reader was stopped.
        """
        span = ((number, at) for number, at in self.committed.items() if since <= at < until)
        return sorted(1000 * (self.arrived.get(number, self.ended) - at) for number, at in span)

    @property
    def missing(self) -> int:
        """How many never arrived."""
        return len(self.committed.keys() - self.arrived.keys())

    @property
    def foreign(self) -> int:
        """How many arrived that were never committed."""
        return len(self.arrived.keys() - self.committed.keys())


@dataclass(slots=True)
class _Writer:
    """Writes transactions at equal intervals; a few of them are rolled back, a few commit late."""

    dsn: str
    topic: str
    pace: Pace
    committed: dict[int, float] = field(default_factory=dict)
    _next: int = 0
    _late: list[tuple[float, int, int, psycopg.Connection]] = field(default_factory=list)
    _spare: list[psycopg.Connection] = field(default_factory=list)

    def run(self, stop: Any) -> None:
        rows = max(1, self.pace.rate // COMMITS)
        with psycopg.connect(self.dsn) as connection:
            due, transactions = time.monotonic(), 0
            while not stop.is_set():
                transactions += 1
                if transactions % ODD == 0:
                    self._insert(connection, "key-", ROLLED_BACK, ROLLED_BACK)
                    connection.rollback()
                if transactions % ODD == ODD // 2:
                    self._hold(rows)
                else:
                    self._insert(connection, "key-", self._next, self._next + rows - 1)
                    self._commit(connection, self._next, rows)
                self._next += rows
                self._commit_late(time.monotonic())
                due += rows / self.pace.rate
                time.sleep(max(0.0, due - time.monotonic()))
        self._commit_late(float("inf"))
        for each in self._spare:
            each.close()

    def _hold(self, rows: int) -> None:
        connection = self._spare.pop() if self._spare else psycopg.connect(self.dsn)
        # Keys of their own: a transaction that commits late has no order with those that it overlaps.
        self._insert(connection, "late-", self._next, self._next + rows - 1)
        heapq.heappush(self._late, (time.monotonic() + LATE, self._next, rows, connection))

    def _commit_late(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            _, first, rows, connection = heapq.heappop(self._late)
            self._commit(connection, first, rows)
            self._spare.append(connection)

    def _insert(self, connection: psycopg.Connection, prefix: str, first: int, last: int) -> None:
        inserted = connection.execute(INSERT, (self.topic, prefix, first, last))
        if self.pace.deleting:
            connection.execute(DELETE, ([identifier for (identifier,) in inserted],))

    def _commit(self, connection: psycopg.Connection, first: int, rows: int) -> None:
        connection.commit()
        now = time.monotonic()
        self.committed |= dict.fromkeys(range(first, first + rows), now)


def write(dsn: str, topic: str, pace: Pace, stop: Any, out: Connection) -> None:
    """Writes until ``stop`` is set; then sends number → the time at which its commit returned."""
    writer = _Writer(dsn, topic, pace)
    out.send("ready")
    writer.run(stop)
    out.send(writer.committed)


def read(bootstrap: str, topic: str, count: Any, stop: Any, out: Connection) -> None:
    """Reads what is written from now on until ``stop`` is set; then sends what it noted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    ends = []
    for partition in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        ends.append(TopicPartition(topic, partition, end))
    consumer.assign(ends)
    out.send("ready")
    arrived: dict[int, float] = {}
    newest: dict[bytes, int] = {}
    repeats = disordered = 0
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        now, key = time.monotonic(), message.key() or b""
        value = (message.value() or b"").strip()
        if not value.isdigit():
            continue  # a row of a backlog
        number = int(value)
        if number in arrived:
            repeats += 1
            continue
        arrived[number] = now
        count.value = len(arrived)
        disordered += newest.get(key, number) > number
        newest[key] = max(newest.get(key, number), number)
    consumer.close()
    out.send((arrived, repeats, disordered))
