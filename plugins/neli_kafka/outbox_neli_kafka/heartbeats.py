"""The leader's heartbeat records on the topic of the election.

In goharvest a heartbeat that is read back proves that its sender leads (docs/algorithm.md, N4). Here the
coordinator's confirmation is the proof: the coordinator decides who leads, while a former leader can still
write and read. Heartbeats are for observers of the topic; the log warns if the leader cannot read its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextvars import copy_context
from threading import Thread
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException
from outbox_api import OutboxError
from outbox_kafka_client.clients import ClientLog, Producer
from outbox_kafka_client.quotas import Quota


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
        self._quota = Quota("")  # the lanes' producers tell the log
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
            cure = "check that its partition is online and that writing to it is granted"
            if self._quota.is_used_up:
                cure = "a quota of Kafka's delays them"
            self._log.warn_once(
                f"heartbeats do not come back from topic '{self._topic}', although the coordinator confirms "
                f"this leader; {cure}"
            )
        self._count += 1
        try:
            if self._producer is None:
                ignore = lambda _error: None  # noqa: E731 - the log reports lost connections
                own = {"logger": self._log, "error_cb": ignore, "throttle_cb": self._quota}
                self._producer = Producer({**self._settings, **own})
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


log = logging.getLogger(__name__)

_LEAVE_SECONDS: Final = 3.0
"""How long to wait for the request to leave; it is sent at once if the group has a coordinator."""

CLOSE_SECONDS = 10.0
"""How long to wait for the client's end; without a broker librdkafka may never end."""


def leave(consumer: Consumer) -> None:
    """Leaves the group, which closing alone does not: a member with a name keeps its place for a session.

    The callbacks of the subscription may run. Without a coordinator the session ends the membership instead.
    """
    deadline = time.monotonic() + _LEAVE_SECONDS
    try:
        consumer.unsubscribe()
        # The client forgets its member's id when it sends the request.
        while consumer.memberid() and time.monotonic() < deadline:
            consumer.poll(0.01)
    except KafkaException as error:
        log.debug("the client could not leave its group: %s", error.args[0].name())


def close(consumer: Consumer, group: str) -> None:
    """Closes the consumer; waits for ``CLOSE_SECONDS`` at most."""
    closing = Thread(target=copy_context().run, args=(consumer.close,), name="neli-close", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    if closing.is_alive():
        log.warning(
            "election '%s': the client did not end within %g s; its session expires instead",
            *(group, CLOSE_SECONDS),
        )
