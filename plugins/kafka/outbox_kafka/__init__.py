"""Publishes outbox records to Kafka (driver ``kafka``)."""

from __future__ import annotations

from outbox_api import Driver, Publisher, hookimpl

from outbox_kafka.publisher import KafkaPublisher
from outbox_kafka.settings import KafkaOptions

__all__ = ["KafkaOptions", "KafkaPublisher", "outbox_publisher"]


@hookimpl
def outbox_publisher() -> Driver[Publisher]:
    """Offers the Kafka publisher."""
    return Driver(options=KafkaOptions, create=KafkaPublisher)
