"""What a method of harvesting is to the bench: its tables, and harvesters that poll step by step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from os import environ
from typing import Any, NamedTuple, Protocol

LIMIT = int(environ.get("METHODS_LIMIT", "3"))
"""Records of one poll: few, so that histories reach the edge of a batch; ``costs`` sets more."""
GRACE = float(environ.get("METHODS_GRACE", "10"))
"""Seconds for which methods wait for what may still come, where they do; ``costs`` sets fewer."""


class Row(NamedTuple):
    """A record of the outbox."""

    id: int
    key: str
    value: str


class Broker(Protocol):
    """The broker, as a harvester sees it."""

    def send(self, row: Row) -> None:
        """Hands a record over; it is delivered once :meth:`confirmed` has returned.

        Raises:
            RefusedError: The broker does not take such a record.
        """
        ...

    def confirmed(self) -> None:
        """Waits until all that was sent is acknowledged."""
        ...


class RefusedError(Exception):
    """The broker does not take a record."""


class Clock(Protocol):
    """The clock of the database, which histories set."""

    @property
    def now(self) -> float:
        """Seconds since its beginning."""
        ...


class Memory(Protocol):
    """What a harvester keeps outside the database, and its next start finds: Kafka Connect's offsets."""

    def __getitem__(self, name: str) -> Any: ...
    def __setitem__(self, name: str, value: Any) -> None: ...
    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """What a harvester works with."""

    connection: Any  # of its own, in autocommit mode
    broker: Broker
    clock: Clock
    memory: Memory
    ends: list[Callable[[], None]] = field(default_factory=list)
    """What is called when a history kills the harvester, beside that its connection is closed."""

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Returns records that a query finds: its first columns are those of a :class:`Row`."""
        return [Row(*row[:3]) for row in self.all(sql, *values)]

    def all(self, sql: str, *values: object) -> list[Any]:
        """Returns the rows of a query."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def run(self, sql: str, *values: object) -> int:
        """Executes a statement; returns how many rows it changed."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return int(cursor.rowcount)


class Harvester(Protocol):
    """A process that harvests."""

    def poll(self) -> Generator[None]:
        """Looks once, and sends what it finds. Pauses wherever a crash makes a difference."""
        ...


@dataclass(frozen=True, slots=True)
class Method:
    """A way to harvest.

    Attributes:
        name: Its name.
        start: Starts a harvester.
        ddl: What it needs beside the outbox.
        database: The server that it needs: ``postgres`` or ``mysql``.
        workers: How many harvest at the same time; more than one where a method is meant so.
        deletes: Whether it deletes what it has delivered.
    """

    name: str
    start: Callable[[Place], Harvester]
    ddl: str = ""
    database: str = "postgres"
    workers: int = 1
    deletes: bool = False
