"""From the user's settings to those of a producer: what is forced, what is a default, what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outbox_sdk import ConfigError

from outbox_kafka.properties import nearest

_DEFAULTS: Mapping[str, object] = {
    "client.id": "outbox",
    "compression.type": "lz4",
    # Shorter than the election's session (10 s): a message of a leader that has lost its place must not
    # arrive after its successor has begun.
    "delivery.timeout.ms": 8000,
    # A record of a key waits for the one before it, so waiting costs more than small requests do; while
    # requests are under way the next ones fill up by themselves.
    "linger.ms": 0,
    # librdkafka's own default sends empty keys to random partitions, which would break their order.
    "partitioner": "consistent",
    # The lane bounds what is in flight; a second limit here could only get in its way (0 = no limit).
    "queue.buffering.max.messages": 0,
    # A topic that still does not exist after this long is reported as missing, well before the delivery
    # timeout would report it as merely late.
    "topic.metadata.propagation.max.ms": 5000,
    # The client's own default can wait 10 s before it tries a broker again, longer than a delivery may take.
    "reconnect.backoff.max.ms": 1000,
    # An idle connection that the broker closes is nothing to tell.
    "log.connection.close": False,
}
_ALIASES: Mapping[str, str] = {
    "acks": "request.required.acks",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
}
_SETTLING_MS = 7000
"""Milliseconds of a transaction in which no record is under way: for its marker and its end."""

_RETRY_MS = 1
"""Milliseconds before the second try, twice that before the third, and so on: a transaction is refused for as
long as the one before is not complete, usually a few milliseconds.
"""

_SECRET = re.compile(r"password|secret|token|\.pem$|jaas|oauthbearer\.config")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]*)"')
_REDACTED = "[redacted]"


def producer_settings(kafka: Mapping[str, Any], client_id: str | None = None) -> dict[str, Any]:
    """Returns the settings of a producer: the user's, our defaults, and idempotence.

    Args:
        kafka: The user's settings.
        client_id: Replaces the default ``client.id``.

    Raises:
        ConfigError: A setting contradicts what the order of records rests on.
    """
    settings = client_settings(kafka)
    for name, value in _DEFAULTS.items():
        if name not in settings and _ALIASES.get(name) not in settings:
            settings[name] = _text(value)
    if client_id and "client.id" not in kafka:
        settings["client.id"] = client_id
    _refuse_contradictions(settings)
    if settings["partitioner"] == "consistent_random":
        # The same for every key but the empty one, which it would scatter.
        settings["partitioner"] = "consistent"
    return settings | {"enable.idempotence": "true", "acks": "all"}


def transactional_settings(kafka: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the settings of a producer that sends in transactions.

    ``transaction.timeout.ms`` is the time for deliveries and a little more. Where a harvester dies and no
    other takes its place, readers of committed messages wait that long.

    Args:
        kafka: The user's settings.
        name: The transactional id.

    Raises:
        ConfigError: A setting contradicts what the order of records rests on, or transactions.
    """
    settings = producer_settings(kafka, client_id=name)
    if (trouble := timeouts_trouble(settings)) is not None:
        raise ConfigError(f"Kafka setting {trouble[0]}; {trouble[1]}")
    timeout_ms = transaction_timeout_ms(settings)
    # A client that has lost all connections would forget its brokers, and with them the marker that is on its
    # way: the call waits out the transaction's time. A sender that fails is opened anew, with all brokers.
    defaults = {"retry.backoff.ms": str(_RETRY_MS), "metadata.recovery.strategy": "none"} | settings
    # Only failures need to be known one by one; that the rest went through shows in what is left.
    own = {"transactional.id": name, "delivery.report.only.error": True}
    return defaults | own | {"transaction.timeout.ms": str(timeout_ms)}


