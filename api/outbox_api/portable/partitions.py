"""How a database holds what comes each day in a partition, which goes away in one statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, ClassVar, NamedTuple, Protocol

from outbox_api.portable.table_idiom import TableName


class Session(Protocol):
    """What partitions ask of a :class:`outbox_api.portable.Session`."""

    def query(self, doing: str, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """As of a session."""
        ...

    def fetch(self, sql: str, **values: object) -> Sequence[Sequence[Any]]:
        """As of a session."""
        ...

    def transaction(self, doing: str, *, reads: bool = False) -> AbstractContextManager[None]:
        """As of a session."""
        ...

    def execute_ddl(self, ddl: str) -> None:
        """As of a session."""
        ...


class Divided(NamedTuple):
    """A table that has a partition for each UTC day.

    Attributes:
        table: Its name.
        column: The time by which it is divided.
        outbox: Whether it is the outbox, whose partitions go only once they are empty; those of kept records
            go with what they hold.
        ahead: For how many days after today partitions are made.
    """

    table: TableName
    column: str
    outbox: bool
    ahead: int


def divided_kept(kept: TableName) -> Divided:
    """Returns the table of kept records as it is divided."""
    return Divided(kept, "delivered_at", outbox=False, ahead=7)


def divided_outbox(outbox: TableName) -> Divided:
    """Returns an outbox as it is divided; each statement that marks or purges looks at every partition."""
    return Divided(outbox, "create_time", outbox=True, ahead=3)


class Partitions(ABC):
    """One database's partitions of a table: one for each UTC day, and one for all the rest.

    Attributes:
        key: The columns of the primary key of kept records, where the table has one.
        window: How many positions a query looks at, where an index finds ranges of them and has no order; 0
            for any number.
        order: What stands at the end of a query for records kept before a time: their order, if an index has
            it.
        brief: The statement after which the next one waits for the table only briefly, as purges queue up
            behind it.
        usual: The statements that undo ``brief`` and what a failed statement left; none if the end of the
            transaction does.
    """

    key: ClassVar[str] = "position, delivered_at"
    window: ClassVar[int] = 0
    order: ClassVar[str] = " ORDER BY delivered_at"
    brief: ClassVar[str]
    usual: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def clause(self, column: str) -> str:
        """Returns what stands behind the columns of a table that is divided by ``column``."""

    def beside(self, kept: TableName) -> Sequence[str]:  # noqa: ARG002 - for subclasses
        """Returns the statements that create what a table of kept records has beside it from the start."""
        return []

    @abstractmethod
    def days(self, session: Session, divided: Divided) -> Collection[date] | None:
        """Returns the days that have a partition; ``None`` if the table is not divided like this."""

    def missing(self, days: Collection[date], wanted: Sequence[date]) -> list[date]:
        """Returns those of some days that have no partition and can get one, in order."""
        return [day for day in wanted if day not in days]

    def taken(self, session: Session, divided: Divided, days: Sequence[date]) -> Sequence[date]:  # noqa: ARG002 - as above
        """Returns those of some days without a partition whose records are elsewhere, so they get none."""
        return []

    @abstractmethod
    def add(self, session: Session, divided: Divided, days: Sequence[date]) -> Sequence[Sequence[str]]:
        """Returns the statements that make partitions, by transaction."""

    @abstractmethod
    def drop(self, divided: Divided, day: date) -> Sequence[str]:
        """Returns the statements of the transaction that removes a day's partition with its records.

        Of an outbox it removes an empty one only. It looks under the lock that keeps every writer out until
        the partition has gone, at what is committed then: no row can be in it, or come, that is not seen.
        """

    @abstractmethod
    def is_empty(self, session: Session, divided: Divided, day: date) -> bool:
        """Returns whether a day's partition seems to be empty, without a lock that anybody waits for.

        Raises:
            DriverError: So many rows have been deleted there that a look takes long (retryable): it would
                under the lock, too.
        """

    def obstacle(self, session: Session, divided: Divided) -> str:  # noqa: ARG002 - for subclasses
        """Returns why no partition can be made now; empty if one can."""
        return ""

    @abstractmethod
    def refusal(self, session: Session, divided: Divided) -> str:
        """Returns the statement that permits this user to make and remove partitions; empty if it may."""
