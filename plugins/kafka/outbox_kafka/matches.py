"""Compares the rows of an attempt with what is in the log. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from outbox_sdk import Header, MarkedRecord

Key = tuple[str, bytes]
"""A topic, and the key of records in it."""


class Seen(NamedTuple):
    """A committed record of the log.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        key: Its key; empty for none.
        value: Its value.
        headers: Its headers.
        timestamp: What kind of timestamp it has, as librdkafka's consumer says, and its milliseconds.
    """

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]


class Matches:
    """Which of an attempt's records have been seen in the log.

    Attributes:
        repeated: Keys of which the log has a record more often than the attempt, or not surely of it.
        others: Keys of which the log has records that are not the attempt's.
    """

    def __init__(self, records: Sequence[MarkedRecord], time_ms: int, exact: Iterable[str]) -> None:
        """Starts without any.

        Args:
            records: The attempt's records, in the order in which they were published.
            time_ms: The timestamp of those that have none of their own.
            exact: The topics of which only that is seen that was written after the attempt began.
        """
        self.repeated: set[Key] = set()
        self.others: set[Key] = set()
        self._time_ms = time_ms
        self._exact = frozenset(exact)
        self._missing = {record.id: record for record in records}
        self._found: dict[int, Key] = {}
        self._wanted: dict[tuple[Any, ...], list[MarkedRecord]] = defaultdict(list)
        for record in reversed(records):  # the first of equal ones is the last in its list
            content = (
                record.topic,
                octets(record.key),
                octets(record.value),
                tuple(_headers(record.headers)),
            )
            self._wanted[content].append(record)
        self._keys = {(record.topic, octets(record.key)) for record in records}

    def see(self, seen: Seen) -> None:
        """Compares one record of the log; those of a partition come in its order."""
        key = (seen.topic, seen.key)
        if key not in self._keys:
            return
        equal = self._wanted.get((*key, seen.value, seen.headers), ())
        appended = seen.timestamp[0] == TIMESTAMP_LOG_APPEND_TIME
        fitting = [
            record
            for record in equal
            if record.partition in {None, seen.partition}
            and (appended or seen.timestamp[1] == (record.timestamp_ms or self._time_ms))
        ]
        first = next((record for record in reversed(fitting) if record.id in self._missing), None)
        if first is not None:
            del self._missing[first.id]
            self._found[first.id] = key
        elif not fitting:
            self.others.add(key)
        # The time is the attempt's alone. Equal rows of it that were purged are seen, and not missing.
        ambiguous = fitting and (appended or fitting[0].timestamp_ms)
        if ambiguous and (first is None or (appended and seen.topic not in self._exact)):
            self.repeated.add(key)

    @property
    def complete(self) -> bool:
        """Whether all records have been seen."""
        return not self._missing

    @property
    def missing(self) -> Sequence[MarkedRecord]:
        """The records that have not been seen, in the order in which they were published."""
        return list(self._missing.values())

    @property
    def found(self) -> Iterator[tuple[int, Key]]:
        """The ids and keys of the records that have been seen."""
        return iter(self._found.items())


def key_of(record: MarkedRecord) -> Key:
    """Returns the topic and key of a record, as they are in the log."""
    return record.topic, octets(record.key) or b""


def octets(text: str | bytes | None) -> bytes | None:
    """Returns the bytes that Kafka keeps of a text, or of bytes.

    Of a text that is no UTF-8, and so was never published, it returns bytes that no text has.
    """
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text


def _headers(headers: Iterable[Header]) -> Iterator[tuple[str, bytes | None]]:
    return ((name, octets(value)) for name, value in headers)
