"""Finds the last committed record of a key in a partition, from the partition's end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.clients import Consumer
from outbox_kafka_client.errors import describe, is_refusal
from outbox_sdk import AccessDenied, DriverError

from outbox_kafka.errors import is_missing_topic

_MISSING_SECONDS: Final = 5.0
"""Seconds until a partition that no broker knows is taken for deleted; a new one appears sooner."""

_REQUEST_SECONDS: Final = 2.0
"""Seconds of one request for the partition's end."""

_POLL_SECONDS: Final = 0.1
"""Seconds of one wait for records."""

_RETRY_SECONDS: Final = 0.05
"""Seconds between two requests."""

_NEAR: Final = 200
"""How many offsets before the end the first search begins; a transaction takes two."""

_FURTHER: Final = 10
"""How many times as far back each further search begins."""

_NOTHING: Final = KafkaError(KafkaError._TIMED_OUT, "a transaction is open")  # noqa: SLF001 - librdkafka's spelling
_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
_NO_PARTITION: Final = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001


def checkpoint_consumer(settings: Mapping[str, Any], lane: str, isolation: str) -> Consumer:
    """Creates a consumer that joins no group.

    Args:
        settings: The user's settings, and others.
        lane: The lane's transactional id, which names the client and the group.
        isolation: The isolation level.
    """
    rest = {name: value for name, value in settings.items() if name != "group.instance.id"}
    own = {
        "client.id": f"{lane}.checkpoint",
        "group.id": lane,
        "isolation.level": isolation,
        "enable.auto.commit": "false",
    }
    return Consumer({**rest, **own, "logger": ClientLog(), "error_cb": lambda _error: None})


class LastRecord:
    """Reads a partition backwards until it finds a committed record with a key."""

    def __init__(
        self, settings: Mapping[str, Any], partition: TopicPartition, key: str, timeout: float
    ) -> None:
        """Does not connect.

        Args:
            settings: The user's settings.
            partition: The partition; its topic may have been deleted.
            key: The key; the clients are named after it.
            timeout: Seconds until :meth:`read` gives up.
        """
        self._settings = settings
        self._partition = partition
        self._key = key
        self._deadline = time.monotonic() + timeout

    def read(self) -> str | None:
        """Returns the value of the last committed record with the key; ``None`` without such a record.

        Sees every transaction that was committed before the call. Waits for transactions of others that are
        open in the partition, because brokers show no committed record behind the beginning of one.

        Raises:
            DriverError: The broker cannot be reached or refuses, or a transaction stays open.
        """
        # With read_committed this would be the beginning of the first open transaction, and not the end.
        with closing(self._consumer("read_uncommitted")) as consumer:
            end = self._end(consumer)
        reach = _NEAR
        with closing(self._consumer("read_committed")) as consumer:
            while end:
                start = max(0, end - reach)
                found = self._search(consumer, start, end)
                if found is not None or not start:
                    return found
                reach *= _FURTHER
        return None

    def _consumer(self, isolation: str) -> Consumer:
        own = {
            "auto.offset.reset": "earliest",
            "enable.partition.eof": "true",
            "fetch.min.bytes": "1",
            "fetch.wait.max.ms": "10",  # for so long a broker waits before it reports the end
        }
        return checkpoint_consumer({**self._settings, **own}, self._key, isolation)

    def _end(self, consumer: Consumer) -> int:
        """Returns the offset behind the last record; 0 if the partition has been deleted."""
        missing = time.monotonic() + _MISSING_SECONDS
        while True:
            try:
                end: int = consumer.get_watermark_offsets(self._partition, timeout=_REQUEST_SECONDS)[1]
            except KafkaException as caught:
                error = caught.args[0]
            else:
                return end
            if (is_missing_topic(error) or error.code() == _NO_PARTITION) and time.monotonic() > missing:
                return 0
            # Only the consumer's error event says why the broker cannot be reached.
            event = consumer.poll(0)
            self._bear((event and event.error()) or error)
            time.sleep(_RETRY_SECONDS)

    def _search(self, consumer: Consumer, start: int, end: int) -> str | None:
        """Returns the value of the last committed record with the key between two offsets."""
        partition = self._partition
        consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
        key, found = self._key.encode(), None
        while True:
            message = consumer.poll(_POLL_SECONDS)
            error = _NOTHING if message is None else message.error()
            if message is None or (error is not None and error.code() != _EOF):
                self._bear(error or _NOTHING)
            # Neither compacted records, nor aborted ones, nor the ends of transactions are shown.
            elif (message.offset() or 0) >= end:
                return found
            elif error is None and message.key() == key:
                found = (message.value() or b"").decode()

    def _bear(self, error: KafkaError) -> None:
        """Raises an error that does not pass, or that has not passed in time."""
        topic, number = self._partition.topic, self._partition.partition
        message = (
            f"cannot read the checkpoint of '{self._key}' in partition {number} of topic '{topic}': "
            f"{describe(error, self._settings)}"
        )
        # No group is used, so that it needs no permission.
        refused = is_refusal(error) and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED
        if refused:
            raise AccessDenied(message)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise AccessDenied(f"{message}; grant READ on the topic")
        if time.monotonic() > self._deadline:
            raise DriverError(message, retryable=True)
