"""Creates the leader topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outbox_kafka_client.admin import KafkaAdmin

from outbox_neli_kafka.errors import driver_error

_TIMEOUT = 10.0
"""Seconds to wait for the broker."""

_CONFIG = {"retention.ms": "3600000"}
"""A heartbeat is of no use once it was read."""


def ensure_topic(settings: Mapping[str, Any], topic: str) -> KafkaAdmin:
    """Creates ``topic`` if it is missing, with one partition, replicated as the broker does by default.

    Returns:
        The admin client, connected to the broker.

    Raises:
        ConfigError: librdkafka refuses the settings.
        DriverError: The broker cannot be reached or refuses.
    """
    admin = KafkaAdmin(settings, driver_error)
    if topic not in admin.wait_for_cluster(_TIMEOUT).topics:
        admin.create_topics(
            [topic],
            1,
            _TIMEOUT,
            config=_CONFIG,
            what="cannot create leader topic",
            cure=(
                ", which is missing or hidden (grant CREATE on it, or create it with one partition and grant "
                "READ, WRITE and DESCRIBE)"
            ),
        )
    return admin
