"""The checkpoint of a lane: the batches that are in the log, stored as the metadata of a committed offset.

A transaction commits offsets of a consumer group atomically with its records, and a short text with each
offset. The group has the name of the lane's transactional id and no members, and the offset is always 0.
So the checkpoints need no storage of their own, and one request reads a checkpoint.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.errors import is_refusal
from outbox_sdk import AccessDenied, Batch, DriverError

from outbox_kafka.errors import reason

MAX_LENGTH: Final = 4096
"""Characters that a broker stores with an offset, unless its ``offset.metadata.max.bytes`` says otherwise."""

_VERSION = "1"
"""The version of the notation; the first word of each checkpoint."""

_BATCH = re.compile(r"([0-9a-f]{32}):(-?[0-9]+):(-?[0-9]+)")
_TIMEOUT = 15.0
"""Seconds to wait for a checkpoint; the broker answers only once it has completed the transaction with it."""

_REQUEST_SECONDS = 2.0
"""Seconds of one request; the next one looks for the coordinator again, which may have moved."""

_RETRY_SECONDS = 0.05
"""Seconds between two requests."""


def encode(batches: Sequence[Batch]) -> str:
    """Returns the text of a checkpoint, in ASCII; it is not empty even without batches.

    Raises:
        ValueError: There are more batches than a checkpoint can hold, which is at least 50.
    """
    text = f"{_VERSION} " + ",".join(f"{batch.leader_id.hex}:{batch.first}:{batch.last}" for batch in batches)
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"{len(batches)} batches make a checkpoint of {len(text)} characters, {MAX_LENGTH} fit"
        )
    return text


def decode(text: str) -> list[Batch]:
    """Returns the batches of a text from :func:`encode`.

    Raises:
        ValueError: It is no such text.
    """
    version, _, rest = text.partition(" ")
    if version != _VERSION:
        raise ValueError(f"it has the version {version!r}")
    batches = []
    for part in rest.split(",") if rest else []:
        match = _BATCH.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} names no batch")
        batches.append(Batch(UUID(match[1]), int(match[2]), int(match[3])))
    return batches


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

    def read(self, location: str = "") -> list[Batch] | None:
        """Returns the checkpoint that was committed last; ``None`` if the broker has none.

        Args:
            location: The name of another location of the same group; empty for this one.

        Raises:
            DriverError: The broker cannot be reached or refuses; what it stores is not a checkpoint; or the
                location is in another cluster.
        """
        group = self._settings["group.id"]
        cluster, _, topic = (location or self.name).partition("/")
        if cluster != self._cluster:
            raise DriverError(
                f"the checkpoint of group '{group}' is in the Kafka cluster {cluster}, and this is "
                f"{self._cluster}. Run a harvester on that cluster once more and stop it gracefully; or, if "
                "that cluster is gone, run 'outbox fence forget', which treats marked records as unpublished",
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
                    return None if found.offset < 0 else decode(found.metadata or "")
                message = f"{what}: {reason(failure, self._settings)}"
                if is_refusal(failure) or failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise AccessDenied(message)
                if time.monotonic() > deadline:
                    raise DriverError(message, retryable=True)
                time.sleep(_RETRY_SECONDS)
        except ValueError as error:
            message = f"{what}: {error}; was it written by another version of outbox?"
            raise DriverError(message, retryable=False) from error
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer({**self._settings, "logger": ClientLog(), "error_cb": lambda _error: None})
