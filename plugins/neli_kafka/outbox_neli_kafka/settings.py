"""From the user's settings to those of the election's clients, and from their errors to ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError
from outbox_sdk import AccessDenied, ConfigError, DriverError

from outbox_neli_kafka.options import NeliOptions

_RESERVED = {
    "group.id": "the group is named by leaderGroupID",
    "group.instance.id": "a static member keeps its place while it is gone, so nobody would take over",
    "group.protocol": "only the classic protocol lets the coordinator refuse a commit of a member it gave up",
    "partition.assignment.strategy": "any other would take leadership away whenever a standby joins",
    "enable.auto.commit": "a commit is the election's proof of leadership",
}
_HARMLESS = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": "false",
}
_SECRET = re.compile(r"password|secret|token|\.pem$|jaas|oauthbearer\.config")
_REFUSALS = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.SECURITY_DISABLED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes begin like this
    }
)


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the user's settings in the form that the client takes; those without a value are left out."""
    return {str(name): _text(value) for name, value in kafka.items() if value is not None}


def refuse_reserved(kafka: Mapping[str, Any]) -> None:
    """Makes sure that no setting contradicts the election.

    Raises:
        ConfigError: One does; the message says which and why.
    """
    for name, why in _RESERVED.items():
        value = kafka.get(name)
        if value is not None and str(_text(value)).lower() != _HARMLESS.get(name):
            raise ConfigError(f"Kafka setting '{name}' must not be set for the election: {why}; remove it")


def heartbeat_interval(options: NeliOptions) -> str:
    """Returns the milliseconds between two heartbeats of a member, unless the user has set them.

    A standby learns that the leader has left with the answer to its next heartbeat.
    """
    return str(min(200, round(options.session * 1000) // 3))


def consumer_settings(options: NeliOptions) -> dict[str, Any]:
    """Returns the settings of a member of the group."""
    session = round(options.session * 1000)
    defaults = {
        "client.id": f"{options.group}.neli",
        "heartbeat.interval.ms": heartbeat_interval(options),
        "log.connection.close": "false",
        "max.poll.interval.ms": str(session),
        "reconnect.backoff.max.ms": "1000",
        # A request that the network swallowed must not hold up the ones after it for longer than a session.
        "socket.timeout.ms": str(session),
    }
    forced = {
        "auto.offset.reset": "latest",
        "enable.auto.commit": "false",
        "group.id": options.group,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": str(session),
    }
    return defaults | client_settings(options.kafka) | forced


def heartbeat_settings(options: NeliOptions) -> dict[str, Any]:
    """Returns the settings of the producer of heartbeats: a late one is worth nothing."""
    defaults = {
        "client.id": f"{options.group}.neli",
        "log.connection.close": "false",
        "reconnect.backoff.max.ms": "1000",
    }
    forced = {
        "acks": "1",
        "delivery.timeout.ms": str(max(1, round(options.term * 1000))),
        "enable.idempotence": "false",
        "linger.ms": "0",
    }
    # Whatever the user wrote for publishing outbox records does not concern heartbeats.
    meant_for_records = {
        "compression.codec",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.timeout.ms",
        "queue.buffering.max.ms",
        "request.required.acks",
        "transactional.id",
    }
    user = {
        name: value for name, value in client_settings(options.kafka).items() if name not in meant_for_records
    }
    return defaults | user | forced


def config_error(message: str, settings: Mapping[str, Any]) -> ConfigError:
    """Makes an error of librdkafka's complaint about settings, free of their secrets."""
    return ConfigError(f"Kafka setting refused: {redact(message, settings)}")


def driver_error(what: str, error: KafkaError, settings: Mapping[str, Any]) -> DriverError:
    """Makes an error that says what failed and why, free of secrets."""
    message = f"{what}: {reason(error, settings)}"
    return AccessDenied(message) if is_refusal(error) else DriverError(message, retryable=True)


def is_refusal(error: KafkaError) -> bool:
    """Tells whether the broker refused on purpose, so that trying again is of no use."""
    return error.code() in _REFUSALS


def reason(error: KafkaError, settings: Mapping[str, Any]) -> str:
    """Returns what happened, for people: Kafka's own sentence and the name to search for."""
    return f"{redact(error.str(), settings)} ({error.name()})"


def redact(message: str, settings: Mapping[str, Any]) -> str:
    """Returns ``message`` with the value of every secret setting taken out."""
    for name, value in settings.items():
        if value and isinstance(value, str) and _SECRET.search(name):
            message = message.replace(value, "[redacted]")
    return message


def where(settings: Mapping[str, Any]) -> str:
    """Returns the addresses that the settings name, for messages."""
    return str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "(nowhere)")


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(str(_text(item)) for item in value)
    return value
