"""An application with an outbox, which knows what must arrive.

A sale and its outbox record are written in one transaction, so the table of sales says, even after a commit
whose reply was lost, what was committed and what was not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import psycopg
from confluent_kafka import Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from outbox_core.audit import SEQUENCE_HEADER, Audit, Result, read_topic
from outbox_testkit.services import Kafka

from .clerk import LATE_CLERKS, LATE_SECONDS, PROMPT_CLERKS, Clerk
from .topics import ends, messages

SEED_DDL = """
CREATE TABLE IF NOT EXISTS outbox (
    id                  BIGSERIAL PRIMARY KEY,
    create_time         TIMESTAMP WITH TIME ZONE NOT NULL,
    kafka_topic         VARCHAR(249) NOT NULL,
    kafka_key           VARCHAR(100) NOT NULL,
    kafka_value         VARCHAR(10000),
    kafka_header_keys   TEXT[] NOT NULL,
    kafka_header_values TEXT[] NOT NULL,
    leader_id           UUID
)
"""
"""The outbox as seed 001 has it."""

INSERT = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
VALUES (now(), %s, %s, %s, %s, %s)
"""

_MANY_SALES = "INSERT INTO sales SELECT 'key-' || n %% %s, n FROM generate_series(%s::int, %s) AS n"
_MANY_RECORDS = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
SELECT now(), %s, 'key-' || n %% %s, 'sale ' || n, ARRAY[%s], ARRAY[n::text]
FROM generate_series(%s::int, %s) AS n ORDER BY n
"""
_SALES = "CREATE TABLE sales (customer TEXT, number INTEGER, PRIMARY KEY (customer, number))"
_TOUCHES = """
CREATE TABLE touches (at TIMESTAMPTZ, who TEXT, what TEXT, records BIGINT);
CREATE FUNCTION note_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO touches
    SELECT clock_timestamp(), current_setting('application_name'), TG_OP, count(*) FROM touched;
    RETURN NULL;
END $$;
CREATE TRIGGER touched_by_update AFTER UPDATE ON outbox
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION note_touch();
CREATE TRIGGER touched_by_delete AFTER DELETE ON outbox
    REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION note_touch();
"""

_BEATS = """
CREATE TABLE IF NOT EXISTS beats (at TIMESTAMPTZ, token BIGINT, lane INTEGER, attempt BIGINT, reading JSONB);
CREATE OR REPLACE FUNCTION note_beat() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.beats VALUES (clock_timestamp(), NEW.token, NEW.lane, NEW.attempt, NEW.reading);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER beat AFTER UPDATE OF reading ON outbox_fence
    FOR EACH ROW WHEN (NEW.beat IS DISTINCT FROM OLD.beat) EXECUTE FUNCTION note_beat();
"""
_COUNTED = """
SELECT extract(epoch FROM at)::float8,
       count - lag(count, 1, 0) OVER (PARTITION BY token, lane, attempt ORDER BY at)
