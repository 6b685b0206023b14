"""Creates topics that are missing, and looks up which topics this client may write to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    ClusterMetadata,
)
from outbox_kafka_client.admin import KafkaAdmin

from outbox_kafka.errors import driver_error

_TIMEOUT = 10.0
"""Seconds to wait for the broker."""

MOCK: Final = "librdkafka's mock of a broker neither fences producers nor hides aborted records"


def create_missing(settings: Mapping[str, Any], topics: Sequence[str], partitions: int) -> list[str]:
    """Creates those of ``topics`` that are missing, replicated as the broker does by default.

    Returns:
        The created topics, in the order given.

    Raises:
        DriverError: The broker cannot be reached or refuses.
    """
    admin = KafkaAdmin(settings, driver_error)
    existing = admin.wait_for_cluster(_TIMEOUT).topics
    missing = [topic for topic in dict.fromkeys(topics) if topic not in existing]
    return admin.create_topics(missing, partitions, _TIMEOUT)


def is_mock(cluster: ClusterMetadata) -> bool:
    """Returns whether the cluster is librdkafka's mock of one (``test.mock.num.brokers``)."""
    return str(cluster.cluster_id).startswith("mockCluster")


def unwritable(settings: Mapping[str, Any], topics: Collection[str]) -> set[str]:
    """Returns those of ``topics`` that this client may not write to, as far as the broker tells.

    Raises:
        DriverError: The broker cannot be reached.
    """
    admin = KafkaAdmin(settings, driver_error)
    futures = admin.client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=_TIMEOUT
    )
    refused = set()
    for topic, future in futures.items():
        try:
            granted = future.result().authorized_operations
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                refused.add(topic)
        else:
            if granted is not None and AclOperation.WRITE not in granted:
                refused.add(topic)
    return refused
