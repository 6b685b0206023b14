"""The client that the product's producer of runs has in the place of librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from outbox_api import MarkedRecord

from .world import Client, Line, Trouble

# librdkafka spells the codes of its own errors with a leading underscore
_ERRORS: Mapping[Trouble, KafkaError | None] = {
    "refused": KafkaError(KafkaError.MSG_SIZE_TOO_LARGE),
    "purged": KafkaError(KafkaError._PURGE_QUEUE),
    "unplaced": None,
}
_FATAL = KafkaError(KafkaError._FATAL, "a message could not be delivered", fatal=True)
_ANY_PARTITION = -1

Report = Callable[[MarkedRecord, KafkaError | None, Any], None]


class Message(NamedTuple):
    """A delivery report: where the record is in the log."""

    place: int | None

    def offset(self) -> int | None:
        return self.place


class FakeClient:
    """Tells, when it is polled, what has become of its records.

    Args:
        client: Its state.
        records: Those without a report, by their ids.
        partitions: How many there are.
        report: Who is told.

    Attributes:
        client: Its state.
        heard: The partitions whose acknowledgements the next poll tells of.
    """

    def __init__(
        self, client: Client, records: Mapping[int, MarkedRecord], partitions: int, report: Report
    ) -> None:
        self.client = client
        self.heard: Collection[int] = ()
        self._records, self._partitions, self._report = {**records}, partitions, report

    def produce(self, _topic: str, _value: Any, _key: Any, partition: int, then: Any, *_: Any) -> None:
        """Takes a record; one without a partition goes anywhere."""
        [record] = then.args
        self._records[record.id] = record
        place = record.id % self._partitions if partition == _ANY_PARTITION else partition
        line = next((each for each in self.client.lines if each.partition == place), Line(place))
        self._set(line._replace(rows=(*line.rows, record.id)))

    def poll(self, _timeout: float) -> None:
        """Reports what is known; raises once if it has failed for good."""
        for line in self.client.lines:
            if line.partition in self.heard and line.written:
                acknowledged, left = line.rows[: line.written], line.rows[line.written :]
                self._set(line._replace(rows=left, written=0))
                for row in acknowledged:
                    self._report(self._records[row], None, Message(0))
        self.heard = ()
        troubles, self.client = self.client.troubles, self.client._replace(troubles=())
        for row, trouble in troubles:
            self._report(self._records[row], _ERRORS[trouble], Message(None))
        if self.client.fatal:
            self.client = self.client._replace(fatal=False)
            raise KafkaException(_FATAL)

    def flush(self, timeout: float) -> None:
        self.poll(timeout)

    def purge(self, *, in_flight: bool = True) -> None:
        """Drops what is not in the network, which the next poll reports."""
        troubles = list(self.client.troubles)
        for line in self.client.lines:
            troubles += [(row, "purged") for row in line.rows[line.written :]]
            self._set(line._replace(rows=() if in_flight else line.rows[: line.written]))
        self.client = self.client._replace(troubles=tuple(troubles), over=True)

    def close(self) -> None:
        """Does nothing: what is not purged is in the log."""

    def _set(self, line: Line) -> None:
        others = [each for each in self.client.lines if each.partition != line.partition]
        self.client = self.client._replace(lines=tuple(sorted((*others, line))))
