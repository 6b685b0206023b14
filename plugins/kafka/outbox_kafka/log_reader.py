"""Reads ranges of partitions, and finds the last record of a key from a partition's end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from outbox_api import AccessDenied, DriverError

from outbox_kafka.client.clients import ClientLog, Consumer
from outbox_kafka.client.errors import describe, is_refusal
from outbox_kafka.errors import is_missing_topic

log = logging.getLogger("outbox.kafka")

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"

_MISSING_SECONDS: Final = 5.0
"""Seconds until a partition that no broker knows is taken for deleted; a new one appears sooner."""

_REQUEST_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.1
_POLL_RECORDS: Final = 1000
_RETRY_SECONDS: Final = 0.05
_PROGRESS_SECONDS: Final = 5.0
"""Seconds between two lines of the log that say how far a read is."""

_NEAR: Final = 200
"""How many offsets before the end the first search begins; a transaction takes two."""

_FURTHER: Final = 10
"""How many times as far back each further search begins."""

_OPEN: Final = KafkaError(KafkaError._TIMED_OUT, "a transaction is open")  # noqa: SLF001 - librdkafka's spelling
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
_NO_PARTITION: Final = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001

Partition = tuple[str, int]


class Range(NamedTuple):
    """The offsets from ``start`` up to ``end``, which is not among them."""

    start: int
    end: int


class OpenTransactionError(DriverError):
    """Partitions show nothing behind the beginning of a transaction, which does not end."""

    def __init__(self, message: str, places: Sequence[Partition]) -> None:
        super().__init__(message, retryable=True)
        self.places = places


class _Progress:
    """How far a read is, and since when it has not moved."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._began = self._said = self.moved = time.monotonic()
        self._records = 0
        self._offsets: dict[Partition, int] = {}

    def reached(self, place: Partition, offset: int, records: int) -> None:
        """Notes one record or none at an offset."""
        if self._offsets.get(place) != offset:  # the end of a partition is said again and again
            self._offsets[place], self.moved = offset, time.monotonic()
        self._records += records

    def say(self, left: int) -> None:
        """Logs from time to time how far the read is."""
        if time.monotonic() - self._said > _PROGRESS_SECONDS:
            self._said = time.monotonic()
            words = "%s: has read %d records of the log in %.0f s; %d partitions are left"
            log.info(words, self._lane, self._records, self._said - self._began, left)


