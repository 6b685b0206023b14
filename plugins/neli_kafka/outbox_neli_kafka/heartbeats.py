"""The leader's heartbeat records on the topic of the election.

In goharvest a heartbeat that is read back proves that its sender leads (docs/algorithm.md, N4). Here the
coordinator's confirmation is the proof: the coordinator decides who leads, while a former leader can still
write and read. Heartbeats are for observers of the topic; the log warns if the leader cannot read its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaException
from outbox_kafka_client.client_log import ClientLog
from outbox_kafka_client.clients import Producer
from outbox_sdk import OutboxError


class Heartbeats:
    """Sends this process's heartbeats and recognizes them; used by one thread.

    Times are seconds on the caller's clock.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, name: str, log: ClientLog) -> None:
        """Stores the settings; connects with the first heartbeat.

        Args:
            settings: The settings of the producer.
            topic: The topic of the heartbeats.
            name: The group, which becomes their key.
            log: Receives warnings.
        """
        self._settings = settings
        self._topic = topic
        self._key = name
        self._log = log
        self._producer: Producer | None = None
        self._id = uuid4().hex
        self._count = 0
        self._received_at: float | None = None

    def begin(self, now: float) -> None:
        """Starts the heartbeats of a new leadership."""
        self._id = uuid4().hex
        self._received_at = now

    def send(self, now: float, timeout: float) -> None:
        """Sends a heartbeat, and warns if none has come back for ``timeout`` seconds; does not wait."""
        if self._received_at is not None and now - self._received_at > timeout:
            self._log.warn_once(
                f"heartbeats do not come back from topic '{self._topic}', although the coordinator confirms "
                "this leader; check that its partition is online and that writing to it is granted"
            )
        self._count += 1
        try:
            if self._producer is None:
                ignore = lambda _error: None  # noqa: E731 - the log reports lost connections
                self._producer = Producer({**self._settings, "logger": self._log, "error_cb": ignore})
            self._producer.produce(self._topic, f"{self._id} {self._count}", self._key)
            self._producer.poll(0)
        except (BufferError, KafkaException, OutboxError) as error:
            self._log.warn_once(f"cannot send a heartbeat to topic '{self._topic}': {error}")

    def receive(self, value: bytes | None, now: float) -> bool:
        """Handles a record of the topic; returns whether it is a heartbeat of this process."""
        ours = value is not None and value.startswith(f"{self._id} ".encode())
        if ours:
            self._received_at = now
        return ours

    def close(self) -> None:
        """Drops unsent heartbeats, and disconnects."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.close()
            self._producer = None
