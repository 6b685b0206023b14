"""The checkpoint of a lane, a short text: a record in a compacted topic, in the lane's own transactions.

Its key is the lane's transactional id. A lane writes into one partition only, so its last committed record
there is its checkpoint. Compaction keeps that record for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from confluent_kafka import TopicPartition
from outbox_sdk import DriverError, MarkedRecord

from outbox_kafka.checkpoint_reader import LastRecord
from outbox_kafka.checkpoint_topic import CheckpointTopic
from outbox_kafka.former_checkpoint import read_former

_ROW: Final = 0
"""The id of a checkpoint's record, which is of no row."""

_MARGIN_SECONDS: Final = 10.0
"""Seconds to read a checkpoint, in addition to those that other lanes' transactions may take."""


class CheckpointStore:
    """The partition that stores the checkpoint of one lane.

    Attributes:
        topic: Its topic's name.
        location: The cluster's id, the topic, and the partition, with slashes between them. Locations of
            earlier versions have no partition.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: CheckpointTopic, lane: str, transaction_seconds: float
    ) -> None:
        """Chooses the partition; does not connect.

        Args:
            settings: The user's settings.
            topic: A topic that exists.
            lane: The lane's transactional id.
            transaction_seconds: How many seconds a transaction may take.
        """
        self._settings = settings
        self._cluster = topic.cluster
        self._lane = lane
        self._timeout = transaction_seconds + _MARGIN_SECONDS
        # Many partitions, because a lane that starts waits for the transactions of others in its partition.
        self._partition = crc32(lane.encode()) % topic.partitions
        self.topic = topic.name
        self.location = f"{topic.cluster}/{topic.name}/{self._partition}"

    def record(self, text: str) -> MarkedRecord:
        """Returns the record that makes ``text`` the checkpoint once its transaction is committed."""
        return MarkedRecord(_ROW, self.topic, self._lane, text, partition=self._partition)

    def read(self, location: str = "") -> str | None:
        """Returns the checkpoint that was committed last; ``None`` if the broker has none.

        Earlier transactions of the lane must have ended.

        Args:
            location: Another location of this lane's checkpoint; empty for this one.

        Raises:
            DriverError: The broker cannot be reached or refuses; or the location is in another cluster.
        """
        cluster, topic, *partition = (location or self.location).split("/")
        if cluster != self._cluster:
            raise DriverError(
                f"the checkpoint of '{self._lane}' is in the Kafka cluster {cluster}, and this is "
                f"{self._cluster}. Run a harvester on that cluster once more and stop it gracefully; or, if "
                "that cluster is gone, run 'outbox fence forget', which takes its records for unpublished",
                retryable=False,
            )
        if not partition:
            return read_former(self._settings, self._lane, topic)
        place = TopicPartition(topic, int(partition[0]))
        return LastRecord(self._settings, place, self._lane, self._timeout).read()
