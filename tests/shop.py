"""An application with an outbox, which knows which records must arrive.

One transaction writes a sale and its outbox record. So the table of sales shows what was committed, even
after a lost reply to a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Event
from typing import Any

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
from outbox_api import Record
from outbox_audit import SEQUENCE_HEADER, Audit, Result, read_topic
from outbox_servers.services import Kafka

from .databases import Database, Postgres
from .sale_writer import LATE_SECONDS, LATE_WRITERS, MOST_RECORDS, PROMPT_WRITERS, SaleWriter
from .topics import ends, messages

INSERT = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
VALUES (now(), %s, %s, %s, %s, %s)
"""
"""How an application without the stasher writes into PostgreSQL."""

PARTITIONS = 4
CUSTOMERS = ["", "клиент", "customer 'x'", *(f"customer-{number}" for number in range(57))]
PAUSE_SECONDS = 0.015
"""How long a prompt writer leaves a transaction open."""


OpenShop = Callable[..., "Shop"]
"""Opens a shop on a broker, optionally with a limit for the bytes of a message."""


class Shop:
    """A shop with its database and its topic.

    Args:
        database: An empty database, or the connection string of one of PostgreSQL's.
        kafka: The broker of the topic.
        topic: The topic's name.

    Attributes:
        calm: While it is set, writers begin no transaction.
        customers: The customers of writers; the first have most sales if ``most_records`` is raised.
        most_records: In one transaction of a writer.
        commits: Customer and number of each sale → the time of its commit request, in seconds since the
            epoch, whether or not it succeeded.
    """

    def __init__(self, database: Database | str, kafka: Kafka, topic: str) -> None:
        self.database = Postgres(database) if isinstance(database, str) else database
        self.dsn = self.database.dsn
        self.kafka = kafka
        self.topic = topic
        self.calm = Event()
        self.customers: Sequence[str] = CUSTOMERS
        self.most_records = MOST_RECORDS
        self.commits: dict[tuple[str, int], float] = {}
        self.renew_admin()

    def renew_admin(self) -> None:
        """Creates another admin client, without connections to the broker before a restart."""
        # It lives as long as the tests, and would log the end of the broker.
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})

    def open(self, largest_message: int | None = None) -> None:
        """Creates the tables, and the topic with a limit for the bytes of a message."""
        self.database.open()
        self.create_topic(largest_message)

    def create_topic(self, largest_message: int | None = None, name: str | None = None) -> None:
        """Creates the topic, or another one."""
        limit = {} if largest_message is None else {"max.message.bytes": str(largest_message)}
        name = name or self.topic
        self.admin.create_topics([NewTopic(name, PARTITIONS, 1, config=limit)])[name].result(60)

    def allow(self, largest_message: int) -> None:
        """Changes the topic's limit for the bytes of a message."""
        size = str(largest_message)
        entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)
        name, deadline = ConfigResource(ResourceType.TOPIC, self.topic), time.monotonic() + 60
        while self.admin.describe_configs([name])[name].result(60)[entry.name].value != size:
            assert time.monotonic() < deadline, "the limit is not in force"
            time.sleep(0.05)

    @property
    def postgres(self) -> Postgres:
        """The database, for tests that need PostgreSQL."""
        assert isinstance(self.database, Postgres)
        return self.database

    def connect(self) -> psycopg.Connection:
        """Connects to PostgreSQL, in autocommit mode."""
        return self.postgres.connect_at_once()

    @contextmanager
    def selling(self, pause: float = PAUSE_SECONDS) -> Iterator[None]:
        """Writes sales until the block ends, with prompt and late commits and some rollbacks.

        Args:
            pause: Seconds for which a prompt writer leaves a transaction open.
        """
        ending = Event()
        writers = PROMPT_WRITERS + LATE_WRITERS
        threads = [
            # Each customer has one writer: the sales of a customer commit one after another.
            SaleWriter(
                self,
                self.customers[number::writers],
                LATE_SECONDS if number < LATE_WRITERS else (pause, pause),
                seed=number,
                ending=ending,
                most_records=self.most_records,
            )
            for number in range(writers)
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
        self, connection: Any, customer: str, number: int, value: str, *, topic: str | None = None
    ) -> None:
        """Writes one sale as part of a transaction."""
        record = _record(topic or self.topic, customer, number, value)
        self.database.sell(connection, [(customer, number)], [record])

    def sell_many(self, connection: Any, sales: Sequence[tuple[str, int]]) -> None:
        """Writes sales as part of a transaction."""
        made = [_record(self.topic, customer, number, f"sale {number}") for customer, number in sales]
        self.database.sell(connection, sales, made)

    def stash(self, records: int, *, keys: int, start: int = 1, connection: Any = None) -> None:
        """Writes a number of sales at once, numbered from ``start``, in a transaction or as part of one."""
        if connection is None:
            with closing(self.database.connect()) as own:
                self.stash(records, keys=keys, start=start, connection=own)
                own.commit()
            return
        sales = [(f"key-{number % keys}", number) for number in range(start, start + records)]
        self.sell_many(connection, sales)

    def sell_one(self) -> float:
        """Sells to a customer without a writer, waits until that is harvested, and returns the start time."""
        began = time.time()
        with closing(self.database.connect()) as connection:
            self.sell(connection, "passer-by", 1, "sale 1")
            connection.commit()
        self.wait_until_harvested(60, "passer-by")
        return began

    def wait_until_harvested(self, timeout: float, customer: str | None = None) -> float:
        """Waits until no record waits, or none of a customer; returns how many seconds that took."""
        started = time.monotonic()
        with closing(self.database.connect()) as connection:
            while rows := self.database.waiting(connection, customer):
                connection.rollback()  # the next query sees what is committed then
                assert time.monotonic() < started + timeout, f"not harvested within {timeout:g} s: {rows}"
                time.sleep(0.02)
        return time.monotonic() - started

    def sold(self) -> set[tuple[str, int]]:
        """Returns customer and number of each sale that is committed."""
        return {(str(key), int(number)) for key, number in self.database.fetch("SELECT * FROM sales")}

    def count(self) -> int:
        """Returns how many sales are committed."""
        return int(self.database.fetch("SELECT COUNT(*) FROM sales")[0][0])

    def wait_for_sales(self, more: int, timeout: float = 60.0) -> None:
        """Waits until ``more`` sales than now are committed."""
        wanted, deadline = self.count() + more, time.monotonic() + timeout
        while self.count() < wanted:
            assert time.monotonic() < deadline, f"fewer than {more} sales in {timeout:g} s"
            time.sleep(0.05)

    # --- what arrived -------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Returns how many records are in the outbox."""
        return int(self.database.fetch("SELECT count(*) FROM outbox")[0][0])

    def numbers(self, topic: str | None = None) -> dict[str, list[int]]:
        """Returns key → the numbers of its messages in the topic, or in another one, in order."""
        numbers: dict[str, list[int]] = {}
        for message in self.messages(topic):
            headers = dict(message.headers() or ())
            key = (message.key() or b"").decode()
            numbers.setdefault(key, []).append(int(headers[SEQUENCE_HEADER] or b""))
        return numbers

    def audit(self) -> Result:
        """Compares what was committed with what is in the topic now."""
        audit = Audit()
        for customer, number in self.sold():
            audit.committed(customer, number)
        for key, sequence in read_topic({"bootstrap.servers": self.kafka.bootstrap}, self.topic):
            audit.arrived(key, sequence)
        return audit.result()

    def ends(self) -> dict[int, int]:
        """Returns partition → the offset behind the topic's last message, committed or not."""
        return ends(self.admin, self.topic, PARTITIONS)

    def messages(self, topic: str | None = None) -> list[Message]:
        """Returns the committed messages of the topic, or of another one, in the order of each partition."""
        topic = topic or self.topic
        return messages(self.kafka.bootstrap, topic, ends(self.admin, topic, PARTITIONS))

    def deliveries(self) -> list[float]:
        """Returns the send time of each message of the topic in seconds since the epoch, sorted."""
        return sorted(message.timestamp()[1] / 1000 for message in self.messages())


def _record(topic: str, customer: str, number: int, value: str) -> Record:
    return Record(topic, customer, value, ((SEQUENCE_HEADER, str(number)),))