FROM (SELECT *, coalesce((reading ->> %s)::int, 0) AS count FROM beats) AS counted
"""

PARTITIONS = 4
CUSTOMERS = ["", "клиент", "customer 'x'", *(f"customer-{number}" for number in range(57))]
PAUSE_SECONDS = 0.015
"""For which a prompt clerk leaves a transaction open."""


class Shop:
    """A shop with its database and its topic.

    Args:
        dsn: An empty database.
        kafka: Where the topic is created.
        topic: Its name.

    Attributes:
        commits: Customer and number of each sale → when its commit was asked for, in seconds since the epoch,
            whether or not it succeeded.
    """

    def __init__(self, dsn: str, kafka: Kafka, topic: str) -> None:
        self.dsn = dsn
        self.kafka = kafka
        self.topic = topic
        self.commits: dict[tuple[str, int], float] = {}
        self.renew_admin()

    def renew_admin(self) -> None:
        """Makes another admin client, which knows nothing of an earlier life of the broker."""
        # It lives as long as the tests and would tell of a broker that is stopped at their end.
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})

    def open(self, largest_message: int | None = None) -> None:
        """Creates the tables and the topic, which takes messages up to so many bytes."""
        with self.connect() as connection:
            connection.execute(SEED_DDL)
            connection.execute(_SALES)
        self.create_topic(largest_message)

    def create_topic(self, largest_message: int | None = None, name: str | None = None) -> None:
        """Creates the topic, or another one."""
        limit = {} if largest_message is None else {"max.message.bytes": str(largest_message)}
        name = name or self.topic
        self.admin.create_topics([NewTopic(name, PARTITIONS, 1, config=limit)])[name].result(30)

    def allow(self, largest_message: int) -> None:
        """Has the topic take messages up to so many bytes from now on."""
        size = str(largest_message)
        entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def connect(self) -> psycopg.Connection:
        """Connects to the database, in autocommit mode."""
        return psycopg.connect(self.dsn, autocommit=True)

    @contextmanager
    def selling(self, pause: float = PAUSE_SECONDS) -> Iterator[None]:
        """Sells until the block ends: prompt clerks and late ones, some of whose transactions roll back.

        Args:
            pause: Seconds for which a prompt clerk leaves a transaction open.
        """
        ending = Event()
        clerks = PROMPT_CLERKS + LATE_CLERKS
        threads = [
            # Each customer has one clerk: the sales of a customer commit one after another.
            Clerk(
                self,
                CUSTOMERS[number::clerks],
                LATE_SECONDS if number < LATE_CLERKS else (pause, pause),
                seed=number,
                ending=ending,
            )
            for number in range(clerks)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ending.set()
            for thread in threads:
                thread.join()
        if broken := [thread.error for thread in threads if thread.error is not None]:
            raise broken[0]

    def sell(
        self,
        connection: psycopg.Connection,
        customer: str,
        number: int,
        value: str,
        *,
        topic: str | None = None,
    ) -> None:
        """Makes one sale as part of a transaction."""
        connection.execute("INSERT INTO sales VALUES (%s, %s)", (customer, number))
        record = (topic or self.topic, customer, value, [SEQUENCE_HEADER], [str(number)])
        connection.execute(INSERT, record)

    def stash(
        self, records: int, *, keys: int, start: int = 1, connection: psycopg.Connection | None = None
    ) -> None:
        """Makes so many sales at once, numbered from ``start``, as a transaction or as part of one."""
        if connection is None:
            with self.connect() as own, own.transaction():
                self.stash(records, keys=keys, start=start, connection=own)
            return
        numbers = (keys, start, start + records - 1)
        connection.execute(_MANY_SALES, numbers)
        connection.execute(_MANY_RECORDS, (self.topic, numbers[0], SEQUENCE_HEADER, *numbers[1:]))

    def sell_one(self) -> float:
        """Sells to a customer of no clerk's, waits until the outbox is empty, and returns when it began."""
        began = time.time()
        with self.connect() as connection:
            connection.execute(INSERT, (self.topic, "passer-by", "sale 1", [SEQUENCE_HEADER], ["1"]))
            connection.execute("INSERT INTO sales VALUES ('passer-by', 1)")
        self.wait_until_harvested(10)
        return began

    def wait_until_harvested(self, timeout: float) -> float:
        """Waits until the outbox is empty; returns how many seconds that took."""
        started = time.monotonic()
        with self.connect() as connection:
            while rows := connection.execute("SELECT * FROM outbox ORDER BY id LIMIT 3").fetchall():
                assert time.monotonic() < started + timeout, f"not harvested within {timeout:g} s: {rows}"
                time.sleep(0.02)
        return time.monotonic() - started

    def sold(self) -> int:
        """Returns how many sales are committed."""
        with self.connect() as connection:
            row = connection.execute("SELECT count(*) FROM sales").fetchone()
        assert row is not None
        return int(row[0])

    def wait_for_sales(self, more: int, timeout: float = 30.0) -> None:
        """Waits until ``more`` sales than now are committed."""
        wanted, deadline = self.sold() + more, time.monotonic() + timeout
        while self.sold() < wanted:
            assert time.monotonic() < deadline, f"fewer than {more} sales in {timeout:g} s"
            time.sleep(0.05)

    # --- what arrived -------------------------------------------------------------------------------

    def audit(self) -> Result:
        """Compares what was committed with what the topic holds now."""
        audit = Audit()
        with self.connect() as connection:
            for customer, number in connection.execute("SELECT customer, number FROM sales"):
                audit.committed(customer, number)
        for key, sequence in read_topic({"bootstrap.servers": self.kafka.bootstrap}, self.topic):
            audit.arrived(key, sequence)
        return audit.result()

    def ends(self) -> dict[int, int]:
        """Returns partition → the offset behind what the topic holds now, committed or not."""
        return ends(self.admin, self.topic, PARTITIONS)

    def messages(self, topic: str | None = None) -> list[Message]:
        """Returns what is committed on the topic, or on another one, each partition in its order."""
        topic = topic or self.topic
        return messages(self.kafka.bootstrap, topic, ends(self.admin, topic, PARTITIONS))

    def deliveries(self) -> list[float]:
        """Returns when each message of the topic was sent, in seconds since the epoch, in this order."""
        return sorted(message.timestamp()[1] / 1000 for message in self.messages())

    # --- who touched the outbox ---------------------------------------------------------------------

    def watch(self) -> None:
        """Has the database note from now on which connection changes how many rows of the outbox."""
        with self.connect() as connection:
            connection.execute(_TOUCHES)

    def touches(self, since: float) -> dict[str, int]:
        """Returns application name → rows that its connections changed since then (seconds of the epoch)."""
        with self.connect() as connection:
            return dict(
                connection.execute(
                    "SELECT who, sum(records)::int FROM touches WHERE at >= to_timestamp(%s) GROUP BY who",
                    (since,),
                ).fetchall()
            )

    def watch_beats(self) -> None:
        """Has the database keep all readings of lanes from now on; there must be a fence. Idempotent."""
        with self.connect() as connection:
            connection.execute(_BEATS)

    def counted(self, name: str) -> list[tuple[float, int]]:
        """Returns when, in seconds since the epoch, a counter of some lane's had risen, and by how much."""
        with self.connect() as connection:
            return [(at, more) for at, more in connection.execute(_COUNTED, (name,)) if more > 0]
