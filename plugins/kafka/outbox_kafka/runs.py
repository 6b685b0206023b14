"""Produces runs: several records of a key in flight, of which the log has a prefix whatever fails.

The client's gapless guarantee keeps the prefix: if a batch fails for good, the producer ends, and writes
nothing behind it. The guarantee has two holes. A message that times out leaves a gap, so none does: the
client repeats it until this producer is given up. And a broker takes any first batch of a producer that it
does not know, also the second one if it has refused the first; so the first record of a run comes by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import Deliveries, Failure, MarkedRecord

from outbox_kafka.client.clients import ClientLog, Producer
from outbox_kafka.client.quotas import quota_of
from outbox_kafka.errors import delivery_error, reason
from outbox_kafka.produce import failure, produce

_LAST_REPORTS_SECONDS = 1.0
"""How long a producer that has failed is asked what became of the rest."""
_POLL_SECONDS = 0.05

_BEHIND = "it is behind a record of its key that was not sent"


class RunProducer:
    """The producer of a sender's runs; opened when the first one is sent, and again after it has failed.

    Args:
        settings: Those of the sender's producer.
        reports: Returns where it reports.
        on_error: Receives errors of the client itself.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        reports: Callable[[], Deliveries],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        name = f"{settings['client.id']}.runs"
        self._own: dict[str, Any] = {
            "client.id": name,
            "enable.gapless.guarantee": "true",
            "max.in.flight.requests.per.connection": "1",
            "logger": ClientLog(),
            "error_cb": on_error,
            "throttle_cb": quota_of(name),
        }
        timeout = next(each for each in _TIMEOUTS if each in settings)
        self._settings = {**settings, timeout: "0"}
        self._patience = int(settings[timeout]) / 1000 or float("inf")
        self._reports = reports
        self._producer: Producer | None = None
        self._out: dict[int, tuple[MarkedRecord, float]] = {}  # in the order in which they were sent
        self._known: set[tuple[str, int | None]] = set()  # topics and partitions that it has delivered to
        self._failed: set[str] = set()  # the keys of runs that have failed since it was opened
        self._error = ""  # why it has failed

    def __len__(self) -> int:
        """Returns how many records have no report."""
        return len(self._out)

    def send(self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]) -> None:
        """Hands records to the client; see :meth:`outbox_api.RunSender.send_runs`."""
        if self._producer is None:
            self._producer = Producer({**self._settings, **self._own})
            self._failed.clear()
            self._known.clear()
            self._error = ""
        records = self._accepted(first, others)
        while records:
            try:
                handled = produce(self._producer, records, self._on_delivery, self._refuse)
            except _Refused as refused:
                record = refused.record
                self._report(failure(record, refused.error, self._settings))
                rest = records[1 + next(place for place, each in enumerate(records) if each is record) :]
            else:
                rest = records[handled:]
                if rest:
                    record = rest[0]
                    self._report(Failure(record, "the client's queue is full", retryable=True))
            records = [each for each in rest if each.key != record.key] if rest else ()
            for each in rest:
                if each.key == record.key and each.id in self._out:
                    self._report(Failure(each, _BEHIND, retryable=True))

    def _accepted(
        self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]
    ) -> Sequence[MarkedRecord]:
        """Takes note of records, and fails those that would be the first that this producer sends there."""
        now = time.monotonic()
        records = [*others, *first]
        self._out.update((record.id, (record, now)) for record in records)
        for record in others:
            if (record.topic, record.partition) not in self._known:
                self._report(Failure(record, _BEHIND, retryable=True, suspect=True))
        return [record for record in records if record.id in self._out]

    def poll(self, timeout: float, *, flushes: bool) -> None:
        """Waits for reports; ends the client's lingering if it ``flushes``."""
        producer = self._producer
        if producer is None:
            return
        try:
            producer.flush(timeout) if flushes else producer.poll(timeout)
        except (KafkaException, SystemError) as error:
            self._error = self._error or f"the client has failed: {error}"
        if not self._error and self._out:
            _, since = next(iter(self._out.values()))
            if time.monotonic() > since + self._patience:
                self._error = "no broker has acknowledged it in time"
        if self._error:
            self._give_up()

    def close(self) -> None:
        """Drops what has no report, and disconnects. Idempotent."""
        producer, self._producer = self._producer, None
        self._out.clear()
        if producer is not None:
            producer.purge()
            producer.close()

    def _give_up(self) -> None:
        """Collects reports for a moment, and fails what has none: whether it is in the log is unknown."""
        producer, deadline = self._producer, time.monotonic() + _LAST_REPORTS_SECONDS
        while producer is not None and self._out and time.monotonic() < deadline:
            try:
                producer.poll(_POLL_SECONDS)
            except (KafkaException, SystemError):
                continue
        for record, _ in list(self._out.values()):
            self._report(Failure(record, self._error, retryable=True, suspect=True))
        self.close()

    def _refuse(self, record: MarkedRecord, error: Exception) -> None:
        raise _Refused(record, error)

    def _on_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        if record.id not in self._out:
            return
        error = delivery_error(error, message)
        if error is not None:
            self._error = self._error or reason(error, self._settings)
            self._report(Failure(record, reason(error, self._settings), retryable=True, suspect=True))
        elif record.key in self._failed:
            self._report(Failure(record, _BEHIND, retryable=True, suspect=True))
        else:
            del self._out[record.id]
            self._known.add((record.topic, message.partition()))
            if record.partition is None:
                record = record._replace(partition=message.partition())
            self._reports().delivered.append(record)

    def _report(self, failed: Failure) -> None:
        del self._out[failed.record.id]
        self._failed.add(failed.record.key)
        self._reports().failed.append(failed)


_TIMEOUTS = ("delivery.timeout.ms", "message.timeout.ms")


class _Refused(Exception):  # noqa: N818 - it ends a loop
    """The client has refused a record."""

    def __init__(self, record: MarkedRecord, error: Exception) -> None:
        super().__init__(record.id)
        self.record = record
        self.error = error
