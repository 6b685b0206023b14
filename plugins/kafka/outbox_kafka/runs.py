"""Produces what follows in runs: several records of a key in flight, of which the log has a prefix.

The client's gapless guarantee keeps the prefix: if a batch fails for good, the producer ends, and writes
nothing behind it. The guarantee has two holes. A message that times out leaves a gap, so none does: the
client repeats it until this producer is given up. And a broker takes any first batch of a producer that it
does not know, also the second one if it has refused the first; so a producer's first record in a partition
goes by itself, and others wait for its report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import Deliveries, Failure, MarkedRecord, OutboxError

from outbox_kafka.client.clients import ClientLog, Producer
from outbox_kafka.client.quotas import quota_of
from outbox_kafka.errors import (
    delivery_error,
    is_fatal,
    is_purged,
    may_be_outdated,
    reason,
    rejects_whole_batch,
)
from outbox_kafka.produce import QUEUE_FULL, failure, produce, wait

_READY_SECONDS = 0.6
"""How long after it was opened: the client asks for its producer id after half a second."""
_LAST_REPORTS_SECONDS = 1.0
"""How long a producer that has failed is asked what became of the rest."""

Place = tuple[str, int | None]
"""A topic and a partition."""

_KNOWN_SECONDS = 60.0
"""How long after a report a broker is taken to know the producer.

It forgets one that has been idle for longer than its ``producer.id.expiration.ms``, a day by default.
"""

_BATCH_BYTES = 1_000_000
_SMALLER = 8
"""Brokers compare the size of whole batches with a topic's limit: the next producer's are so much smaller."""
_SMALLER_SECONDS = 600.0
"""If no batch was refused for so long, one record alone is too large, more probably."""

_BEHIND = "it is behind a record of its key that was not sent"
_LATE = "no broker has acknowledged it in time"

_TIMEOUTS = ("delivery.timeout.ms", "message.timeout.ms")
_IN_FLIGHT = ("max.in.flight.requests.per.connection", "max.in.flight")
_CLIENT_ERRORS = (KafkaException, SystemError)
"""What the client's calls raise when it has failed for good; SystemError if that is within a callback."""


