"""The servers of a run, which all candidates share, and a place in them for each candidate."""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)
from outbox_servers.services import KafkaBroker, PostgresServer
from outbox_servers.services.postgres_binaries import find_binaries, local_binaries, major_version
from psycopg import sql
from psycopg.conninfo import make_conninfo

BROKER_JVM = ("-Xmx512m", "-Xms512m")
"""A broker without the quick-start options of the tests, so that Java compiles its hot code."""
PARTITIONS = 8
SUBJECT = "subject"
"""The account of whatever is measured: its statements are told from those of this program by it."""

SEED_DDL = """
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL,
    kafka_topic VARCHAR(249) NOT NULL,
    kafka_key VARCHAR(100) NOT NULL,
    kafka_value VARCHAR(10000),
    kafka_header_keys TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL,
    leader_id UUID
)"""
"""The table as goharvest's README creates it; ``outbox init`` creates ours instead where it is missing."""


def say(line: str) -> None:
    """Prints progress."""
    print(line, file=sys.stderr, flush=True)


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
        return self.servers.postgres.dsn_of(self.database)

    def connect(self) -> psycopg.Connection:
        """Connects as this program, in autocommit mode."""
        return psycopg.connect(self.bench_dsn, autocommit=True)


class Servers:
    """A PostgreSQL server and a Kafka broker."""

    def __init__(self, postgres: PostgresServer, kafka: KafkaBroker, folder: Path) -> None:
        self.postgres = postgres
        self.kafka = kafka
        self.bootstrap = kafka.bootstrap
        self._folder = folder
        self._made = 0
        self._password = secrets.token_hex(8)
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        # What is created in the template is in every database that is created later.
        with psycopg.connect(postgres.dsn_of("template1"), autocommit=True) as connection:
            role = sql.Identifier(SUBJECT)
            create = sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}")
            connection.execute(create.format(role, sql.Literal(self._password)))
            row = connection.execute("SELECT current_setting('shared_preload_libraries') <> ''").fetchone()
            self.counts_statements = bool(row and row[0])
            if self.counts_statements:
                connection.execute("CREATE EXTENSION pg_stat_statements")
            shown = connection.execute("SHOW server_version").fetchone() or ("?",)
            self.postgres_version = str(shown[0])

    @contextmanager
    def place(self, ddl: str | None) -> Iterator[Place]:
        """Makes a place; takes it away at the end, with replication slots and sessions.

        Args:
            ddl: Creates the outbox; None leaves that to the candidate.
        """
        self._made += 1
        name = f"place{self._made}"
        topic = self.topic(name)
        folder = self._folder / name
        folder.mkdir()
        dsn = make_conninfo(self.postgres.create_database(name), user=SUBJECT, password=self._password)
        try:
            place = Place(dsn, name, topic, folder, self)
            if ddl is not None:
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(ddl.encode())
            yield place
        finally:
            self._drop_slots(name)
            self.postgres.drop_database(name)
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

    def _drop_slots(self, database: str) -> None:
        slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
        with psycopg.connect(self.postgres.dsn, autocommit=True) as connection:
            for slot, pid in connection.execute(slots, (database,)).fetchall():
                if pid is not None:
                    connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


@contextmanager
def open_servers(postgres: str, kafka_version: str, settings: Mapping[str, str]) -> Iterator[Servers]:
    """Starts the servers; they end with this interpreter, however it ends.

    Args:
        postgres: ``local`` (else embedded), ``embedded``, or a folder with PostgreSQL's programs.
        kafka_version: Kafka's version.
        settings: Settings of PostgreSQL in addition to its defaults and those that Debezium needs.
    """
    binaries = binaries_of(postgres)
    needed = {"wal_level": "logical", **settings}
    if has_statement_counts(binaries):
        needed["shared_preload_libraries"] = "pg_stat_statements"
    say(f"starting PostgreSQL {major_version(binaries)} and Kafka {kafka_version}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outbox-compare-")))
        database = stack.enter_context(PostgresServer(binaries=binaries, settings=needed))
        broker = KafkaBroker(jvm_options=BROKER_JVM, version=kafka_version, progress=say)
        yield Servers(database, stack.enter_context(broker), folder)


def binaries_of(postgres: str) -> Path:
    """Returns the folder of PostgreSQL's programs that ``--postgres`` means."""
    if postgres == "local":
        return local_binaries() or find_binaries()
    return find_binaries() if postgres == "embedded" else Path(postgres)


def has_statement_counts(binaries: Path) -> bool:
    """Returns whether this PostgreSQL has the extension that counts statements."""
    shared = [binaries.parent / "share", Path("/usr/share/postgresql") / str(major_version(binaries))]
    return any(list(each.glob("**/pg_stat_statements.control")) for each in shared if each.is_dir())