def timeouts_trouble(producer: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns how a transaction may end before its deliveries do, and the cure; ``None`` if it may not.

    Args:
        producer: The settings of a producer, complete.
    """
    delivery = _delivery_timeout_name(producer)
    deliver_ms, timeout_ms = int(producer[delivery]), transaction_timeout_ms(producer)
    if 0 < deliver_ms < timeout_ms:
        return None
    what = (
        f"'transaction.timeout.ms' ({timeout_ms}) must be greater than '{delivery}' ({deliver_ms}, where 0 "
        "means no limit): a transaction must outlast its deliveries"
    )
    return what, "leave out the former, and keep the latter short"


def transaction_timeout_ms(producer: Mapping[str, Any]) -> int:
    """Returns how many milliseconds a transaction may take, given the complete settings of a producer."""
    delivery_ms = int(producer[_delivery_timeout_name(producer)])
    return int(producer.get("transaction.timeout.ms", delivery_ms + _SETTLING_MS))


def _delivery_timeout_name(settings: Mapping[str, Any]) -> str:
    return "delivery.timeout.ms" if "delivery.timeout.ms" in settings else "message.timeout.ms"


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the user's settings in the form that the client takes; those without a value are left out."""
    return {str(name): _text(value) for name, value in kafka.items() if value is not None}


def validate(settings: Mapping[str, Any]) -> None:
    """Makes sure that librdkafka knows every property and can read its value; opens nothing.

    Raises:
        ConfigError: It does not; the message names the property and, for an unknown one, the nearest.
    """
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - the client is imported late

    # The client reads the properties in order and stops at the first bad one. A last one that cannot be
    # right keeps it from going on to make a producer and its threads.
    probe = "outbox.probe"
    try:
        Producer({**settings, probe: ""})
    except KafkaException as error:
        message = error.args[0].str()
        if f'"{probe}"' not in message:
            raise config_error(message, settings) from None  # the cause may quote a secret
    except (TypeError, ValueError) as error:
        raise config_error(str(error), settings) from None  # the cause may quote a secret


def config_error(message: str, settings: Mapping[str, Any]) -> ConfigError:
    """Makes a readable error of librdkafka's complaint about settings, free of their secrets."""
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        return ConfigError(f"Kafka setting refused: {redact(message, settings)}")
    guess = nearest(unknown[1])
    hint = f"; did you mean '{guess}'?" if guess else "; see librdkafka's CONFIGURATION.md for the names"
    return ConfigError(f"unknown Kafka setting '{unknown[1]}'{hint}")


def redact(message: str, settings: Mapping[str, Any]) -> str:
    """Returns ``message`` with the value of every secret setting taken out."""
    for name, value in settings.items():
        if value and isinstance(value, str) and _SECRET.search(name):
            message = message.replace(value, _REDACTED)
    return message


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join(str(_text(item)) for item in value)
    return value


def _refuse_contradictions(settings: Mapping[str, Any]) -> None:
    if _lower(settings.get("enable.idempotence", "true")) not in ("true", "t", "1"):
        raise ConfigError(
            "Kafka setting 'enable.idempotence' must not be false: "
            "without it a retry inside the client can reorder or repeat records; remove the setting"
        )
    for name in ("acks", "request.required.acks"):
        if _lower(settings.get(name, "all")) not in ("all", "-1"):
            raise ConfigError(
                f"Kafka setting '{name}' must be 'all': a record is deleted from the outbox once it is "
                "acknowledged, so fewer acknowledgements can lose it; remove the setting"
            )
    if settings["partitioner"] == "random":
        raise ConfigError(
            "Kafka setting 'partitioner' must not be 'random': it scatters the records of a key over "
            "partitions, where they have no order; use 'consistent' or, like Java clients, 'murmur2_random'"
        )
    if _lower(settings.get("delivery.report.only.error", "false")) not in ("false", "f", "0"):
        raise ConfigError(
            "Kafka setting 'delivery.report.only.error' must not be true: records are deleted from the "
            "outbox on the report of their delivery, which it turns off; remove the setting"
        )
    if "transactional.id" in settings:
        raise ConfigError(
            "Kafka setting 'transactional.id' must not be set: every lane has a producer of its own, and "
            "producers that share the id fence one another; remove the setting"
        )


def _lower(value: object) -> str:
    return str(value).strip().lower()
