"""The partition and the time that a row, or a transform, gives a message; judged here, and nowhere else.

Clients of Kafka take some numbers for others than a search of the log does, and brokers refuse some, with the
batch that they are in. So ``-1``, which Kafka's protocol writes for *any partition* and *no time*, and which
tables have as a default, is as null. Of any other number that is none of a partition, or no time after the
beginning of 1970, no message is made.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from outbox_api.base.record import MarkedRecord
from outbox_api.seams.transform import Outgoing

Message = TypeVar("Message", MarkedRecord, Outgoing)

_NONE: Final = -1
_PARTITIONS: Final = range(2**31)
_TIMES: Final = range(1, 2**63)


def partition_of(value: Any) -> int | None:
    """Returns the partition that a value names, or ``None`` for any.

    Raises:
        ValueError: No partition can have it as its number.
    """
    if (number := _whole(value)) is None or number in _PARTITIONS:
        return number
    raise ValueError(f"the partition is {value!r:.40}; write its number, or null for any")


def timestamp_of(value: Any) -> int | None:
    """Returns the milliseconds since the epoch that a value names, or ``None`` for when the message is sent.

    Raises:
        ValueError: No message can have this time.
    """
    if (number := _whole(value)) is None or number in _TIMES:
        return number
    raise ValueError(f"the timestamp is {value!r:.40}; write milliseconds since 1970, more than 0, or null")


def placed(message: Message, partition: Any, timestamp: Any) -> Message:
    """Returns a message with a partition and a time.

    Raises:
        ValueError: No message can have them.
    """
    return message._replace(partition=partition_of(partition), timestamp_ms=timestamp_of(timestamp))


def placed_row(row: MarkedRecord, partition: Any, timestamp: Any) -> MarkedRecord:
    """Returns a row with a partition and a time; with a fault if no message can have them."""
    try:
        return placed(row, partition, timestamp)
    except ValueError as error:
        return row._replace(fault=row.fault or str(error))


def _whole(value: Any) -> int | None:
    """Returns a whole number, which some drivers return as text; -2 for what is none."""
    try:
        number = _NONE if value is None else int(value)
        if value is None or isinstance(value, str | bytes) or number == value:
            return None if number == _NONE else number
    except (ValueError, TypeError, OverflowError):
        pass  # the caller says so
    return -2
