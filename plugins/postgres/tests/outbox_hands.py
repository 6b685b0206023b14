"""Hands to write into an outbox, look at it and mark it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from time import monotonic, sleep
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from outbox_api import UNBOUNDED, Advanced, Batch, ColumnIs, Fence, MarkedRecord, Poison
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_postgres.rows import PostgresDeadLetters
from outbox_postgres.table import PostgresTable

INSERT = """
INSERT INTO {table} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
VALUES (now(), 'orders', %s, %s, %s, %s) RETURNING id
"""


BESIDE = [
    f"outbox_{suffix}"
    for suffix in (
        "fence",
        "fence_notes",
        "fence_lease",
        "fence_members",
        "dead_letters",
        "journal",
        "fence_history",
    )
]
"""The tables beside an outbox, in the order in which they are created."""

WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
"""How many sessions wait for a lock in this database. Other tests use other databases of the same server."""


def ask(connection: psycopg.Connection[Any], question: str, *parameters: object) -> Any:
    """Returns the first value of the first row."""
    row = connection.execute(question, parameters).fetchone()
    assert row is not None
    return row[0]


MARK = "text, int, int, bigint, bigint, uuid, bigint, bigint, bigint, text[], bigint, text[], text[]"
SELECT = "text, int, int, bigint, bigint, bigint[], bigint, bigint, bigint, bigint[], bigint, text[], text[]"
RUNS = ", bigint[], bigint[], text[]"
"""The types of the parameters of statements, without those of a source."""


def prepare(
    connection: psycopg.Connection[Any], statement: str, parameters: Sequence[object], types: str = MARK
) -> str:
    """Prepares a statement as ``plan``, and returns the SQL that executes it."""
    connection.execute(f"PREPARE plan ({types}) AS {statement}")
    values = ", ".join(psycopg.sql.Literal(value).as_string(connection) for value in parameters)
    return f"EXECUTE plan ({values})"


def until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 60
    while not condition():
        assert monotonic() < deadline, "it never happened"
        sleep(0.01)


def waits(outbox: Outbox, at: PostgresTable | PostgresDeadLetters) -> bool:
    """Tells whether a connection waits for a lock."""
    pid = at._session.connection.info.backend_pid
    row = outbox.admin.execute(
        "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", (pid,)
    ).fetchone()
    return bool(row and row[0])


class Outbox:
    """An outbox in a fresh database; closes at the end what it opened."""

    def __init__(self, dsn: str, stack: ExitStack, **options: Any) -> None:
        self.dsn = dsn
        self.options = PostgresOptions(data_source=dsn, **options)
        self.dialect = PostgresDialect(self.options)
        self._stack = stack

    @cached_property
    def admin(self) -> psycopg.Connection[Any]:
        return self.session(autocommit=True)

    def session(self, **settings: Any) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.dsn, **settings)
        self._stack.callback(connection.close)
        return connection

    def connect(self, **how: Any) -> PostgresTable:
        table = self.dialect.connect(**how)
        self._stack.callback(table.close)
        return table

    def dead_letters(self) -> PostgresDeadLetters:
        letters = self.dialect.dead_letters()
        self._stack.callback(letters.close)
        return letters

    def taken(self, lane: int = 0, lanes: int = 1) -> Hand:
        """Leads, and takes in all rows that can be."""
        hand = self.lead(lane, lanes)
        self.take_in(hand)
        return hand

    def take_in(self, hand: Hand) -> None:
        """Takes in all rows that can be."""
        with closing(self.dialect.intakes()) as intakes:
            while intakes.take(hand.fence.token, 2**30):
                pass

    def lead(self, lane: int = 0, lanes: int = 1, eligible: Sequence[ColumnIs] = ()) -> Hand:
        table = self.connect(eligible=eligible)
        return Hand(table, table.enter(lane, lanes, table.bump(lanes, "test")))

    def lead_batches(self, lanes: int = 1, eligible: Sequence[ColumnIs] = ()) -> list[BatchHand]:
        """Leads every lane; each hand has its own connection."""
        table = self.connect()
        token = table.bump(lanes, "test")
        return [
            BatchHand(self.connect(eligible=eligible), table.enter(lane, lanes, token))
            for lane in range(lanes)
        ]

    def write(
        self,
        key: str | None = "k",
        value: Any = "v",
        headers: tuple[list[Any], list[Any]] = ([], []),
        connection: psycopg.Connection[Any] | None = None,
    ) -> int:
        statement = INSERT.format(table=self.options.outbox)
        return int(ask(connection or self.admin, statement, key, value, *headers))

    def fill(self, rows: int, keys: int = 10) -> None:
        self.admin.execute(
            f"INSERT INTO {self.options.outbox} "
            "(create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values) "
            f"SELECT now(), 'orders', 'k' || i % {keys}, 'v' || i, '{{}}', '{{}}' "
            f"FROM generate_series(1, {rows}) AS i"
        )

    def set_default(self, name: str, value: str) -> None:
        """Sets what later sessions in this database start with."""
        self.admin.execute(f'ALTER DATABASE "{self.admin.info.dbname}" SET {name} = {value}')

    def park(self, hand: Hand, *keys: str) -> dict[str, int]:
        """Marks everything, parks keys by their first rows, resets the rest; returns key → head."""
        marked = hand.mark(100_000)
        heads = {record.key: record.id for record in reversed(marked) if record.key in keys}
        assert hand.park([record.id for record in marked if record.key in keys], *heads.values()) == len(keys)
        hand.reset(*[record.id for record in marked if record.key not in keys])
        return heads

    def ids(self) -> list[int]:
        """The ids of all rows that anybody sees."""
        return [row[0] for row in self.admin.execute(f"SELECT id FROM {self.options.outbox} ORDER BY id")]

    def leaders(self) -> dict[int, UUID | None]:
        return dict(
            self.admin.execute(f"SELECT id, leader_id FROM {self.options.outbox} ORDER BY id").fetchall()
        )


class Hand:
    """A lane's hand on the table: its fence and leader id."""

    def __init__(self, table: PostgresTable, fence: Fence) -> None:
        self.table = table
        self.fence = fence
        self.leader = uuid4()

    def mark(
        self,
        limit: int = 1000,
        *,
        max_bytes: int = UNBOUNDED,
        excluded: Collection[str] = (),
        source: int = 0,
    ) -> list[MarkedRecord]:
        return self.table.mark(self.fence, self.leader, limit, max_bytes, excluded, source)

    def ids(
        self,
        limit: int = 1000,
        *,
        max_bytes: int = UNBOUNDED,
        excluded: Collection[str] = (),
        source: int = 0,
    ) -> list[int]:
        """Marks, and returns the ids only."""
        marked = self.mark(limit, max_bytes=max_bytes, excluded=excluded, source=source)
        return [record.id for record in marked]

    def purge(self, *ids: int) -> int:
        self.changed = self.table.purge(self.fence, self.leader, ids)
        return self.changed.rows

    def reset(self, *ids: int) -> int:
        self.changed = self.table.reset(self.fence, self.leader, ids)
        return self.changed.rows

    def park(self, ids: Sequence[int], *heads: int, reason: str = "too large") -> int:
        poisons = [Poison(head, reason, 5) for head in heads]
        return self.table.park(self.fence, self.leader, poisons, ids).rows


