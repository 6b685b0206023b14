"""The checkpoint of a lane, a short text, stored as the metadata of a committed offset.

A transaction commits offsets of a consumer group atomically with its records, and a short text with each
offset. The group has the name of the lane's transactional id and no members, and the offset is always 0.
So the checkpoints need no storage of their own, and one request reads a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.errors import is_refusal
from outbox_sdk import AccessDenied, DriverError

from outbox_kafka.errors import reason

_TIMEOUT = 15.0
"""Seconds to wait for a checkpoint; the broker answers only once it has completed the transaction with it."""

_REQUEST_SECONDS = 2.0
"""Seconds of one request; the next one looks for the coordinator again, which may have moved."""

_RETRY_SECONDS = 0.05
"""Seconds between two requests."""


class CheckpointStore:
    """The consumer group and the topic whose offset carries the checkpoint of one lane.

    Attributes:
        name: The cluster's id, a slash, and the topic.
        group: The group's metadata, as a transactional producer needs it.
    """

    def __init__(self, settings: Mapping[str, Any], cluster: str, topic: str, group: str) -> None:
        """Reads the group's metadata from a consumer that is closed again at once.

        Args:
            settings: The user's settings.
            cluster: The id of the cluster that they connect to.
            topic: A topic that exists.
            group: The consumer group of this lane.
        """
        # The elector refuses static membership; here it would become part of the group's metadata.
        rest = {name: value for name, value in settings.items() if name != "group.instance.id"}
        # With read_committed the broker returns an offset only once no open transaction can change it.
        own = {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": "false"}
        self._settings = rest | own | {"client.id": f"{group}.checkpoint"}
        self._cluster = cluster
        self._topic = topic
        self.name = f"{cluster}/{topic}"
        consumer = self._consumer()
        self.group = consumer.consumer_group_metadata()
        consumer.close()

    def offsets(self, text: str) -> list[TopicPartition]:
        """Returns the offsets that a transaction commits so that ``text`` becomes the checkpoint."""
        return [TopicPartition(self._topic, 0, 0, text)]

    def read(self, location: str = "") -> str | None:
        """Returns the checkpoint that was committed last; ``None`` if the broker has none.

        Args:
            location: The name of another location of the same group; empty for this one.

        Raises:
            DriverError: The broker cannot be reached or refuses; or the location is in another cluster.
        """
        group = self._settings["group.id"]
        cluster, _, topic = (location or self.name).partition("/")
        if cluster != self._cluster:
            raise DriverError(
                f"the checkpoint of group '{group}' is in the Kafka cluster {cluster}, and this is "
                f"{self._cluster}. Run a harvester on that cluster once more and stop it gracefully; or, if "
                "that cluster is gone, run 'outbox fence forget', which takes its records for unpublished",
                retryable=False,
            )
        what = f"cannot read the checkpoint of group '{group}'"
        consumer = self._consumer()
        deadline = time.monotonic() + _TIMEOUT
        try:
            while True:
                try:
                    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=_REQUEST_SECONDS)
                    failure = found.error
                except KafkaException as error:
                    # Only the consumer's error event says why the group's coordinator cannot be found.
                    event = consumer.poll(0)
                    failure = (event and event.error()) or error.args[0]
                if failure is None:
                    return None if found.offset < 0 else found.metadata or ""
                message = f"{what}: {reason(failure, self._settings)}"
                if is_refusal(failure) or failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise AccessDenied(message)
                if time.monotonic() > deadline:
                    raise DriverError(message, retryable=True)
                time.sleep(_RETRY_SECONDS)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer({**self._settings, "logger": ClientLog(), "error_cb": lambda _error: None})
