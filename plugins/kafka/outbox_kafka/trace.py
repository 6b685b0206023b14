"""By what the records of a transaction are recognised in the log, once its outcome is unknown.

Records without a timestamp of their own get one, the same for all of the transaction, and another one in each
transaction of the lane. A partition finds records by their time, so this costs the transaction nothing. It
does not help where the broker replaces timestamps (``LogAppendTime``), nor for rows that have their own, nor
in compacted topics: there, a look-up by time ends at a segment that compaction has left empty. For the topics
of such records, the trace tells where their partitions ended before the transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaException
from outbox_api import MarkedRecord

from outbox_kafka.client.admin import LATEST, KafkaAdmin
from outbox_kafka.errors import driver_error, is_unauthorized

HEADER: Final = "trace"
_AHEAD_MS: Final = 60_000
"""Milliseconds that the last time may be ahead of the clock: if it is more, the clock was wrong before."""

_TIMEOUT: Final = 10.0
_ENDS_SECONDS: Final = 1.0
"""Seconds to wait for the ends of partitions; one without a leader is left out, and then read as a whole."""

_own_timestamp = itemgetter(MarkedRecord._fields.index("timestamp_ms"))


class Trace(NamedTuple):
    """The trace of a transaction.

    Attributes:
        time_ms: The timestamp of its records, in milliseconds since the epoch.
        ends: Topic → partition → the offset behind its last record before the transaction. Of other topics,
            the time is enough.
        at: Topic, partition and offset of the checkpoint; none before it is written.
    """

    time_ms: int
    ends: Mapping[str, Mapping[int, int]]
    at: tuple[str, int, int] = ("", 0, 0)

    def text(self) -> str:
        """Returns the trace as text."""
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Reads a trace.

        Raises:
            ValueError: It is none.
        """
        time_ms, ends, at = json.loads(text)
        offsets = {
            topic: {int(number): end for number, end in found.items()} for topic, found in ends.items()
        }
        return cls(time_ms, offsets, (at[0], at[1], at[2]))


class Tracer:
    """Makes the traces of a lane's transactions; used by one thread."""

    def __init__(self, settings: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
        self.last_ms = 0
        self._settings = settings
        self._clock = clock
        self._client: KafkaAdmin | None = None
        self._timed: dict[str, bool] = {}  # topic → whether the time finds its records

    def next(self, records: Sequence[MarkedRecord], topics: Collection[str]) -> Trace:
        """Returns the trace of a transaction that is about to begin.

        Asks the broker about topics that are new to it, and where it has to, for the ends of partitions.
        """
        now = int(self._clock() * 1000)
        self.last_ms = now if not now <= self.last_ms <= now + _AHEAD_MS else self.last_ms + 1
        for topic in topics - self._timed.keys():
            self._look_up(topic)
        untimed = {topic for topic in topics if not self._timed.get(topic)}
        if any(map(_own_timestamp, records)):
            untimed |= {record.topic for record in records if record.timestamp_ms}
        if untimed:
            return Trace(self.last_ms, self._ends(untimed))
        self._client = None  # its threads and connections serve nothing any more
        return Trace(self.last_ms, {})

    @property
    def _admin(self) -> KafkaAdmin:
        if self._client is None:
            self._client = KafkaAdmin(self._settings, driver_error)
        return self._client

    def _look_up(self, topic: str) -> None:
        """Looks up whether the time finds a topic's records; a topic that is new may not tell yet."""
        try:
            config = self._admin.topic_config(topic, _TIMEOUT)
        except KafkaException as error:
            if is_unauthorized(error.args[0]):
                self._timed[topic] = False
            return
        found = config.get("message.timestamp.type"), config.get("cleanup.policy")
        self._timed[topic] = found == ("CreateTime", "delete")

    def _ends(self, topics: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        ends: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        found = self._admin.offsets(topics, LATEST, _ENDS_SECONDS, complete=False)
        for (topic, number), end in found.items():
            ends[topic][number] = end.offset
        return ends
