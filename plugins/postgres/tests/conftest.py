"""An outbox of the test's own, and hands to write into it and look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from outbox_sdk import Fence, MarkedRecord

from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_postgres.table import PostgresTable

INSERT = """
INSERT INTO {table} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
VALUES (now(), 'orders', %s, %s, %s, %s) RETURNING id
"""


class Outbox:
    """An outbox in a fresh database; closes at the end what it opened."""

    def __init__(self, dsn: str, stack: ExitStack, **options: Any) -> None:
        self.dsn = dsn
        self.options = PostgresOptions(data_source=dsn, **options)
        self.dialect = PostgresDialect(self.options)
        self._stack = stack
        self.admin = self.session(autocommit=True)

    def session(self, **settings: Any) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.dsn, **settings)
        self._stack.callback(connection.close)
        return connection

    def connect(self, **how: Any) -> PostgresTable:
        table = self.dialect.connect(**how)
        self._stack.callback(table.close)
        return table

    def lead(self, lane: int = 0, lanes: int = 1) -> Hand:
        table = self.connect()
        return Hand(table, table.enter(lane, lanes, table.bump(lanes, "test")))

    def write(
        self,
        key: str | None = "k",
        value: Any = "v",
        headers: tuple[list[Any], list[Any]] = ([], []),
        connection: psycopg.Connection[Any] | None = None,
    ) -> int:
        statement = INSERT.format(table=self.options.outbox)
        row = (connection or self.admin).execute(statement, (key, value, *headers)).fetchone()
        assert row is not None
        return int(row[0])

    def fill(self, rows: int, keys: int = 10) -> None:
        self.admin.execute(
            f"INSERT INTO {self.options.outbox} "
            "(create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values) "
            f"SELECT now(), 'orders', 'k' || i % {keys}, 'v' || i, '{{}}', '{{}}' FROM generate_series(1, {rows}) AS i"
        )

    def leaders(self) -> dict[int, UUID | None]:
        return dict(self.admin.execute(f"SELECT id, leader_id FROM {self.options.outbox} ORDER BY id").fetchall())


class Hand:
    """A lane's hand on the table: its fence and leader id."""

    def __init__(self, table: PostgresTable, fence: Fence) -> None:
        self.table = table
        self.fence = fence
        self.leader = uuid4()

    def mark(self, limit: int = 1000) -> list[MarkedRecord]:
        return self.table.mark(self.fence, self.leader, limit)

    def purge(self, *ids: int) -> int:
        return self.table.purge(self.fence, self.leader, ids)

    def reset(self, *ids: int) -> int:
        return self.table.reset(self.fence, self.leader, ids)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def make_outbox(request: pytest.FixtureRequest, stack: ExitStack) -> Callable[..., Outbox]:
    """Makes an outbox of a data source, by default the test's own database, without creating its tables."""

    def make(dsn: str | None = None, **options: Any) -> Outbox:
        return Outbox(dsn or request.getfixturevalue("postgres_dsn"), stack, **options)

    return make


@pytest.fixture
def outbox(make_outbox: Callable[..., Outbox]) -> Outbox:
    box = make_outbox()
    box.dialect.create()
    return box