class BatchHand:
    """A lane's hand that selects batches.

    Attributes:
        table: The connection.
        fence: The fence.
        latest: What the latest advance returned.
    """

    def __init__(self, table: PostgresTable, fence: Fence) -> None:
        self.table = table
        self.fence = fence
        self.latest = Advanced(0, [])

    def advance(
        self,
        limit: int = 1000,
        finished: Sequence[Batch] = (),
        pending: Sequence[Batch] = (),
        *,
        max_bytes: int = UNBOUNDED,
        source: int = 0,
    ) -> list[MarkedRecord]:
        self.latest = self.table.advance(self.fence, finished, pending, limit, max_bytes, source)
        return self.latest.records

    def batch(
        self,
        limit: int = 1000,
        finished: Sequence[Batch] = (),
        pending: Sequence[Batch] = (),
        **how: int,
    ) -> tuple[Batch, list[int]]:
        """Advances, and returns the new batch with its ids."""
        ids = self.ids(limit, finished, pending, **how)
        return Batch.of(ids, self.latest.newest), ids

    def ids(
        self,
        limit: int = 1000,
        finished: Sequence[Batch] = (),
        pending: Sequence[Batch] = (),
        **how: int,
    ) -> list[int]:
        """Advances, and returns the ids only."""
        return [record.id for record in self.advance(limit, finished, pending, **how)]

    def delete(self, *finished: Batch) -> int:
        """Only deletes; returns how many rows."""
        self.advance(0, finished)
        return self.latest.purged

    def park(self, *heads: int) -> int:
        return self.table.park(self.fence, None, [Poison(head, "too large", 5) for head in heads]).rows

    @property
    def start(self) -> int:
        """Below which id selections do not look."""
        assert self.table._starts.settled
        return self.table._starts.settled._start


MakeOutbox = Callable[..., Outbox]
"""Makes an outbox of a data source, by default the test's own database, without creating its tables."""


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the dialect has logged; clients of other tests may log beside it."""
    return [record.message for record in caplog.records if record.name.startswith("outbox.postgres")]
