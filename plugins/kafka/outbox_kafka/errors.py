"""Classifies Kafka's errors: which a retry can cure, which blame a record, and what a user can do."""

# ruff: noqa: SLF001 - librdkafka spells the codes of its own errors with a leading underscore

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from confluent_kafka import KafkaError, Message
from outbox_api import AccessDenied, DriverError
from outbox_api.base.bounds import MESSAGE_TOO_LARGE

from outbox_kafka.client.clients import ClientLog
from outbox_kafka.client.errors import concerns_all_brokers, describe, is_refusal, one_of

is_missing_topic = one_of(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""The topic is missing, according to the broker or to the client's cache."""

may_be_outdated = one_of(
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION
)
"""The client says so by what it knows of the topic, and asks again only minutes later."""

is_invalid_timestamp = one_of(KafkaError.INVALID_TIMESTAMP)
"""The broker refuses the timestamp of the record, or of another one in its batch."""

is_permanent = one_of(
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError._BAD_MSG,
    KafkaError._INVALID_ARG,
    KafkaError._KEY_SERIALIZATION,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._VALUE_SERIALIZATION,
)
"""Sending the same record again cannot succeed."""

is_unsupported = one_of(
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
)
"""The brokers lack something that every record needs with the present settings."""

rejects_whole_batch = one_of(
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError._INVALID_DIFFERENT_RECORD,
)
"""The broker refused all records of a batch. Only one that is sent by itself shows whether it is at fault."""

is_secondary = one_of(
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.OPERATION_NOT_ATTEMPTED,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
    KafkaError._STATE,
)
"""The error only says that the record's transaction had failed before."""

is_purged = one_of(KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""The record was dropped because the sender was closed: its outcome is unknown."""

is_unauthorized = one_of(KafkaError.TOPIC_AUTHORIZATION_FAILED)
"""This client may not do that with the topic."""

_is_fenced = one_of(KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._FENCED)

_CREATE_TOPIC = "create the topic, or let the brokers create topics (auto.create.topics.enable)"
_CREATE_YOURSELF = (
    "the brokers do not permit a topic with these settings: create it with settings that they permit"
)
_CURES = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant READ on the group, best on all with the prefix 'outbox.'",
    KafkaError.INVALID_CONFIG: _CREATE_YOURSELF,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "set transaction.timeout.ms in the Kafka settings to at most the brokers' transaction.max.timeout.ms"
    ),
    KafkaError.POLICY_VIOLATION: _CREATE_YOURSELF,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on the topic",
    KafkaError.TOPIC_EXCEPTION: "topic names have 1 to 249 letters, digits, '.', '_' and '-'",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant WRITE and DESCRIBE on the transactional id, best on all with the prefix 'outbox.'"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: _CREATE_TOPIC,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "set compression.type to one that the brokers take, or to none",
    KafkaError._UNKNOWN_TOPIC: _CREATE_TOPIC,
    KafkaError._UNSUPPORTED_FEATURE: "outbox needs brokers that support it",
}
_NO_OFFSET = KafkaError(
    KafkaError._INCONSISTENT,
    "the client reports a delivery without an offset, so the record may not be in the log",
)


def delivery_error(error: KafkaError | None, message: Message) -> KafkaError | None:
    """Returns why a delivery report does not prove that the record is in the log; ``None`` if it does.

    The broker names the offset of what it has written. Without one, the client has only concluded that the
    record was written, because the broker took a later one of the same partition. A broker that does not know
    the producer takes any, so the conclusion may be wrong: the outcome is unknown.
    """
    if error is None and message.offset() is None:
        return _NO_OFFSET
    return error


def is_fatal(error: object) -> TypeGuard[KafkaError]:
    """Returns whether the client has failed for good; of a record that it refuses it says nothing else."""
    return isinstance(error, KafkaError) and (error.fatal() or error.code() == KafkaError._FATAL)


def is_unrecoverable(error: KafkaError) -> bool:
    """Returns whether a client with the same settings would meet the same error."""
    timeout = error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
    return timeout or is_unsupported(error) or is_refusal(error)


def reason(error: KafkaError, settings: Mapping[str, Any]) -> str:
    """Returns Kafka's sentence, the error's name, and a known cure, without the secrets in ``settings``."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return MESSAGE_TOO_LARGE  # a stasher says the same
    what = describe(error, settings)
    cure = _CURES.get(error.code())
    return f"{what}; {cure}" if cure else what


def driver_error(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    """Creates an error that says what failed and why, without the secrets in ``settings``."""
    message = f"{what}: {reason(error, settings)}"
    if is_refusal(error):
        return AccessDenied(message)
    return DriverError(message, retryable=not (is_permanent(error) or is_unsupported(error)))


def transaction_error(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    """Creates the error after which a transactional producer can only be closed."""
    why, name = reason(error, settings), settings["transactional.id"]
    if is_refusal(error) or is_unauthorized(error):
        return AccessDenied(f"{what}, as Kafka refuses '{name}': {why}")
    if _is_fenced(error):
        return DriverError(
            f"{what}: another producer has opened '{name}', or it took longer than transaction.timeout.ms "
            f"({why}); open a new sender",
            retryable=True,
        )
    return DriverError(f"{what}: {why}; open a new sender", retryable=True)


def log_client_error(log: ClientLog, settings: Mapping[str, Any], error: KafkaError) -> None:
    """Logs an error of the client itself: a warning if it concerns all brokers, else a debug message.

    The client's log lines already tell of errors of a single connection.
    """
    line = f"{settings['client.id']}: {reason(error, settings)}"
    if concerns_all_brokers(error):
        log.warn_once(line)
    else:
        log.debug(line)
