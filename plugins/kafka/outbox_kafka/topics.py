"""Reaches the broker as an administrator, and creates topics that are missing."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AclOperation,
    AdminClient,
    ClusterMetadata,
    NewTopic,
)
from outbox_sdk import AccessDenied, DriverError

from outbox_kafka.client_log import ClientLog
from outbox_kafka.settings import config_error, redact
from outbox_kafka.verdict import is_permanent, is_refusal, reason

_REACH = 10.0
"""Seconds to wait for the broker."""

_SLICE = 0.5
"""Seconds of one attempt: between two, what went wrong with the connection can be seen."""

_PAUSE = 0.05
"""Seconds between two attempts."""

_BROKER_DEFAULT = -1

MOCK: Final = "librdkafka's mock of a broker neither fences producers nor hides aborted records"


class Administration:
    """An admin client that knows why it cannot reach the broker."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Makes the client; it logs to ``outbox.kafka``.

        Args:
            settings: The user's settings.

        Raises:
            ConfigError: librdkafka refuses the settings.
        """
        self._settings = settings
        self._troubles: list[KafkaError] = []
        try:
            self.client = AdminClient(dict(settings), error_cb=self._troubles.append, logger=ClientLog())
        except KafkaException as error:
            raise config_error(error.args[0].str(), settings) from None  # the cause may quote a secret

    def reach(self, timeout: float) -> ClusterMetadata:
        """Returns what the cluster consists of.

        Args:
            timeout: Seconds to try; a refusal ends it sooner.

        Raises:
            DriverError: The broker cannot be reached, or it refuses this client.
        """
        deadline = time.monotonic() + timeout
        while True:
            error = KafkaError(KafkaError.BROKER_NOT_AVAILABLE)
            try:
                cluster = self.client.list_topics(timeout=_SLICE)
                # A broker that has just come back may not count even itself among those that live.
                if cluster.brokers:
                    return cluster
            except KafkaException as caught:
                error = caught.args[0]
            self.client.poll(0)
            refusals = [trouble for trouble in self._troubles if is_refusal(trouble)]
            if refusals or time.monotonic() > deadline:
                what = f"cannot reach Kafka at {_where(self._settings)}"
                raise self.driver_error(what, (refusals or self._troubles or [error])[0])
            time.sleep(_PAUSE)

    def driver_error(self, what: str, error: KafkaError) -> DriverError:
        """Makes an error that says what failed and why, free of secrets."""
        message = f"{what}: {redact(reason(error), self._settings)}"
        if is_refusal(error):
            return AccessDenied(message)
        return DriverError(message, retryable=not is_permanent(error))


def create_missing(settings: Mapping[str, Any], topics: Sequence[str], partitions: int) -> list[str]:
    """Creates those of ``topics`` that are missing, replicated as the broker does by default.

    Returns:
        The topics created, in the order given.

    Raises:
        DriverError: The broker cannot be reached or refuses.
    """
    administration = Administration(settings)
    existing = administration.reach(_REACH).topics
    missing = [topic for topic in dict.fromkeys(topics) if topic not in existing]
    if not missing:
        return []
    wanted = [NewTopic(topic, partitions, _BROKER_DEFAULT) for topic in missing]
    created = []
    for topic, future in administration.client.create_topics(wanted, operation_timeout=_REACH).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise administration.driver_error(f"cannot create topic '{topic}'", error.args[0]) from error
        else:
            created.append(topic)
    return created


def ensure_marker_topic(settings: Mapping[str, Any], topic: str) -> str:
    """Creates the topic of the markers if it is missing, and makes sure that the broker does transactions.

    Returns:
        The cluster's id.

    Raises:
        DriverError: The broker cannot be reached or refuses, or does not do transactions.
    """
    cluster = Administration(settings).reach(_REACH)
    if is_mock(cluster):
        raise DriverError(f"{MOCK}: exactly-once delivery needs a real Kafka", retryable=False)
    if topic not in cluster.topics:
        create_missing(settings, [topic], 1)
    return str(cluster.cluster_id)


def is_mock(cluster: ClusterMetadata) -> bool:
    """Tells whether the cluster is librdkafka's mock of one (``test.mock.num.brokers``)."""
    return str(cluster.cluster_id).startswith("mockCluster")


def unwritable(settings: Mapping[str, Any], topics: Collection[str]) -> set[str]:
    """Returns those of ``topics`` that the broker does not let us write to, as far as it tells.

    Raises:
        DriverError: The broker cannot be reached.
    """
    administration = Administration(settings)
    futures = administration.client.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=_REACH
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


def _where(settings: Mapping[str, Any]) -> str:
    return str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "(nowhere)")
