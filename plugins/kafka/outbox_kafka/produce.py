"""Hands records to librdkafka's producer, in order; one to a request where a broker has refused a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import Failure, Header, MarkedRecord
from outbox_api.base.bounds import is_topic

from outbox_kafka.client.clients import ClientLog, Producer
from outbox_kafka.errors import is_permanent, reason
from outbox_kafka.topic_cache import MISSING_TOPIC, LookUp, TopicCache, TopicStatus
from outbox_kafka.topic_lookup import TopicLookup

OnDelivery = Callable[[MarkedRecord, KafkaError | None, Message], None]
_NO_NAME = KafkaError(KafkaError.TOPIC_EXCEPTION)
_NO_ANSWER = "the brokers did not say in time whether its topic exists"
_ANY_PARTITION = -1
_NOW = 0


def produce(
    producer: Producer,
    records: Sequence[MarkedRecord],
    on_delivery: OnDelivery,
    on_refused: Callable[[MarkedRecord, Exception], None],
    lookup: TopicLookup | None = None,
    *,
    now_ms: int = _NOW,
) -> int:
    """Hands ``records`` to the producer in order; does not wait.

    Args:
        producer: The producer.
        records: The records.
        on_delivery: Receives each record that the client accepted, and its delivery report, during ``poll``.
        on_refused: Receives a record that the client refused, and why: a ``KafkaException``, or what Python
            raises for a value that does not fit into a message.
        lookup: Receives records whose topic is not known to exist; without it, the client receives them.
        now_ms: The timestamp of records without one of their own, in milliseconds since the epoch; 0 for the
            client's clock.

    Returns:
        How many records were handled: fewer than all of them if the client's queue is full.
    """
    send = producer.produce
    existing = frozenset[str]() if lookup is None else lookup.existing
    for index, record in enumerate(records):
        _, topic, key, value, headers, partition, timestamp, _, _ = record
        if lookup is not None and topic not in existing:
            if is_topic(topic):
                lookup.add(record)
            else:
                on_refused(record, KafkaException(_NO_NAME))
            continue
        try:
            send(
                topic,
                value,
                key,
                _ANY_PARTITION if partition is None else _named(partition),
                partial(on_delivery, record),
                None,
                now_ms if timestamp is None else _present(timestamp),
                _whole(headers) if headers else None,
            )
        except BufferError:
            return index
        except Exception as error:  # noqa: BLE001 - whatever one record causes concerns no other
            on_refused(record, error)
    return len(records)


def _named(partition: int) -> int:
    """Returns a partition that the client takes for itself."""
    if partition < 0:
        raise ValueError("Kafka's client takes a negative partition for any")
    return partition


def _present(timestamp_ms: int) -> int:
    """Returns a timestamp that arrives as it is."""
    if timestamp_ms <= 0:
        raise ValueError("Kafka's clients and brokers take a timestamp of 0 or less for another, or none")
    return timestamp_ms


def _whole(headers: Sequence[Header]) -> list[Header]:
    """Returns headers that arrive as they are: the client cuts texts at NUL, and bytes it does not."""
    cut = False
    for name, value in headers:
        if "\0" in name:
            raise ValueError("Kafka's client cuts the name of a header at NUL")
        if not name.isascii():
            name.encode()
        cut = cut or (value.__class__ is str and "\0" in value)
    if cut:
        return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]
    return headers if type(headers) is list else list(headers)


def missing_topic_failures(
    cache: TopicCache, look_up: LookUp, records: Sequence[MarkedRecord], settings: Mapping[str, Any]
) -> list[Failure]:
    """Returns the records whose topics do not exist, the first of each key; may wait for the broker.

    A topic of which the broker says nothing makes its record a suspect: the client would wait for the topic,
    and all others of the transaction with it.
    """
    unknown = {record.topic for record in records} - cache.existing
    unnamed = {topic for topic in unknown if not is_topic(topic)}
    unknown -= unnamed
    silent = set[str]()
    if topics := {topic for topic in unknown if not cache.is_missing(topic)}:
        statuses = look_up(topics, set(filter(cache.is_worth_waiting_for, topics)))
        cache.update(statuses)
        silent = {topic for topic, status in statuses.items() if status is TopicStatus.UNKNOWN}
    missing = set(filter(cache.is_missing, unknown))
    failures: dict[str, Failure] = {}
    for record in records if missing or unnamed or silent else ():
        if record.key in failures:
            continue
        if record.topic in unnamed:
            failures[record.key] = failure(record, _NO_NAME, settings)
        elif record.topic in missing:
            may_appear = cache.may_appear(record.topic)
            failures[record.key] = replace(failure(record, MISSING_TOPIC, settings), retryable=may_appear)
        elif record.topic in silent:
            failures[record.key] = Failure(record, _NO_ANSWER, retryable=True, suspect=True)
    return list(failures.values())


def failure(record: MarkedRecord, error: KafkaError | Exception, settings: Mapping[str, Any]) -> Failure:
    """Creates the failure of a record."""
    if isinstance(error, KafkaError):
        return Failure(record, reason(error, settings), retryable=not is_permanent(error))
    return Failure(record, f"cannot be made into a message: {error}", retryable=False)


def unbatched_producer(settings: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> Producer:
    """Opens a second producer, which sends batches of one record.

    A broker compares the size of whole batches with its limit, and refuses every record of a batch that is
    too large. Only a record that is refused by itself is at fault.
    """
    rest = {name: value for name, value in settings.items() if name != "queue.buffering.max.ms"}
    own = {"batch.num.messages": "1", "linger.ms": "0", "client.id": f"{settings['client.id']}.unbatched"}
    return Producer({**rest, **own, "logger": ClientLog(), "error_cb": on_error})
