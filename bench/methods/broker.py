"""The broker of a history: one topic with one partition, and what a consumer reads there."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.methods.method import RefusedError, Row

LARGEST = 20_000
"""Bytes of the largest record that the broker takes."""
SECONDS = 30.0


class Topic:
    """A topic, and a consumer that has read it so far."""

    def __init__(self, bootstrap: str, *, shared: bool = False) -> None:
        self._shared = shared  # whether others send, too
        self.name = f"methods-{uuid4().hex[:8]}"
        self.bootstrap = bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        largest = {"max.message.bytes": str(LARGEST)}
        admin.create_topics([NewTopic(self.name, 1, config=largest)])[self.name].result()
        own = {"bootstrap.servers": bootstrap, "group.id": self.name, "isolation.level": "read_committed"}
        self._consumer = Consumer({**own, "log_level": 0, "fetch.wait.max.ms": 5})
        self._place = TopicPartition(self.name, 0, 0)
        self._consumer.assign([self._place])
        self._sent = False
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0}
        )

    def send(self, row: Row) -> None:
        """Sends a record, and waits for the broker: so a crash later has no say in whether it arrives."""
        errors: list[object] = []
        self._sent = True

        def report(error: object, _message: object) -> None:
            if error is not None:
                errors.append(error)

        try:
            self._producer.produce(self.name, row.value, row.key, on_delivery=report)
            self._producer.flush(SECONDS)
        except KafkaException as error:
            raise RefusedError(str(error)) from None
        if errors:
            raise RefusedError(str(errors[0]))

    def confirmed(self) -> None:
        """Returns at once: :meth:`send` has waited."""

    def read(self) -> Sequence[tuple[str, str]]:
        """Returns name and key of what was delivered since the last call, in the order of the topic."""
        if not self._sent and not self._shared:
            return ()
        self._sent = False
        end = self._end()
        got: list[tuple[str, str]] = []
        while self._reached() < end:
            message = self._consumer.poll(0.02)
            if message is not None and message.error() is None:
                key, value = message.key() or b"", message.value() or b""
                got.append((value.decode().rstrip("."), key.decode()))
        return got

    def _end(self) -> int:
        """Returns where the topic ends; a client may learn late of a topic that was just made."""
        until = monotonic() + SECONDS
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(self._place, SECONDS)[1])
            except KafkaException:
                if monotonic() > until:
                    raise
            sleep(0.1)

    def _reached(self) -> int:
        [place] = self._consumer.position([self._place])
        return max(place.offset, 0)

    def close(self) -> None:
        """Disconnects."""
        self._consumer.close()
