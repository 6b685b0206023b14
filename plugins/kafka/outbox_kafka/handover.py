"""Hands records to librdkafka's producer, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from outbox_sdk import Failure, MarkedRecord

from outbox_kafka.gate import TopicGate
from outbox_kafka.known_topics import MISSING, Find, KnownTopics
from outbox_kafka.settings import redact
from outbox_kafka.verdict import is_permanent, reason

Report = Callable[[MarkedRecord, KafkaError | None, Message], None]
"""Takes a record and what became of it."""

_ANY_PARTITION = -1
_NOW = 0


def hand_over(
    producer: Producer,
    records: Sequence[MarkedRecord],
    report: Report,
    refuse: Callable[[MarkedRecord, Exception], None],
    gate: TopicGate | None = None,
) -> int:
    """Hands over ``records`` in order, and returns without waiting how many were looked at.

    That is fewer than all of them once the client's queue is full.

    Args:
        producer: Where they go.
        records: What to send.
        report: Takes what became of each record that the client took, whenever it is polled.
        refuse: Takes a record that the client did not take, and its reason: a ``KafkaException``, or what
            Python raises for a value that fits into no message.
        gate: Takes records whose topic is not known to exist; without it they go to the client, too.
    """
    produce = producer.produce
    there = frozenset[str]() if gate is None else gate.there
    for index, record in enumerate(records):
        _, topic, key, value, headers, partition, timestamp, _ = record
        if gate is not None and topic not in there:
            gate.take(record)
            continue
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
            refuse(record, error)
    return len(records)


def turn_away(
    known: KnownTopics, find: Find, records: Sequence[MarkedRecord], settings: Mapping[str, Any]
) -> list[Failure]:
    """Returns those records, the first of each key, whose topics do not exist; may wait for the broker.

    Args:
        known: What is known of topics; learns more.
        find: Asks the broker, here and now.
        records: What is to be sent.
        settings: The producer's settings, whose secrets stay out of the reasons.
    """
    unknown = {record.topic for record in records} - known.there
    if asked := {topic for topic in unknown if not known.is_missing(topic)}:
        known.heed(find(asked, set(filter(known.is_news, asked))))
    missing = set(filter(known.is_missing, unknown))
    found: dict[str, Failure] = {}
    for record in records if missing else ():
        if record.topic in missing and record.key not in found:
            may_come = known.may_come(record.topic)
            found[record.key] = replace(failure(record, MISSING, settings), retryable=may_come)
    return list(found.values())


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
