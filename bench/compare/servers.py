"""The servers of a run, which all candidates share, and a place in them for each candidate."""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)
from outbox_servers.services import KafkaBroker

from bench.compare.databases import Database

BROKER_JVM = ("-Xmx512m", "-Xms512m")
"""A broker without the quick-start options of the tests, so that Java compiles its hot code."""
PARTITIONS = 8


def say(line: str) -> None:
    """Prints progress."""
    print(line, file=sys.stderr, flush=True)


def found(connection: Any, question: str, *values: object) -> Any:
    """Returns the first row of an answer, or None."""
    with connection.cursor() as cursor:
        cursor.execute(question, values or None)
        return cursor.fetchone()


@dataclass(frozen=True, slots=True)
class Place:
    """Where one candidate works: a database and a topic of its own.

    Attributes:
        dsn: The candidate's connection string.
        database: The database's name.
        topic: The topic of the measured rows.
        folder: For settings, state and logs.
        servers: Database and broker.
    """

    dsn: str
    database: str
    topic: str
    folder: Path
    servers: Servers

    @property
    def bench_dsn(self) -> str:
        """The connection string of this program, whose statements are not counted as the candidate's."""
        return self.servers.database.dsn_of(self.database)

    def connect(self) -> Any:
        """Connects as this program, in autocommit mode, by psycopg or PyMySQL."""
        return self.servers.database.session(self.database)


class Servers:
    """A database server and a Kafka broker."""

    def __init__(self, database: Database, kafka: KafkaBroker, folder: Path) -> None:
        self.database = database
        self.kafka = kafka
        self.bootstrap = kafka.bootstrap
        self._folder = folder
        self._made = 0
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    @contextmanager
    def place(self, *, own_table: bool) -> Iterator[Place]:
        """Makes a place; takes it away at the end, with all that candidates left in the server.

        Args:
            own_table: Whether the candidate creates the outbox.
        """
        self._made += 1
        name = f"place{self._made}"
        topic = self.topic(name)
        folder = self._folder / name
        folder.mkdir()
        try:
            place = Place(self.database.make(name), name, topic, folder, self)
            if not own_table:
                with place.connect() as connection, connection.cursor() as cursor:
                    cursor.execute(self.database.ddl)
            yield place
        finally:
            self.database.drop(name)
            for deleted in self._admin.delete_topics([topic]).values():
                deleted.exception()

    def topic(self, prefix: str, partitions: int = PARTITIONS) -> str:
        """Creates a topic with a new name and returns that."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self._admin.create_topics([NewTopic(name, partitions)])[name].result()
        return name

    def warm_up(self, seconds: float) -> None:
        """Keeps the broker busy with transactions, records and a reader, until Java has compiled its code."""
        topic = self.topic("warm-up")
        own = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        plain, transactional = Producer(own), Producer({**own, "transactional.id": topic})
        transactional.init_transactions()
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": topic, "log_level": 0})
        reader.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            transactional.begin_transaction()
            for producer in (transactional, plain):
                for number in range(20):
                    producer.produce(topic, bytes(100), f"key-{number}")
            transactional.commit_transaction()
            plain.flush()
            reader.consume(1000, 0)
        reader.close()

    def written(self, topic: str) -> int:
        """Returns how many offsets of a topic are committed; the ends of transactions take some, too."""
        ends = {
            TopicPartition(topic, each): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for each in range(PARTITIONS)
        }
        found = self._admin.list_offsets(
            ends, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=30
        )
        return sum(each.result().offset for each in found.values())


@contextmanager
def open_servers(database: Database, kafka_version: str) -> Iterator[Servers]:
    """Starts the servers; they end with this interpreter, however it ends."""
    say(f"starting {database.title} and Kafka {kafka_version}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-compare-")))
        stack.enter_context(database)
        broker = KafkaBroker(jvm_options=BROKER_JVM, version=kafka_version, progress=say)
        yield Servers(database, stack.enter_context(broker), folder)