class RunProducer:
    """The producer of a sender's runs; opened when the first one is due, and again after it has failed.

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
        timeout = next(each for each in _TIMEOUTS if each in settings)
        self._patience = int(settings[timeout]) / 1000 or float("inf")
        # The client takes the last one of a setting's two names.
        rest = {each: settings[each] for each in settings if each not in (*_TIMEOUTS, *_IN_FLIGHT)}
        self._settings: dict[str, Any] = {
            **rest,
            "client.id": name,
            "enable.gapless.guarantee": "true",
            _TIMEOUTS[0]: "0",
            _IN_FLIGHT[0]: "1",
            "logger": ClientLog(),
            "error_cb": on_error,
            "throttle_cb": quota_of(name),
        }
        self._batch_bytes = self._most_batch_bytes = int(settings.get("batch.size", _BATCH_BYTES))
        self._was_refused, self._refused_at = False, float("-inf")  # a batch, by a broker
        self._reports = reports
        self._producer: Producer | None = None
        self._ready_at = float("inf")
        self._out: dict[int, tuple[MarkedRecord, float]] = {}  # in the order in which they were sent
        self._known: dict[Place, tuple[float, int]] = {}  # when it last delivered there, and at which offset
        self._behind: dict[Place, list[MarkedRecord]] = {}  # what waits for the first record there
        self._free: list[MarkedRecord] = []  # what has waited, and is to be sent
        self._failed: set[str] = set()  # the keys of records that have failed since it was opened
        self._stopped: set[str] = set()  # the keys of which nothing more is sent now
        self._offered: MarkedRecord | None = None  # what the client is being given
        self._error = ""  # why it has failed
        self._until = 0.0  # and when it is given up

    def __len__(self) -> int:
        """Returns how many records have no report."""
        return len(self._out)

    def open(self) -> None:
        """Opens the producer unless it is open; it is ready a little later."""
        if self._producer is None:
            self._resize()
            with suppress(OutboxError):  # say, a file that is being written
                self._producer = Producer({**self._settings, "batch.size": str(self._batch_bytes)})
                self._ready_at = time.monotonic() + _READY_SECONDS

    @property
    def ready(self) -> bool:
        """Whether it would send at once."""
        return not self._error and time.monotonic() >= self._ready_at

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Hands records to the client that follow in runs; see :meth:`outbox_api.RunSender.send_runs`."""
        producer = self._producer
        if producer is None or self._error:
            why = self._error or "the producer of its run has failed"
            failures = (Failure(record, why, retryable=True, innocent=True) for record in records)
            self._reports().failed.extend(failures)
            return
        self._offer(producer, records)

    def begun(self, topic: str, partition: int | None, offset: int) -> None:
        """Takes that the first record of a run is at an offset: what was written behind it is gone."""
        if self._known.get((topic, partition), (0.0, -1))[1] > offset:
            del self._known[topic, partition]

    def poll(self, timeout: float, *, flushes: bool) -> bool:
        """Waits for reports, and sends what has waited for them.

        Args:
            timeout: Seconds for which it waits at most.
            flushes: Whether it ends the client's lingering.

        Returns:
            Whether it has sent anything.
        """
        producer, now = self._producer, time.monotonic()
        if producer is None:
            return False
        try:
            wait(producer, timeout, flushes=flushes)
        except _CLIENT_ERRORS as error:
            cause = error.args[0]
            what = reason(cause, self._settings) if isinstance(cause, KafkaError) else str(cause)
            self._error = self._error or f"the client has failed: {what}"
        if self._out and now > next(iter(self._out.values()))[1] + self._patience:
            self._error = self._error or _LATE
        free, self._free = self._free, []
        if free and not self._error:
            self._offer(producer, free)
            return True
        if self._error and not self._until:
            self._until = now + _LAST_REPORTS_SECONDS
            for record in chain(free, *self._behind.values()):
                self._stop(record, _BEHIND)
            self._behind.clear()
            with suppress(*_CLIENT_ERRORS):
                producer.purge(in_flight=False)  # soon there are reports of all that was not sent yet
        if self._error and (not self._out or now > self._until):
            left, why = list(self._out.values()), self._error
            self.close()
            late = now - self._patience
            self._reports().failed.extend(
                Failure(record, why, retryable=True, suspect=since < late, innocent=since >= late)
                for record, since in left
            )
        return False

    def close(self) -> None:
        """Drops what has no report, and disconnects. Idempotent."""
        producer, self._producer = self._producer, None
        self._out.clear()
        self._behind.clear()
        self._free.clear()
        self._known.clear()
        self._failed.clear()
        self._error, self._until, self._ready_at = "", 0.0, float("inf")
        if producer is not None:
            with suppress(*_CLIENT_ERRORS):
                producer.purge()
            with suppress(*_CLIENT_ERRORS):
                producer.close()

    def _resize(self) -> None:
        """Makes batches smaller if a broker has refused some."""
        if not self._was_refused:
            return
        now, smaller = time.monotonic(), max(1, self._batch_bytes // _SMALLER)
        again = now < self._refused_at + _SMALLER_SECONDS
        self._batch_bytes = smaller if again else self._most_batch_bytes
        self._refused_at, self._was_refused = now, False

    def _offer(self, producer: Producer, records: Sequence[MarkedRecord]) -> None:
        now = time.monotonic()
        for record in records:
            self._out.pop(id(record), None)  # it has waited for another one
            self._out[id(record)] = record, now
        self._stopped.clear()
        offers = self._offers(records)
        produce(producer, offers, self._on_delivery, self._refuse)
        if (full := self._offered) is not None:  # the client's queue is
            self._stop(full, QUEUE_FULL)
            for record in offers:
                self._stop(record, QUEUE_FULL)

    def _offers(self, records: Sequence[MarkedRecord]) -> Iterator[MarkedRecord]:
        """Yields the records for the client, but for those behind one of their key that it has refused.

        Of those to a partition where no broker may know this producer, all but the first wait for its report.
        """
        since, out, stopped = time.monotonic() - _KNOWN_SECONDS, self._out, self._stopped
        known, behind = self._known, self._behind
        for record in records:
            place = record.topic, record.partition
            if stopped and record.key in stopped:
                self._stop(record, _BEHIND)
                continue
            if place in behind:
                behind[place].append(record)
                continue
            is_new = place not in known or known[place][0] < since
            if is_new:
                behind[place] = []
            self._offered = record
            yield record
            self._offered = None
            if is_new and id(record) not in out:
                del behind[place]

    def _refuse(self, record: MarkedRecord, error: Exception) -> None:
        cause = error.args[0] if isinstance(error, KafkaException) else error
        failed = failure(record, cause, self._settings)
        # Another client has written the first record there: this one does not know of new partitions yet.
        outdated = may_be_outdated(cause)
        if outdated or is_fatal(cause):
            self._error = f"the client has failed: {failed.reason}"
        self._stop(record, failed.reason, retryable=failed.retryable or outdated)

    def _stop(self, record: MarkedRecord, why: str, *, retryable: bool = True) -> None:
        """Fails a record, and those of its key that come behind it now."""
        del self._out[id(record)]
        self._stopped.add(record.key)
        failed = Failure(record, self._error or why, retryable, innocent=bool(self._error))
        self._reports().failed.append(failed)

    def _on_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        """Reports a record.

        After a fatal error the client calls this with an exception set: any call may then raise an error. So
        the record is taken out last but one, and reported last.
        """
        if id(record) not in self._out:
            return
        reports, sent, error = self._reports(), record, delivery_error(error, message)
        if error is not None or record.key in self._failed:
            why = reason(error, self._settings) if error is not None else _BEHIND
            self._failed.add(record.key)
            self._error = self._error or why
            self._was_refused |= rejects_whole_batch(error)
            refused = error is not None and not (is_fatal(error) or is_purged(error))
            failed = Failure(record, self._error, retryable=True, suspect=refused, innocent=not refused)
            del self._out[id(sent)]
            reports.failed.append(failed)
            return
        place = record.topic, record.partition
        self._known[place] = time.monotonic(), message.offset() or 0
        if place in self._behind:
            self._free += self._behind.pop(place)
        del self._out[id(sent)]
        reports.delivered.append(record)