class LogReader:
    """Reads what other clients have written, without a group; used by one thread at a time."""

    def __init__(self, settings: Mapping[str, Any], lane: str, timeout: float) -> None:
        """Does not connect. A read fails after ``timeout`` seconds without progress."""
        self._settings = settings
        self._lane = lane
        self._timeout = timeout

    def read(self, ranges: Mapping[Partition, Range], isolation: str) -> Iterator[Message]:
        """Yields the records of ranges, in the order of each partition.

        With ``COMMITTED``, it yields neither aborted records nor open ones, and waits for transactions that
        are open in a range: brokers show no committed record behind the beginning of one. After too long it
        raises an ``OpenTransactionError``.
        """
        rest = {place: range_ for place, range_ in ranges.items() if range_.start < range_.end}
        if not rest:
            return
        with closing(self._consumer(isolation)) as consumer:
            consumer.assign([TopicPartition(*place, range_.start) for place, range_ in rest.items()])
            progress = _Progress(self._lane)
            while rest:
                for message in _poll(consumer):
                    place, offset = (str(message.topic()), message.partition() or 0), message.offset() or 0
                    error = message.error()
                    if error is not None and error.code() != _EOF:
                        self._bear(error, place, since=progress.moved)
                    elif place in rest:
                        records = int(error is None)
                        progress.reached(place, offset, records)
                        # Neither compacted records, nor aborted ones, nor ends of transactions are shown.
                        if records and offset < rest[place].end:
                            yield message
                        if offset + records >= rest[place].end:
                            del rest[place]
                            consumer.incremental_unassign([TopicPartition(*place)])
                if rest and time.monotonic() - progress.moved > self._timeout:
                    raise OpenTransactionError(self._message(_OPEN, next(iter(rest))), list(rest))
                progress.say(len(rest))

    def last(self, topic: str, number: int, key: str, is_wanted: Callable[[Message], bool]) -> Message | None:
        """Returns the last record with a key in a partition, committed or not, for which ``is_wanted``.

        Sees every record that was acknowledged before the call. ``None`` without such a record, or if the
        partition has been deleted.
        """
        for ending in self._endings(topic, number):
            found = None
            for message in ending:
                if message.key() == key.encode() and is_wanted(message):
                    found = message
            if found is not None:
                return found
        return None

    def since(self, topic: str, number: int, is_first: Callable[[Message], bool]) -> list[Message]:
        """Returns the last record for which ``is_first``, and all behind it, committed or not.

        All of the partition without such a record. Sees what :meth:`last` sees.
        """
        found = list[Message]()
        for ending in self._endings(topic, number):
            found, begun = [], False
            for message in ending:
                if is_first(message):
                    found, begun = [], True
                found.append(message)
            if begun:
                break
        return found

    def _endings(self, topic: str, number: int) -> Iterator[Iterator[Message]]:
        """Yields ever longer ends of a partition, the last of which is all of it."""
        end, reach = self._end(topic, number), _NEAR
        start = end
        while start:
            start = max(0, end - reach)
            yield self.read({(topic, number): Range(start, end)}, UNCOMMITTED)
            reach *= _FURTHER

    def _consumer(self, isolation: str) -> Consumer:
        rest = {name: value for name, value in self._settings.items() if name != "group.instance.id"}
        own = {
            "auto.offset.reset": "earliest",
            "client.id": f"{self._lane}.reader",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "fetch.min.bytes": "1",
            "fetch.wait.max.ms": "10",  # for so long a broker waits before it reports the end
            "group.id": self._lane,
            "isolation.level": isolation,
            "queued.max.messages.kbytes": "16384",
        }
        return Consumer({**rest, **own, "logger": ClientLog(), "error_cb": lambda _error: None})

    def _end(self, topic: str, number: int) -> int:
        """Returns the offset behind the last record of all; 0 if the partition has been deleted."""
        began = time.monotonic()
        # A consumer of committed records would return the beginning of the first open transaction.
        with closing(self._consumer(UNCOMMITTED)) as consumer:
            while True:
                try:
                    place = TopicPartition(topic, number)
                    end: int = consumer.get_watermark_offsets(place, timeout=_REQUEST_SECONDS)[1]
                except KafkaException as caught:
                    error = caught.args[0]
                else:
                    return end
                missing = is_missing_topic(error) or error.code() == _NO_PARTITION
                if missing and time.monotonic() - began > _MISSING_SECONDS:
                    return 0
                # Only the consumer's error event says why the broker cannot be reached.
                event = consumer.poll(0)
                self._bear((event and event.error()) or error, (topic, number), since=began)
                time.sleep(_RETRY_SECONDS)

    def _bear(self, error: KafkaError, place: Partition, *, since: float) -> None:
        """Raises an error that does not pass, or that has not passed in time."""
        message = self._message(error, place)
        # No group is used, so that it needs no permission.
        refused = is_refusal(error) and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED
        if refused:
            raise AccessDenied(message)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise AccessDenied(f"{message}; grant READ on the topic")
        if time.monotonic() - since > self._timeout:
            raise DriverError(message, retryable=True)

    def _message(self, error: KafkaError, place: Partition) -> str:
        why = describe(error, self._settings)
        return f"'{self._lane}' cannot read partition {place[1]} of topic '{place[0]}': {why}"


def _poll(consumer: Consumer) -> list[Message]:
    """Waits for a message, and returns all that have come."""
    first = consumer.poll(_POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(_POLL_RECORDS, 0)]
