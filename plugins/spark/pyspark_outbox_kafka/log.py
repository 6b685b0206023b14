"""The log of a sink: one partition of the checkpoint topic; who reads and writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from zlib import crc32

from confluent_kafka import KafkaError, Message
from outbox_api import DriverError, MarkedRecord
from outbox_kafka.client.settings import client_settings
from outbox_kafka.errors import driver_error
from outbox_kafka.log_reader import COMMITTED, LogReader, Partition, Range
from outbox_kafka.settings import transactional_settings
from outbox_kafka.topics import CheckpointTopic, ensure_checkpoint_topic
from outbox_kafka.transactional_producer import TransactionalProducer

from pyspark_outbox_kafka.ledger import Entry, Kind, Ledger, decoded, encoded
from pyspark_outbox_kafka.messages import Outcomes
from pyspark_outbox_kafka.options import PREFIX, SinkOptions

_READ_SECONDS: Final = 60.0
"""Seconds without progress after which reading the log fails."""

_NO_TASK: Final = -1
_OF: Final = ":"
"""Between the name of a sink, which has none, and what is a task's."""
_CONNECTS: Final = {
    "reconnect.backoff.ms": "20",  # the client waits for half of it between its first two connections, too
}
_DEFAULTS: Final = {
    **_CONNECTS,
    "client.id": "outbox-spark",
    "delivery.timeout.ms": "120000",  # as Java's client
    "partitioner": "murmur2_random",  # Java's, so that a key stays in its partition
    "queue.buffering.max.kbytes": "65536",  # a task may be larger than memory: its rows wait for room
    "queue.buffering.max.messages": "50000",
    "transaction.timeout.ms": "900000",  # the longest that brokers permit by default
}
_topics: dict[tuple[str, str], CheckpointTopic] = {}
"""The checkpoint topics that this process has seen; workers serve many tasks."""


def producer_settings(options: SinkOptions, name: str) -> dict[str, Any]:
    """Returns the settings of the producer with a transactional id.

    Raises:
        ConfigError: They contradict transactions.
    """
    return transactional_settings({**_DEFAULTS, **options.kafka}, name)


class SinkLog:
    """The log of one sink; used by one thread."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        """Creates the topic if it is missing.

        Raises:
            DriverError: The broker cannot be reached or refuses.
        """
        self.name = name
        self.id = f"{PREFIX}{name}"
        self._options = options
        self._user = client_settings(options.kafka)
        place = str(self._user.get("bootstrap.servers")), options.checkpoint_topic
        if place not in _topics:
            _topics[place] = ensure_checkpoint_topic(self._user, options.checkpoint_topic)
        self._topic = _topics[place]
        self._partition = crc32(self.id.encode()) % self._topic.partitions
        self._reader = LogReader({**_CONNECTS, **self._user}, self.id, _READ_SECONDS)

    @property
    def _place(self) -> Partition:
        return self._topic.name, self._partition

    def read(self) -> Ledger:
        """Returns what the log says, up to what was acknowledged before the call."""
        key = self.id.encode()
        found = self._reader.since(*self._place, lambda each: each.key() == key)
        return Ledger.of(filter(None, map(self._entry, found)))

    def committed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Returns those entries that are committed; waits for transactions that are open."""
        if not entries:
            return []
        offsets = [each.offset for each in entries]
        within = {self._place: Range(min(offsets), max(offsets) + 1)}
        there = {message.offset() for message in self._reader.read(within, COMMITTED)}
        return [each for each in entries if each.offset in there]

    @contextmanager
    def producer(self, task: int | None) -> Iterator[TransactionalProducer]:
        """Opens the producer of a task, or the driver's, which ends the one before."""
        opened = TransactionalProducer(self.settings(task))
        try:
            opened.initialize(self._topic.name)
            yield opened
        finally:
            opened.close()

    def settings(self, task: int | None) -> Mapping[str, Any]:
        """Returns the settings of a task's producer, or of the driver's."""
        return producer_settings(self._options, self.id if task is None else f"{self.id}{_OF}{task}")

    def record(self, entry: Entry) -> MarkedRecord:
        """Returns the record of an entry."""
        key = self.id if entry.kind is Kind.STANDING else self._key(entry.part.task, entry.kind)
        return MarkedRecord(_NO_TASK, self._topic.name, key, encoded(entry), partition=self._partition)

    def write(self, producer: TransactionalProducer, entry: Entry) -> None:
        """Writes an entry in a transaction of its own.

        First in one that is aborted: a broker that does not verify transactions (before KIP-890) may have
        taken a late request of an earlier producer, which must not be committed with ours.

        Raises:
            DriverError: It may not be written, or somebody else has opened the producer.
        """
        for ends in (False, True):
            outcomes = Outcomes()
            deadline = producer.begin()
            failed = producer.produce([self.record(entry)], outcomes, deadline)
            if failed is not None or outcomes:
                producer.abort()
                raise self.refused(failed, outcomes)
            if ends:
                producer.commit(deadline)
            else:
                producer.abort()

    def forget(self, producer: TransactionalProducer, tasks: Sequence[int]) -> None:
        """Deletes what tasks have noted, and all standings."""
        keys = [self._key(task, kind) for task in tasks for kind in Kind]
        outcomes = Outcomes()
        deadline = producer.begin()
        records = [
            MarkedRecord(_NO_TASK, self._topic.name, key, None, partition=self._partition)
            for key in (*keys, self.id)
        ]
        failed = producer.produce(records, outcomes, deadline)
        if failed is not None or outcomes:
            raise self.refused(failed, outcomes)
        producer.commit(deadline)

    def refused(self, failed: KafkaError | None, outcomes: Outcomes) -> DriverError:
        """Returns why a transaction was not committed."""
        what = f"nothing of a task's transaction into the sink '{self.name}' was committed"
        if outcomes:
            return outcomes.error(what, self.settings(None))
        return driver_error(what, failed or KafkaError(KafkaError._FAIL), self.settings(None))  # noqa: SLF001 - librdkafka's spelling

    def _entry(self, message: Message) -> Entry | None:
        key, value = (message.key() or b"").decode(errors="replace"), message.value()
        if value is None or not key.startswith(self.id):
            return None
        sink, *rest = key.split(_OF)
        if sink != self.id:
            return None  # of a sink whose name begins as ours does
        task, kind = (int(rest[0]), Kind(rest[1])) if rest else (_NO_TASK, Kind.STANDING)
        return decoded(kind, task, message.offset() or 0, value)

    def _key(self, task: int, kind: Kind) -> str:
        return f"{self.id}{_OF}{task}{_OF}{kind.value}"
