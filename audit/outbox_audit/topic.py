"""Reads all messages that are in a topic at this moment."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from enum import StrEnum
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from outbox_api import DriverError

SEQUENCE_HEADER = "Seq"
"""The header with a record's sequence, in decimal; ``outbox pump`` writes it."""


class Isolation(StrEnum):
    """Kafka's ``isolation.level``: whether a consumer sees messages of open and aborted transactions."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_LOG = logging.getLogger("outbox.kafka")

_BATCH_SIZE = 1000
_POLL_SECONDS = 0.05
"""Seconds to wait for a batch to be full: the last one of a topic never is."""
_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for the broker."""


def read_topic(
    kafka: Mapping[str, Any],
    topic: str,
    header: str = SEQUENCE_HEADER,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    idle_timeout: float = 30.0,
) -> Iterator[tuple[str, int | None]]:
    """Yields key and sequence of every message that is in the topic now, in the order of each partition.

    A key is text, empty if there is none. Joins no group and commits nothing. With ``read_committed`` it
    waits for open transactions, and a little longer for the messages of a transaction just committed.

    Args:
        kafka: librdkafka settings; ``bootstrap.servers`` at least.
        topic: The topic.
        header: The header with the sequence; a message without a whole number in it yields ``None``.
        isolation: Whether messages of aborted transactions are left out; overrides ``kafka``.
        idle_timeout: Seconds without a message after which it gives up.

    Raises:
        DriverError: The broker cannot be reached, the topic does not exist, or no message arrives in time.
    """
    # With read_committed a partition would end before its first open transaction.
    with _failing(topic), closing(_consumer(kafka, Isolation.READ_UNCOMMITTED)) as consumer:
        stretches = _stretches(consumer, topic)
    ends = {each.partition: end for each, end in stretches}
    with _failing(topic), closing(_consumer(kafka, isolation)) as consumer:
        consumer.assign([each for each, _ in stretches])
        for message in _read(consumer, topic, ends, idle_timeout):
            yield _key(message), _sequence(message, header)


@contextmanager
def _failing(topic: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise DriverError(f"cannot read topic '{topic}': {error.args[0].str()}", retryable=True) from error


def _consumer(kafka: Mapping[str, Any], isolation: Isolation) -> Consumer:
    own = {
        "group.id": "outbox-audit",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": str(isolation),
    }
    return Consumer({"auto.offset.reset": "error", **kafka, **own, "logger": _ClientLog()})


def _read(consumer: Consumer, topic: str, ends: dict[int, int], idle_timeout: float) -> Iterator[Message]:
    """Yields the messages before ``ends``, from which it removes the partitions that are read."""
    last = monotonic()
    while ends:
        messages = consumer.consume(_BATCH_SIZE, _POLL_SECONDS)
        for message in messages:
            partition, offset = _position(message, topic)
            end = ends.get(partition, 0)
            if message.error() is None and offset < end:
                yield message
            # The last offset before the end may be a transaction's control record, which is not a message.
            # Then PARTITION_EOF shows the end: it carries the next offset. PARTITION_EOF with a lower offset
            # means that a transaction is still open.
            if offset >= (end - 1 if message.error() is None else end):
                ends.pop(partition, None)
        now = monotonic()
        last = now if messages else last
        if now - last > idle_timeout:
            raise DriverError(
                f"topic '{topic}': no message for {idle_timeout:g} s "
                f"although partitions {sorted(ends)} are not read to the end; is a transaction still open?",
                retryable=True,
            )


class _ClientLog:
    """The logger of the client."""

    def log(self, level: int, template: str, facility: str, client: str, line: str) -> None:
        # The settings may contain some for producers, which a consumer ignores.
        _LOG.log(logging.DEBUG if facility == "CONFWARN" else level, template, facility, client, line)


def _stretches(consumer: Consumer, topic: str) -> list[tuple[TopicPartition, int]]:
    """Returns where each partition that is not empty begins, and its end."""
    found = consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
    if found.error is not None:
        raise DriverError(f"topic '{topic}': {found.error.str()}", retryable=False)
    wanted = []
    for partition in sorted(found.partitions):
        begin, end = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=_TIMEOUT_SECONDS
        )
        if end > begin:
            wanted.append((TopicPartition(topic, partition, begin), end))
    return wanted


def _position(message: Message, topic: str) -> tuple[int, int]:
    """Returns partition and offset of a message or of a ``PARTITION_EOF`` event."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public name
        raise DriverError(f"cannot read topic '{topic}': {error.str()}", retryable=error.retriable())
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:  # only an unsent message has none
        raise DriverError(f"topic '{topic}': a message without partition or offset", retryable=False)
    return partition, offset


def _key(message: Message) -> str:
    return (message.key() or b"").decode(errors="backslashreplace")


def _sequence(message: Message, header: str) -> int | None:
    headers = message.headers() or []
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if name == header and value is not None:
            try:
                return int(value)
            except ValueError:
                return None
    return None
