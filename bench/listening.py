"""A consumer that runs on a thread of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition


class Listening(ABC):
    """Consumes topics from their beginning until it is closed.

    Args:
        bootstrap: The brokers.
        topics: The topics, which exist.
        partitions: How many each of them has.
        settings: Further settings of the consumer.
    """

    def __init__(
        self, bootstrap: str, topics: Iterable[str], partitions: int, settings: Mapping[str, Any]
    ) -> None:
        self._ending = Event()
        own = {"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "log_level": 0}
        self._consumer = Consumer({**own, **settings})
        self._consumer.assign(
            [TopicPartition(topic, part, OFFSET_BEGINNING) for topic in topics for part in range(partitions)]
        )
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    @abstractmethod
    def note(self, message: Message) -> None:
        """Notes a message, at once after it has come; called by one thread."""

    def close(self) -> None:
        """Ends listening."""
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _listen(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(5000, 0.01):
                if message.error() is None:
                    self.note(message)
