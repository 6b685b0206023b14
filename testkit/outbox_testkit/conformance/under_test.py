"""An outbox under test: what a plugin's fixture provides, and how the tests use it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from outbox_api import (
    UNBOUNDED,
    Advanced,
    Batch,
    Changed,
    ColumnIs,
    Fence,
    Intakes,
    MarkedRecord,
    OutboxTable,
    Poison,
    Record,
    Seam,
    Stasher,
    find,
)
from outbox_api.portable.dead_letters import PortableDeadLetters
from outbox_api.portable.kept import PortableKept
from outbox_api.portable.replaying import PortableReplays
from outbox_api.portable.view import PortableView

ALL = 1_000_000
"""More rows than any test stashes."""

Made = TypeVar(
    "Made", bound="OutboxTable | PortableDeadLetters | PortableKept | PortableReplays | PortableView"
)


@dataclass(frozen=True)
class OutboxUnderTest:
    """An outbox that is not created yet, in an empty database or beside others.

    Attributes:
        driver: The dialect's driver name.
        options: The dialect's options, by the names of their fields.
        bytes_values: Additional options for an outbox whose values are bytes.
        restart: Statements that empty the outbox ``{table}`` and restart its ids.
        rename: A statement that renames the outbox ``{table}`` to ``{name}``, in the same schema.
        write_id: Executes an ``{insert}`` that gives an id of its own to a row of ``{table}``.
        refusing: Statements after which the outbox ``{table}`` refuses the rows of a ``{condition}``.
        lease_ahead: Writes an hour after ``renewed_at``, so that a lease looks as though the database's clock
            had gone back; or the whole statement that does so.
    """

    driver: str
    options: Mapping[str, Any]
    bytes_values: Mapping[str, Any] = field(default_factory=dict)
    restart: Sequence[str] = ("TRUNCATE TABLE {table}",)
    rename: str = "ALTER TABLE {table} RENAME TO {name}"
    write_id: str = "{insert}"
    refusing: Sequence[str] = ("ALTER TABLE {table} ADD CHECK (NOT ({condition}))",)
    lease_ahead: str = "renewed_at + INTERVAL '1' HOUR"

    def refuse(self, table: str, condition: str) -> Sequence[str]:
        """Returns the statements after which a table refuses the rows of a condition."""
        return [statement.format(table=table, condition=condition) for statement in self.refusing]

    def beside(self, suffix: str) -> OutboxUnderTest:
        """Returns another outbox in the same database."""
        made = find(Seam.DIALECT, self.driver).options(**self.options)
        return replace(self, options={**self.options, "table": f"{made.table}_{suffix}"})

    def apart(self) -> OutboxUnderTest:
        """Returns the outbox with tables beside it that no other one shares."""
        made = find(Seam.DIALECT, self.driver).options(**self.options)
        table = str(made.table).rsplit(".", maxsplit=1)[-1].strip('"')
        return replace(
            self,
            options={
                **self.options,
                "fence_table": f"{table}_f",
                "dead_letter_table": f"{table}_d",
                "journal_table": f"{table}_j",
            },
        )

    def of_bytes(self) -> OutboxUnderTest:
        """Returns an outbox whose values are bytes."""
        return replace(self, options={**self.options, **self.bytes_values})


class Box:
    """An outbox as the tests use it; closes at the end what it opened.

    Attributes:
        under: Its description.
        options: The dialect's options.
        dialect: Its dialect.
        stasher: Writes into it.
    """

    def __init__(self, under: OutboxUnderTest, stack: ExitStack, *, bytes_values: bool = False) -> None:
        driver = find(Seam.DIALECT, under.driver)
        options = driver.options(**under.options)
        self.under = under
        self.options = options
        self.dialect = driver.create(options)
        self.stasher = Stasher(options.table, under.driver, bytes_values=bytes_values)
        self._stack = stack
        self._writer: Any = None
        self._filled = 0

    def beside(self, suffix: str) -> Box:
        """Creates another outbox in the same database, with its tables."""
        other = Box(self.under.beside(suffix), self._stack)
        other.dialect.create()
        return other

    def connect(self, eligible: Sequence[ColumnIs] = ()) -> OutboxTable:
        return self._kept(self.dialect.connect(eligible))

    def watch(self) -> PortableView:
        return self._kept(self.dialect.watch())

    def dead_letters(self) -> PortableDeadLetters:
        return self._kept(self.dialect.dead_letters())

    def kept(self) -> PortableKept:
        return self._kept(self.dialect.kept())

    def replays(self) -> PortableReplays:
        return self._kept(self.dialect.replays())

    def application(self) -> Any:
        """Opens an application's connection."""
        connection = self.dialect.stash_connection()
        self._stack.callback(_close, connection)
        return connection

    def stash(self, *records: Record) -> None:
        """Stashes records in one transaction, and commits."""
        if self._writer is None:
            self._writer = self.application()
        self.stasher.stash_many(self._writer, records)
        self._writer.commit()

    def fill(self, count: int, keys: int = 10) -> list[str]:
        """Stashes records with the values v1, v2, … and the keys k1, … k0 in turn; returns their values."""
        numbers = range(self._filled + 1, self._filled + count + 1)
        self._filled += count
        self.stash(*(plain(f"k{number % keys}", f"v{number}") for number in numbers))
        return [f"v{number}" for number in numbers]

    def lead(self, lane: int = 0, lanes: int = 1) -> Hand:
        """Creates a new leader of one lane."""
        table = self.connect()
        return Hand(table, table.enter(lane, lanes, table.bump(lanes, "test")))

    def lead_all(self, lanes: int, eligible: Sequence[ColumnIs] = ()) -> list[Hand]:
        """Creates a new leader of all lanes; each has its own connection."""
        table = self.connect()
        token = table.bump(lanes, "test")
        return [Hand(self.connect(eligible), table.enter(lane, lanes, token)) for lane in range(lanes)]

    def restart(self) -> None:
        """Empties the outbox, and restarts its ids."""
        self.execute(*(statement.format(table=self.options.table) for statement in self.under.restart))
        self._filled = 0

    def renamed(self) -> Box:
        """Gives the outbox another name, and returns it by that one."""
        other = self.under.beside("renamed")
        self.execute(
            self.under.rename.format(table=self.options.table, name=other.options["table"].split(".")[-1])
        )
        return Box(other, self._stack)

    def execute(self, *statements: str) -> None:
        """Executes statements as an application, and commits."""
        application = self.application()
        with closing(application.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
        application.commit()

    def turn_clock_back(self) -> None:
        """Has the lease look as though the database's clock had gone back by an hour."""
        ahead = self.under.lease_ahead
        if not ahead.startswith("SELECT "):
            ahead = f"UPDATE {{lease}} SET renewed_at = {ahead} WHERE UPPER(name) LIKE UPPER('%{{table}}')"
        self.execute(ahead.format(table=self.options.table, lease=self.options.tables.lease))

    def survey(self) -> list[str]:
        """Returns the values of all rows except those of parked keys, in a new leader's order."""
        return self.lead().values(ALL)

    def park(self, hand: Hand, *keys: str) -> dict[str, int]:
        """Marks everything, parks keys by their first rows, resets the rest; returns key → head."""
        marked = hand.mark(ALL)
        heads = {record.key: record.id for record in reversed(marked) if record.key in keys}
        ids = [record.id for record in marked if record.key in keys]
        assert hand.park(ids, *heads.values()) == len(keys)
        hand.reset(*[record.id for record in marked if record.key not in keys])
        return heads

    def keep(self, made: Intakes) -> None:
        """Closes at the end what somebody else has opened."""
        self._stack.callback(made.close)

    def _kept(self, made: Made) -> Made:
        self._stack.callback(made.close)
        return made


class Hand:
    """A lane at the table: its connection, its fence and its leader id.

    Attributes:
        table: The connection.
        fence: The fence.
        leader: The leader id of its marks.
        advanced: The result of the latest advance.
        changed: The result of the latest purge, reset or park.
    """

    def __init__(self, table: OutboxTable, fence: Fence) -> None:
        self.table = table
        self.fence = fence
        self.leader = uuid4()
        self.advanced = Advanced(0, [])
        self.changed = Changed(0)

    def remark(self) -> None:
        """Takes a new leader id."""
        self.leader = uuid4()

    def mark(
        self,
        limit: int = 1000,
        *,
        max_bytes: int = UNBOUNDED,
        excluded: Collection[str] = (),
        source: int = 0,
        topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        return self.table.mark(self.fence, self.leader, limit, max_bytes, excluded, source, topics)

    def values(
        self, limit: int = 1000, *, max_bytes: int = UNBOUNDED, excluded: Collection[str] = ()
    ) -> list[str]:
        """Marks, and returns the values only."""
        return texts(self.mark(limit, max_bytes=max_bytes, excluded=excluded))

    def ids(self, limit: int = 1000) -> list[int]:
        """Marks, and returns the ids only."""
        return [record.id for record in self.mark(limit)]

    def purge(self, *ids: int, leader: UUID | None = None) -> int:
        self.changed = self.table.purge(self.fence, leader or self.leader, ids)
        return self.changed.rows

    def reset(self, *ids: int, leader: UUID | None = None) -> int:
        """Resets; which also tells how many of the rows carry a leader id."""
        self.changed = self.table.reset(self.fence, leader or self.leader, ids)
        return self.changed.rows

    def park(self, ids: Sequence[int], *heads: int, reason: str = "too large") -> int:
        poisons = [Poison(head, reason, 5) for head in heads]
        self.changed = self.table.park(self.fence, self.leader, poisons, ids)
        return self.changed.rows

    def park_selected(self, *heads: int, reason: str = "too large") -> int:
        """Parks keys of rows that were selected, not marked."""
        return self.table.park(self.fence, None, [Poison(head, reason, 5) for head in heads]).rows

    def advance(
        self,
        limit: int = 1000,
        finished: Sequence[Batch] = (),
        pending: Sequence[Batch] = (),
        *,
        max_bytes: int = UNBOUNDED,
        source: int = 0,
        excluded: Collection[str] = (),
        topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        self.advanced = self.table.advance(
            self.fence, finished, pending, limit, max_bytes, source, excluded, topics
        )
        return self.advanced.records

    def batch(
        self, limit: int = 1000, finished: Sequence[Batch] = (), pending: Sequence[Batch] = ()
    ) -> tuple[Batch, list[str]]:
        """Advances, and returns the new batch with its values."""
        records = self.advance(limit, finished, pending)
        return self.last(), texts(records)

    def last(self) -> Batch:
        """Returns the latest batch, which the latest advance selected."""
        return Batch.of([record.id for record in self.advanced.records], self.advanced.newest)

    @property
    def purged(self) -> int:
        """How many rows the latest advance deleted."""
        return self.advanced.purged


def plain(key: str = "k", value: str | None = "v") -> Record:
    """Returns a record without headers."""
    return Record("orders", key, value)


def texts(records: Sequence[MarkedRecord]) -> list[str]:
    """Returns the values of records as text, whatever type the table has."""
    values = [record.value for record in records]
    return [value.decode() if isinstance(value, bytes) else value or "" for value in values]


def content(records: Sequence[MarkedRecord]) -> list[MarkedRecord]:
    """Returns records by which two reads of the same rows are compared: without when a row was created."""
    return [record._replace(created=None, headers=tuple(record.headers)) for record in records]


def _close(connection: Any) -> None:
    # The server may have ended the connection already; that is not part of the test.
    with suppress(Exception):
        connection.rollback()
    with suppress(Exception):
        connection.close()
