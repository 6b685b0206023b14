"""The checkpoint of a lane, a short text: a record in a compacted topic, in the lane's own transactions.

Its key is the lane's transactional id. A lane writes into one partition only, so its last record there is the
checkpoint of its last attempt, and its last committed record stays there for ever. The record's header tells
by what the transaction's records are recognised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from confluent_kafka import Message
from outbox_api import Attempt, CheckpointLost, Found, MarkedRecord

from outbox_kafka.log_reader import LogReader
from outbox_kafka.log_search import LogSearch
from outbox_kafka.topics import CheckpointTopic
from outbox_kafka.trace import HEADER, Trace

CANCELLED: Final = "-"
"""A checkpoint that is never committed, and says nothing of what was attempted before."""

_ROW: Final = 0
"""The id of a checkpoint's record, which is of no row."""

_MARGIN_SECONDS: Final = 10.0
"""Seconds to wait for a broker, in addition to those that other lanes' transactions may take."""


class CheckpointStore:
    """The partition that stores the checkpoint of one lane."""

    def __init__(
        self, settings: Mapping[str, Any], topic: CheckpointTopic, lane: str, transaction_seconds: float
    ) -> None:
        """Chooses the partition; does not connect."""
        self._settings = settings
        self._cluster = topic.cluster
        self._lane = lane
        self._reader = LogReader(settings, lane, transaction_seconds + _MARGIN_SECONDS)
        # Many partitions, because a lane that starts reads what other lanes have written in its partition.
        self._partition = crc32(lane.encode()) % topic.partitions
        self.topic = topic.name
        self.location = f"{topic.cluster}/{topic.name}/{self._partition}"

    def record(self, text: str, trace: Trace) -> MarkedRecord:
        """Returns the record that makes ``text`` the checkpoint of a transaction."""
        headers = ((HEADER, trace.text()),)
        return MarkedRecord(_ROW, self.topic, self._lane, text, headers, partition=self._partition)

    def attempt(self, location: str = "") -> Attempt | None:
        """Returns the last attempt; ``None`` if the broker has none.

        Earlier transactions of the lane must have ended. An empty ``location`` is this store's own.
        """
        cluster, topic, number = (location or self.location).split("/")
        if cluster != self._cluster:
            raise CheckpointLost(
                f"the checkpoint of '{self._lane}' is in the Kafka cluster {cluster}, and this is "
                f"{self._cluster}. Run a harvester on that cluster once more and stop it gracefully; or, if "
                "that cluster is gone, run 'outbox fence forget', which takes its records for unpublished"
            )
        last = self._reader.last(topic, int(number), self._lane, _is_attempt)
        if last is None:
            return None
        try:
            trace = Trace.parse(_trace(last) or b"")._replace(at=(topic, int(number), last.offset() or 0))
        except (AttributeError, TypeError, ValueError) as error:
            message = f"cannot read the trace of the checkpoint of '{self._lane}': {error}"
            raise CheckpointLost(message) from error
        return Attempt((last.value() or b"").decode(), trace.text())

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Looks for records of an attempt in the log; see :meth:`outbox_api.TransactionalSender.find`."""
        return LogSearch(self._settings, self._lane, self._reader).find(records, Trace.parse(trace))


def _is_attempt(message: Message) -> bool:
    return _trace(message) is not None and message.value() != CANCELLED.encode()


def _trace(message: Message) -> bytes | None:
    headers: dict[str, Any] = dict(message.headers() or [])
    return headers.get(HEADER)
