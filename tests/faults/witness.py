"""A consumer that notes what arrives on a topic, and when."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    OffsetSpec,
)
from outbox_core.audit import SEQUENCE_HEADER

GLANCE = 0.05


class Arrival(NamedTuple):
    """A message as the consumer got it: when (seconds since the epoch), key, and sequence if it has one."""

    at: float
    key: str
    sequence: int | None


class Witness:
    """Reads a topic from its beginning until it is closed; a broker that goes away is waited for.

    Attributes:
        arrivals: What has arrived so far, each partition in its order.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.arrivals: list[Arrival] = []
        self._bootstrap = bootstrap
        self._everywhere = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        # It would tell of each broker that a fault takes away.
        quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 20}
        name = {"group.id": "witness", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **quiet, **name})
        self._ending = Event()
        self._thread = Thread(target=self._read, name="witness", daemon=True)
        self._thread.start()

    def behind(self) -> int:
        """Returns how many messages the topic holds that have not been read yet."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        ends = admin.list_offsets(
            {TopicPartition(each.topic, each.partition): OffsetSpec.latest() for each in self._everywhere}
        )
        held = sum(int(end.result(10).offset) for end in ends.values())
        return held - len(self.arrivals)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        self._consumer.assign(self._everywhere)
        while not self._ending.is_set():
            messages = self._consumer.consume(500, GLANCE)
            at = time.time()
            self.arrivals.extend(
                Arrival(at, (message.key() or b"").decode(), _sequence(message))
                for message in messages
                if message.error() is None
            )


def _sequence(message: Message) -> int | None:
    headers = dict(message.headers() or [])
    value = headers.get(SEQUENCE_HEADER)
    return int(value) if value is not None else None
