"""Creates topics that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # the admin module has it too, but does not declare it
from outbox_sdk import DriverError

from outbox_kafka.client_log import ClientLog
from outbox_kafka.settings import config_error, redact
from outbox_kafka.verdict import is_permanent, is_refusal, reason

_REACH = 10.0
"""Seconds to wait for the broker."""

_BROKER_DEFAULT = -1


def admin_client(settings: Mapping[str, Any]) -> AdminClient:
    """Makes an admin client that logs to ``outbox.kafka``.

    Raises:
        ConfigError: librdkafka refuses the settings.
    """
    try:
        return AdminClient({**settings}, logger=ClientLog())
    except KafkaException as error:
        raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret


def create_missing(settings: Mapping[str, Any], topics: Sequence[str], partitions: int) -> list[str]:
    """Creates those of ``topics`` that are missing, replicated as the broker does by default.

    Returns:
        The topics created, in the order given.

    Raises:
        DriverError: The broker cannot be reached or refuses.
    """
    admin = admin_client(settings)
    try:
        existing = admin.list_topics(timeout=_REACH).topics
    except KafkaException as error:
        raise _driver_error(f"cannot reach Kafka at {_where(settings)}", error, settings) from error
    missing = [topic for topic in dict.fromkeys(topics) if topic not in existing]
    if not missing:
        return []
    wanted = [NewTopic(topic, partitions, _BROKER_DEFAULT) for topic in missing]
    created = []
    for topic, future in admin.create_topics(wanted, operation_timeout=_REACH).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _driver_error(f"cannot create topic '{topic}'", error, settings) from error
        else:
            created.append(topic)
    return created


def _driver_error(what: str, error: KafkaException, settings: Mapping[str, Any]) -> DriverError:
    kafka_error = error.args[0]
    permanent = is_permanent(kafka_error) or is_refusal(kafka_error)
    return DriverError(f"{what}: {redact(reason(kafka_error), settings)}", retryable=not permanent)


def _where(settings: Mapping[str, Any]) -> str:
    return str(
        settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "(no bootstrap.servers)"
    )
