"""The leader's heartbeat records on the topic of the election.

In goharvest a heartbeat that is read back proves that its sender leads (docs/algorithm.md, N4). Here the
coordinator's confirmation is the proof: the coordinator decides who leads, while a leader that was replaced
can still write and read. Heartbeats are sent for those who watch the topic, and the log warns if they do not
come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaException, Producer

from outbox_neli_kafka.client_log import ClientLog


class Heartbeats:
    """Sends one leader's heartbeats, and knows them again; used by one thread.

    Times are seconds on the caller's clock.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str, name: str, log: ClientLog) -> None:
        """Takes the settings; connects with the first heartbeat.

        Args:
            settings: The settings of the producer.
            topic: Where heartbeats go.
            name: The group, which becomes their key.
            log: Where warnings go.
        """
        self._settings = settings
        self._topic = topic
        self._key = name
        self._log = log
        self._producer: Producer | None = None
        self._id = uuid4().hex
        self._count = 0
        self._heard_at: float | None = None

    def begin(self, now: float) -> None:
        """Takes that this process leads from now on."""
        self._id = uuid4().hex
        self._heard_at = now

    def send(self, now: float, patience: float) -> None:
        """Sends one, and warns when none has come back for ``patience`` seconds; never waits."""
        if self._heard_at is not None and now - self._heard_at > patience:
            self._log.warn(
                f"heartbeats do not come back from topic '{self._topic}', although the coordinator confirms "
                "this leader; check that its partition is online and that writing to it is granted"
            )
        self._count += 1
        try:
            if self._producer is None:
                ignore = lambda _error: None  # noqa: E731 - the log tells of lost connections
                self._producer = Producer({**self._settings, "logger": self._log, "error_cb": ignore})
            self._producer.produce(self._topic, f"{self._id} {self._count}", self._key)
            self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            self._log.warn(f"cannot send a heartbeat to topic '{self._topic}': {error}")

    def hear(self, value: bytes | None, now: float) -> bool:
        """Takes a record that was read from the topic; returns whether it is a heartbeat of ours."""
        ours = value is not None and value.startswith(f"{self._id} ".encode())
        if ours:
            self._heard_at = now
        return ours

    def close(self) -> None:
        """Drops what is not sent, and disconnects."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.close()
            self._producer = None
