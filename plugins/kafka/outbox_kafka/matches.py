"""Compares the rows of an attempt with what is in the log. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME
from outbox_api import Header, MarkedRecord

Key = tuple[str, bytes]
"""A topic, and the key of records in it."""


class LoggedRecord(NamedTuple):
    """A committed record of the log."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]


class Matches:
    """Which of an attempt's records have been seen in the log.

    Attributes:
        found: The records that have been seen.
        doubtful: Keys of which records have been seen that may be of others: only their content tells.
        repeated: Those of them of which the log has a record more often than the attempt.
        others: Keys of which the log has records that are not the attempt's.
    """

    def __init__(self, records: Sequence[MarkedRecord], time_ms: int, exact: Iterable[str]) -> None:
        """Starts without any.

        Args:
            records: The attempt's records, in the order in which they were published.
            time_ms: The timestamp of those that have none of their own.
            exact: The topics of which only that is seen that was written after the attempt began.
        """
        self.found: list[MarkedRecord] = []
        self.doubtful: set[Key] = set()
        self.repeated: set[Key] = set()
        self.others: set[Key] = set()
        self._time_ms = time_ms
        self._seen: set[tuple[Any, ...]] = set()  # contents and partitions of what has been seen
        self._exact = frozenset(exact)
        self._missing = {record.id: record for record in records}
        self._places = {record.id: place for place, record in enumerate(records)}
        self._wanted: dict[tuple[Any, ...], list[MarkedRecord]] = defaultdict(list)
        self._times: dict[tuple[Any, ...], set[int]] = defaultdict(set)
        for record in reversed(records):  # the first of equal ones is the last in its list
            content = _content(record)
            self._wanted[content].append(record)
            self._times[content].add(record.timestamp_ms or time_ms)
        self._keys = {key_of(record) for record in records}

    def concerns(self, topic: str, key: bytes) -> bool:
        """Returns whether the attempt has records of a key."""
        return (topic, key) in self._keys

    def see(self, seen: LoggedRecord) -> None:
        """Compares one record of the log; those of a partition come in its order."""
        key, content = (seen.topic, seen.key), (seen.topic, seen.key, seen.value, seen.headers)
        appended = seen.timestamp[0] == TIMESTAMP_LOG_APPEND_TIME
        if not (content in self._times and (appended or seen.timestamp[1] in self._times[content])):
            self.others.add(key)
            return
        waiting = self._wanted[content]
        fitting = (at for at in reversed(range(len(waiting))) if self._fits(waiting[at], seen, appended))
        if (at := next(fitting, None)) is not None:
            record = waiting.pop(at)
            del self._missing[record.id]
            self.found.append(record)
            self._seen.add((*content, record.partition))
        # The time is the attempt's alone. Equal rows of it that were purged are seen, and not missing.
        if appended or seen.timestamp[1] != self._time_ms:
            self.doubtful.add(key)
            if at is None or (appended and seen.topic not in self._exact):
                self.repeated.add(key)

    def _fits(self, record: MarkedRecord, seen: LoggedRecord, appended: bool) -> bool:
        timely = appended or seen.timestamp[1] == (record.timestamp_ms or self._time_ms)
        return timely and record.partition in {None, seen.partition}

    def has_equal(self, record: MarkedRecord) -> bool:
        """Returns whether a record has been seen that is equal to one that has not, partition included."""
        return (*_content(record), record.partition) in self._seen

    def place(self, record: MarkedRecord) -> int:
        """Returns how many records were published before one of the attempt."""
        return self._places[record.id]

    @property
    def complete(self) -> bool:
        """Whether all records have been seen."""
        return not self._missing

    @property
    def missing(self) -> Sequence[MarkedRecord]:
        """The records that have not been seen, in the order in which they were published."""
        return list(self._missing.values())


def key_of(record: MarkedRecord) -> Key:
    """Returns the topic and key of a record, as they are in the log."""
    return record.topic, octets(record.key) or b""


def octets(text: str | bytes | None) -> bytes | None:
    """Returns the bytes that Kafka keeps of a text, or of bytes.

    Of a text that is no UTF-8, and so was never published, it returns bytes that no text has.
    """
    return text.encode(errors="surrogatepass") if isinstance(text, str) else text


def _content(record: MarkedRecord) -> tuple[Any, ...]:
    headers = tuple(_headers(record.headers))
    return record.topic, octets(record.key), octets(record.value), headers


def _headers(headers: Iterable[Header]) -> Iterator[tuple[str, bytes | None]]:
    return ((name, octets(value)) for name, value in headers)
