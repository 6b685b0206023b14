"""The consumers' side of an audit: everything that a topic holds at this moment."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from enum import StrEnum
from time import monotonic
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from outbox_sdk import DriverError

SEQUENCE_HEADER = "Seq"
"""The header that carries a record's sequence in decimal; what ``outbox pump`` writes too."""


class Isolation(StrEnum):
    """What a consumer is shown of transactions, named as Kafka's ``isolation.level``."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


_LOG = logging.getLogger("outbox.kafka")

_BATCH = 1000
_GLANCE = 0.5
_REACH = 10.0
"""Seconds to wait for the broker."""


def read_topic(
    kafka: Mapping[str, Any],
    topic: str,
    header: str = SEQUENCE_HEADER,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    patience: float = 30.0,
) -> Iterator[tuple[str, int | None]]:
    """Yields key and sequence of every message that is in the topic now, each partition in its order.

    Joins no group and commits nothing. A reader of committed messages waits for transactions that have not
    ended yet, even for one that is committed already: its messages may be shown a little later.

    Args:
        kafka: librdkafka settings; ``bootstrap.servers`` at least.
        topic: The topic.
        header: The header with the sequence; a message without a whole number in it yields ``None``.
        isolation: Whether messages of aborted transactions are left out; counts more than ``kafka``.
        patience: Seconds without a message after which reading is given up.

    Raises:
        DriverError: The broker cannot be reached, the topic does not exist, or messages fail to come.
    """
    try:
        # To a reader of committed messages a topic ends before the first transaction that has not ended.
        with closing(_consumer(kafka, Isolation.READ_UNCOMMITTED)) as consumer:
            ends = _ends(consumer, topic)
        with closing(_consumer(kafka, isolation)) as consumer:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
            for message in _read(consumer, topic, ends, patience):
                yield _key(message), _sequence(message, header)
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


def _read(consumer: Consumer, topic: str, ends: dict[int, int], patience: float) -> Iterator[Message]:
    """Yields the messages before the ends of the partitions; forgets the ends that it has come to."""
    last = monotonic()
    while ends:
        messages = consumer.consume(_BATCH, _GLANCE)
        for message in messages:
            partition, offset = _place(message, topic)
            end = ends.get(partition, 0)
            if message.error() is None and offset < end:
                yield message
            # What stands before the end may be the marker of a transaction, which is no message: then either
            # a later message or the client's word that nothing more is there tells of the end. That word
            # bears the offset behind; before the end it means that a transaction is still open.
            if offset >= (end - 1 if message.error() is None else end):
                ends.pop(partition, None)
        now = monotonic()
        last = now if messages else last
        if now - last > patience:
            raise DriverError(
                f"topic '{topic}': no message for {patience:g} s although partitions {sorted(ends)} have not "
                "been read to their ends; is a transaction still open?",
                retryable=True,
            )


class _ClientLog:
    """What the client takes as its logger."""

    def log(self, level: int, template: str, facility: str, client: str, line: str) -> None:
        """Logs one line of librdkafka's."""
        # A harvest's settings are meant for producers too; that a consumer ignores theirs is intended.
        _LOG.log(logging.DEBUG if facility == "CONFWARN" else level, template, facility, client, line)


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """Returns partition → the offset behind its last message, of those partitions that are not empty."""
    found = consumer.list_topics(topic, timeout=_REACH).topics[topic]
    if found.error is not None:
        raise DriverError(f"topic '{topic}': {found.error.str()}", retryable=False)
    ends = {}
    for partition in found.partitions:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_REACH)
        if end > first:
            ends[partition] = end
    return ends


def _place(message: Message, topic: str) -> tuple[int, int]:
    """Returns partition and offset of a message, or of the end of its partition."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's public name
        raise DriverError(f"cannot read topic '{topic}': {error.str()}", retryable=error.retriable())
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:  # only a message that was never sent has neither
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
