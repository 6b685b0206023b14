"""Which of Kafka's errors sending again can cure."""

# ruff: noqa: SLF001 - librdkafka spells the codes of its own errors with a leading underscore

from __future__ import annotations

from confluent_kafka import KafkaError

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
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.SECURITY_DISABLED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,
    }
)
_NO_TOPIC = "create the topic, or let the brokers create topics (auto.create.topics.enable)"
_CURES = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "make the record smaller, or raise message.max.bytes in the Kafka settings "
        "and max.message.bytes of the topic"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on the topic",
    KafkaError.TOPIC_EXCEPTION: "topic names have 1 to 249 letters, digits, '.', '_' and '-'",
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
}
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


def is_permanent(error: KafkaError) -> bool:
    """Tells whether sending the same record again cannot succeed."""
    return error.code() in _PERMANENT


def is_refusal(error: KafkaError) -> bool:
    """Tells whether the broker refused this client as a whole, whatever it sends."""
    return error.code() in _REFUSED


def is_grave(error: KafkaError) -> bool:
    """Tells whether a client's own error concerns more than one connection."""
    return error.code() == KafkaError._ALL_BROKERS_DOWN or is_refusal(error)


def is_purged(error: KafkaError) -> bool:
    """Tells whether the record was dropped because the sender was closed: its outcome is unknown."""
    return error.code() in _PURGED


def reason(error: KafkaError) -> str:
    """Returns what happened, for people: Kafka's own sentence, the name to search for, and a known cure."""
    what = f"{error.str()} ({error.name()})"
    cure = _CURES.get(error.code())
    return f"{what}; {cure}" if cure else what
