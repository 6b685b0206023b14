"""Reads a checkpoint of an earlier version: the metadata of a committed offset.

Versions before 0.3 committed it with the records of a transaction, for a consumer group with the name of the
lane's transactional id and without members. Nothing writes it any more; a lane reads it once, when it takes
over from such a version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from outbox_kafka_client.errors import is_refusal
from outbox_sdk import AccessDenied, DriverError

from outbox_kafka.checkpoint_reader import checkpoint_consumer
from outbox_kafka.errors import reason

_TIMEOUT = 15.0
"""Seconds to wait for a checkpoint; the broker answers only once it has completed the transaction with it."""

_REQUEST_SECONDS = 2.0
"""Seconds of one request; the next one looks for the coordinator again, which may have moved."""

_RETRY_SECONDS = 0.05
"""Seconds between two requests."""


def read_former(settings: Mapping[str, Any], group: str, topic: str) -> str | None:
    """Returns the text that was committed last with the offset of partition 0; ``None`` if there is none.

    Args:
        settings: The user's settings.
        group: The consumer group.
        topic: The topic.

    Raises:
        DriverError: The broker cannot be reached or refuses.
    """
    # With read_committed the broker returns an offset only once no open transaction can change it.
    consumer = checkpoint_consumer(settings, group, "read_committed")
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
            message = f"cannot read the checkpoint of group '{group}': {reason(failure, settings)}"
            if is_refusal(failure) or failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise AccessDenied(message)
            if time.monotonic() > deadline:
                raise DriverError(message, retryable=True)
            time.sleep(_RETRY_SECONDS)
    finally:
        consumer.close()
