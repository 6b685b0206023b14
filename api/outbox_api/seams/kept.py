"""Kept records: what was delivered, or superseded, and is still in the table beside the outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from outbox_api.base.errors import ConfigError
from outbox_api.base.record import MarkedRecord


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record that was delivered, or superseded by a later one of its key.

    Attributes:
        position: Its place among the kept records: rises in the order of deliveries within a key.
        delivered_at: When its row was purged (database clock), in UTC.
        token: The fence token of the leader that purged it.
        record: The record as it was; with its ``created``.
        has_value: Whether the value was kept.
        has_headers: Whether the headers were kept.
        superseded: Whether it was deleted without being delivered, as a later one of its key waited.
    """

    position: int
    delivered_at: datetime
    token: int
    record: MarkedRecord
    has_value: bool = True
    has_headers: bool = True
    superseded: bool = False


COMPARED: Mapping[str, type] = MappingProxyType(
    {
        "kafka_topic": str,
        "kafka_key": str,
        "create_time": datetime,
        "delivered_at": datetime,
        "id": int,
        "token": int,
        "position": int,
    }
)
"""The columns that a condition can compare → the type of what they are compared with."""

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
"""How they are compared; texts with the first two only, byte for byte."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Compares a column of a kept record with a value; a column that is null meets none.

    Attributes:
        column: One of ``COMPARED``.
        operator: One of ``OPERATORS``.
        value: Of the column's type; a time with its zone.

    Raises:
        ConfigError: There is no such column or operator, or the value has another type.
    """

    column: str
    operator: str
    value: str | int | datetime

    def __post_init__(self) -> None:
        if (wanted := COMPARED.get(self.column)) is None:
            raise ConfigError(f"there is no column '{self.column}' to compare: {', '.join(COMPARED)}")
        operators = OPERATORS[:2] if wanted is str else OPERATORS
        if self.operator not in operators:
            listed = " ".join(operators)
            raise ConfigError(f"{self.column} cannot be compared by '{self.operator}', only by {listed}")
        if not isinstance(self.value, wanted):
            raise ConfigError(f"{self.column} is compared with a value of another type: {self.value!r:.60}")


class Tended(NamedTuple):
    """The result of :meth:`OutboxTable.tend_kept`.

    Attributes:
        deleted: How many records were deleted; those of a partition that was dropped do not count.
        more: Whether there is more to do, so that another call should come soon.
        faults: What could not be done, and is not done by a later call unless somebody helps: in words that
            stay the same from call to call.
        overdue: Whether records are kept that were to go more than a day ago; one of the faults says so.
    """

    deleted: int = 0
    more: bool = False
    faults: Sequence[str] = ()
    overdue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which kept records are meant; all conditions hold together.

    Attributes:
        key: The key, whole; ``None`` for any.
        topics: Patterns of topics with ``*`` and ``?``, of which one matches; none for any topic.
        since: Delivered then or later; with a time zone.
        until: Delivered before then; with a time zone.
        where: Conditions of columns.
        through: The greatest position; ``None`` for any.
        superseded: Whether superseded records are meant, too.
    """

    key: str | None = None
    topics: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    where: Sequence[Condition] = ()
    through: int | None = None
    superseded: bool = True


@dataclass(frozen=True, slots=True)
class Kept:
    """How much is kept.

    Attributes:
        records: How many records.
        keys: How many different hashes of their keys: of a few thousand keys, how many keys.
        bytes: The bytes of keys and values, about.
        without_value: Records whose value was left out.
        without_headers: Records whose headers were left out.
        first: The least position; 0 for no records.
        last: The greatest position; 0 for no records.
        since: When the first of them was delivered, in UTC; ``None`` for no records.
        until: When the last of them was delivered.
    """

    records: int = 0
    keys: int = 0
    bytes: int = 0
    without_value: int = 0
    without_headers: int = 0
    first: int = 0
    last: int = 0
    since: datetime | None = None
    until: datetime | None = None
