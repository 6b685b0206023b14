"""The application of a round: it writes into the table of goharvest, or into that of Debezium."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from outbox_api import Record
from outbox_audit import SEQUENCE_HEADER
from outbox_servers.services import Kafka

from tests.databases import GOHARVEST_DDL, Postgres
from tests.harvesters import until
from tests.shop import Shop

KEYS = [f"customer-{number}" for number in range(60)]
ROUTE = "outbox.event."
"""What Debezium's router puts before the aggregate's type."""
EVENTS = """
CREATE TABLE outboxevent (
    id UUID NOT NULL PRIMARY KEY,
    aggregatetype VARCHAR(255) NOT NULL,
    aggregateid VARCHAR(255) NOT NULL,
    type VARCHAR(255) NOT NULL,
    payload JSONB,
    seq INTEGER NOT NULL
)
"""
"""The table of Debezium's router by its defaults, with an additional field for a header."""
WRITING = """
SELECT FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND state LIKE 'idle in transaction%'
"""


class HarvestedTable(Postgres):
    """A database with goharvest's table, and nothing of outbox yet."""

    def _create_outbox(self) -> None:
        with self.connect_at_once() as connection:
            connection.execute(GOHARVEST_DDL)


class EventTable(Postgres):
    """A database with Debezium's table, and nothing of outbox yet.

    Attributes:
        deleting: Whether the application deletes events in the transaction that writes them.
    """

    deleting = True

    def _create_outbox(self) -> None:
        with self.connect_at_once() as connection:
            connection.execute(EVENTS)

    def sell(self, connection: Any, sales: Sequence[tuple[str, int]], records: Sequence[Record]) -> None:
        """Writes sales and their events as part of a transaction."""
        connection.cursor().executemany("INSERT INTO sales VALUES (%s, %s)", sales)
        rows = [(uuid4(), _aggregate(record), record.key, *_content(record)) for record in records]
        insert = "INSERT INTO outboxevent VALUES (%s, %s, %s, 'sold', %s, %s)"
        connection.cursor().executemany(insert, rows)
        if self.deleting:
            connection.execute("DELETE FROM outboxevent WHERE id = ANY(%s)", ([row[0] for row in rows],))


def _aggregate(record: Record) -> str:
    return record.topic.removeprefix(ROUTE)


def _content(record: Record) -> tuple[str, int]:
    number = int(dict(record.headers)[SEQUENCE_HEADER] or "")
    return json.dumps({"n": number}), number


def open_shop(database: Postgres, kafka: Kafka, topic: str) -> Shop:
    """Creates the application's tables and its topic."""
    shop = Shop(database, kafka, topic)
    shop.customers = KEYS
    shop.open()
    return shop


@contextmanager
def paused(shop: Shop, pause: bool) -> Iterator[None]:
    """Pauses the writers, if it is asked, from the end of their last transactions until the block ends."""
    if pause:
        shop.calm.set()
        until(lambda: not shop.database.fetch(WRITING), "the last transactions end", 30)
    try:
        yield
    finally:
        shop.calm.clear()


def router(table: str) -> Mapping[str, str]:
    """Returns settings of Debezium's connector for the table of events."""
    names = "transforms.outbox"
    return {
        "table.include.list": f"public.{table}",
        f"{names}.table.field.event.key": "aggregateid",
        f"{names}.table.field.event.payload": "payload",
        f"{names}.table.fields.additional.placement": f"seq:header:{SEQUENCE_HEADER}",
        f"{names}.route.by.field": "aggregatetype",
        f"{names}.route.topic.replacement": ROUTE + "${routedByValue}",
    }
