"""A consumer that records what arrives on a topic, and when."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but left out of its types
    AdminClient,
    OffsetSpec,
)

from ..topics import sequence  # noqa: TID252 - pytest gives tests no absolute name

GLANCE = 0.05


class Arrival(NamedTuple):
    """A received message: time (seconds since the epoch), key, and sequence if it has one."""

    at: float
    key: str
    sequence: int | None


class Witness:
    """Reads the committed messages of a topic until it is closed; waits for a broker that is down.

    Attributes:
        arrivals: The messages so far, in the order of each partition.
        places: Partition and offset of each arrival.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.arrivals: list[Arrival] = []
        self.places: set[tuple[int, int]] = set()
        self._bootstrap = bootstrap
        self._everywhere = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        self._read_to = dict.fromkeys(range(partitions), 0)
        # It would log each outage of the broker.
        quiet = {"log_level": 0, "reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 20}
        name = {"group.id": "witness", "enable.auto.commit": False, "isolation.level": "read_committed"}
        # The last offset may be a control record of a transaction; only PARTITION_EOF shows that.
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, **quiet, **name, "enable.partition.eof": True}
        )
        self._ending = Event()
        self._thread = Thread(target=self._read, name="witness", daemon=True)
        self._thread.start()

    def behind(self) -> int:
        """Returns how many offsets of the topic are unread, including those of open transactions."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        ends = admin.list_offsets(
            {TopicPartition(each.topic, each.partition): OffsetSpec.latest() for each in self._everywhere}
        )
        return sum(int(end.result(60).offset) - self._read_to[place.partition] for place, end in ends.items())

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        self._consumer.assign(self._everywhere)
        while not self._ending.is_set():
            messages = self._consumer.consume(500, GLANCE)
            at = time.time()
            for message in messages:
                self._take(at, message)

    def _take(self, at: float, message: Message) -> None:
        partition, offset, error = message.partition(), message.offset(), message.error()
        if partition is None or offset is None:
            return  # an error of the client: the broker is down
        if error is None:
            self.places.add((partition, offset))
            self.arrivals.append(Arrival(at, (message.key() or b"").decode(), sequence(message)))
            offset += 1
        elif error.code() != KafkaError._PARTITION_EOF:
            return
        self._read_to[partition] = offset
