"""How a database holds the kept records of each day in a partition, which goes away in one statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, ClassVar, Protocol

from outbox_api.portable.table_idiom import TableName


class Session(Protocol):
    """What partitions ask of a :class:`outbox_api.portable.Session`."""

    def query(self, doing: str, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """As of a session."""
        ...

    def transaction(self, doing: str, *, reads: bool = False) -> AbstractContextManager[None]:
        """As of a session."""
        ...

    def execute_ddl(self, ddl: str) -> None:
        """As of a session."""
        ...


class Partitions(ABC):
    """One database's partitions of a table of kept records: one for each UTC day, and one for all the rest.

    Attributes:
        clause: What stands behind the columns of the table, which is partitioned by ``delivered_at``.
        key: The columns of the primary key, where the table has one.
        window: How many positions a query looks at, where an index finds ranges of them and has no order; 0
            for any number.
        order: What stands at the end of a query for rows before a time: their order, if an index has it.
        brief: The statement after which the next one waits for the table only briefly, as purges queue up
            behind it.
        usual: The statement that undoes ``brief``; empty if the end of the transaction does.
    """

    clause: ClassVar[str]
    key: ClassVar[str] = "position, delivered_at"
    window: ClassVar[int] = 0
    order: ClassVar[str] = " ORDER BY delivered_at"
    brief: ClassVar[str]
    usual: ClassVar[str] = ""

    def beside(self, kept: TableName) -> Sequence[str]:  # noqa: ARG002 - for subclasses
        """Returns the statements that create what the table has beside it from the beginning."""
        return []

    @abstractmethod
    def days(self, session: Session, kept: TableName) -> Collection[date] | None:
        """Returns the days that have a partition; ``None`` if somebody has made a table without any."""

    def missing(self, days: Collection[date], wanted: Sequence[date]) -> list[date]:
        """Returns those of some days that have no partition and can get one, in order."""
        return [day for day in wanted if day not in days]

    def taken(self, session: Session, kept: TableName, days: Sequence[date]) -> Sequence[date]:  # noqa: ARG002 - as above
        """Returns those of some days without a partition whose records are elsewhere, so they get none."""
        return []

    @abstractmethod
    def add(self, kept: TableName, days: Sequence[date]) -> Sequence[Sequence[str]]:
        """Returns the statements that make partitions, by transaction."""

    @abstractmethod
    def drop(self, kept: TableName, day: date) -> Sequence[str]:
        """Returns the statements of the transaction that removes a day's partition with its records."""

    @abstractmethod
    def obstacle(self, session: Session, kept: TableName) -> str:
        """Returns why no partition can be made now; empty if one can."""

    @abstractmethod
    def refusal(self, session: Session, kept: TableName) -> str:
        """Returns the statement that permits this user to make and remove partitions; empty if it may."""
