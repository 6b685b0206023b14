"""Hands records to librdkafka's producer, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from outbox_sdk import Failure, MarkedRecord

from outbox_kafka.settings import redact
from outbox_kafka.verdict import is_permanent, reason

Report = Callable[[MarkedRecord, KafkaError | None, Message], None]
"""Takes a record and what became of it."""

_ANY_PARTITION = -1
_NOW = 0

_ASKING = 1.0
"""Seconds to ask the broker for a topic that the client takes for missing."""


def hand_over(
    producer: Producer,
    records: Sequence[MarkedRecord],
    report: Report,
    refuse: Callable[[MarkedRecord, Exception], None],
) -> int:
    """Hands over ``records`` in order, and returns without waiting how many were looked at.

    That is fewer than all of them once the client's queue is full.

    Args:
        producer: Where they go.
        records: What to send.
        report: Takes what became of each record that the client took, whenever it is polled.
        refuse: Takes a record that the client did not take, and its reason: a ``KafkaException``, or what
            Python raises for a value that fits into no message.
    """
    produce = producer.produce
    asked: set[str] = set()
    for index, record in enumerate(records):
        _, topic, key, value, headers, partition, timestamp, _ = record
        while True:
            try:
                produce(
                    topic,
                    value,
                    key,
                    _ANY_PARTITION if partition is None else partition,
                    partial(report, record),
                    None,
                    timestamp or _NOW,
                    (headers if type(headers) is list else list(headers)) if headers else None,
                )
            except BufferError:
                return index
            except (KafkaException, TypeError, ValueError, OverflowError) as error:
                if _is_unknown(error) and topic not in asked:
                    asked.add(topic)
                    _ask_for(topic, producer)
                    continue
                refuse(record, error)
            break
    return len(records)


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._UNKNOWN_TOPIC  # noqa: SLF001 - librdkafka's spelling


def _ask_for(topic: str, producer: Producer) -> None:
    """Makes the client look again: it refuses a topic by what it remembers, and it may exist by now."""
    with suppress(KafkaException):  # then what it remembers must do
        producer.list_topics(topic, timeout=_ASKING)


def failure(record: MarkedRecord, error: KafkaError | Exception, settings: Mapping[str, Any]) -> Failure:
    """Says what befell a record, free of the secrets in ``settings``.

    Args:
        record: The record.
        error: Kafka's error, or what Python raised for a value that fits into no message.
        settings: The producer's settings.
    """
    if isinstance(error, KafkaError):
        return Failure(record, redact(reason(error), settings), retryable=not is_permanent(error))
    return Failure(record, f"cannot be made into a message: {error}", retryable=False)
