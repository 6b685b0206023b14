"""Which of Kafka's errors sending again can cure."""

# ruff: noqa: SLF001 - librdkafka spells the codes of its own errors with a leading underscore

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError
from outbox_sdk import AccessDenied, DriverError

from outbox_kafka.settings import redact

_PERMANENT = frozenset(
    {
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
    }
)
_REFUSED = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.SECURITY_DISABLED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,
    }
)
_HOPELESS = frozenset(
    {
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
_FENCED = frozenset({KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._FENCED})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_BATCHWISE = _TOO_LARGE | {
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._INVALID_DIFFERENT_RECORD,
}
_COLLATERAL = frozenset(
    {
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OPERATION_NOT_ATTEMPTED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._STATE,
    }
)
_NO_TOPIC = "create the topic, or let the brokers create topics (auto.create.topics.enable)"
_CURES = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant READ on the group, best on all with the prefix 'outbox.'",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "set transaction.timeout.ms in the Kafka settings to at most the brokers' transaction.max.timeout.ms"
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "make the record smaller, or raise message.max.bytes in the Kafka settings "
        "and max.message.bytes of the topic"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on the topic",
    KafkaError.TOPIC_EXCEPTION: "topic names have 1 to 249 letters, digits, '.', '_' and '-'",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant WRITE and DESCRIBE on the transactional id, best on all with the prefix 'outbox.'"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
}
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def is_permanent(error: KafkaError) -> bool:
    """Tells whether sending the same record again cannot succeed."""
    return error.code() in _PERMANENT


def is_missing(error: KafkaError) -> bool:
    """Tells whether the topic is missing, or seems to be."""
    return error.code() in _MISSING


def is_refusal(error: KafkaError) -> bool:
    """Tells whether the broker refused this client as a whole, whatever it sends."""
    return error.code() in _REFUSED


def is_grave(error: KafkaError) -> bool:
    """Tells whether a client's own error concerns more than one connection."""
    return error.code() == KafkaError._ALL_BROKERS_DOWN or is_refusal(error)


def is_purged(error: KafkaError) -> bool:
    """Tells whether the record was dropped because the sender was closed: its outcome is unknown."""
    return error.code() in _PURGED


def is_collateral(error: KafkaError) -> bool:
    """Tells whether it says nothing of the record, only that its transaction had failed already."""
    return error.code() in _COLLATERAL


def is_untimely(error: KafkaError) -> bool:
    """Tells whether the broker does not take the timestamp of the record, or of another in its batch."""
    return error.code() == KafkaError.INVALID_TIMESTAMP


def blames_the_batch(error: KafkaError) -> bool:
    """Tells whether the broker refused all records of a batch; one that is sent by itself shows why.

    It does not say which of them make the batch too large, nor what is wrong with each of several.
    """
    return error.code() in _BATCHWISE


def is_fenced(error: KafkaError) -> bool:
    """Tells whether the broker takes no more from this producer, for the sake of a later one."""
    return error.code() in _FENCED


def is_hopeless(error: KafkaError) -> bool:
    """Tells whether a client that is opened in the same way again meets the same error."""
    return error.code() in _HOPELESS or is_refusal(error)


def ending(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    """Makes the error after which a transactional producer can only be closed, free of secrets.

    Args:
        what: What is known of its transaction.
        error: What befell it.
        settings: The producer's settings.
    """
    why, name = redact(reason(error), settings), settings["transactional.id"]
    if is_refusal(error) or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AccessDenied(f"{what}, as Kafka refuses '{name}': {why}")
    if is_fenced(error):
        return DriverError(
            f"{what}: somebody else has opened '{name}', or it took longer than transaction.timeout.ms "
            f"({why}); open a new sender",
            retryable=True,
        )
    return DriverError(f"{what}: {why}; open a new sender", retryable=True)


def reason(error: KafkaError) -> str:
    """Returns what happened, for people: Kafka's own sentence, the name to search for, and a known cure."""
    what = f"{error.str()} ({error.name()})"
    cure = _CURES.get(error.code())
    return f"{what}; {cure}" if cure else what
