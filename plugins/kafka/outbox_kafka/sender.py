"""A lane's sender: produces records with librdkafka and collects the delivery reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import (
    AccessDenied,
    Deliveries,
    DriverError,
    Failure,
    MarkedRecord,
    OutboxError,
    Repartitioned,
)

from outbox_kafka.client.clients import Producer, try_files
from outbox_kafka.client.errors import is_refusal
from outbox_kafka.errors import (
    delivery_error,
    is_fatal,
    is_invalid_timestamp,
    is_missing_topic,
    is_purged,
    is_unsupported,
    log_client_error,
    may_be_outdated,
    reason,
    rejects_whole_batch,
)
from outbox_kafka.partition_watch import PartitionWatch
from outbox_kafka.produce import QUEUE_FULL, OnDelivery, failure, produce, unbatched_producer, wait
from outbox_kafka.producer_pool import LaneProducer, acquire, release
from outbox_kafka.runs import RunProducer
from outbox_kafka.timestamps import TimestampRefusal, diagnose
from outbox_kafka.topic_cache import Statuses, TopicCache, look_up
from outbox_kafka.topic_lookup import BackgroundCalls, TopicLookup

_POLL_SECONDS = 0.1
"""Seconds of one wait inside the client; Python handles signals between two waits."""

_SHORT_POLL_SECONDS = 0.005
"""Seconds of one wait while there are other sources of events beside the producer."""

_SHARED_SECONDS = 0.001
"""Seconds of one wait while several producers have records without a report."""

_SETTLE_SECONDS = 1.0
"""Seconds to wait, before the lane restarts with new certificates, until nothing is in flight."""


class KafkaSender:
    """Sends with one idempotent producer; see :class:`outbox_api.Sender` for the contract."""

    def __init__(self, lane: str, settings: Mapping[str, Any], *, flush_seconds: float = 0.0) -> None:
        """Creates the producer, or takes over the one that the lane's previous sender left in this process.

        The producer connects on its own: this does not wait for the broker.
        """
        self._settings = settings
        self._flush_seconds = flush_seconds  # after a send; the client might linger
        self._flush_until = 0.0
        self._reports = Deliveries()
        self._error: DriverError | None = None
        self._fatal = False
        self._unbatched: Producer | None = None
        self._runs = RunProducer(settings, lambda: self._reports, self._on_client_error)
        self._reasons: dict[int, str] = {}  # by error code, for many refused records
        self._awaiting_diagnosis: dict[str, list[MarkedRecord]] = {}
        self._background = BackgroundCalls()
        self._renews = False  # a broker accepts the changed certificates
        self._topics = TopicCache(int(settings["topic.metadata.propagation.max.ms"]) / 1000)
        self._producer: LaneProducer | None = acquire(lane, settings)
        self._producer.on_error = self._on_client_error
        self._lookup = TopicLookup(
            self._topics,
            self._look_up,
            self._background,
            self._produce_looked_up,
            self._refuse,
        )
        self._watch = PartitionWatch(self._topics, self._look_up, self._background)

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Hands ``records`` to the client in order; see :meth:`outbox_api.Sender.send`.

        If the client's queue is full, the remaining ``records`` fail too, so that none overtakes another.
        Records whose topic is not known to exist are buffered until the broker has answered.
        """
        if self._error:
            raise self._error
        self._produce(records, self._on_refused, self._lookup)
        self._lookup.start()

    def send_runs(self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]) -> None:
        """Hands those that follow to a client of their own; see :meth:`outbox_api.RunSender.send_runs`.

        A first one is delivered without its partition if its topic was not known to exist, or if that client
        is not ready: the next record of its key is a first one then, and does not wait for the client.
        """
        if self._error:
            raise self._error
        if first:
            self._runs.open()
            self._produce(first, self._on_refused, self._lookup, self._on_first_delivery)
            self._lookup.start()
        if others:
            self._flush_until = time.monotonic() + self._flush_seconds
            self._runs.send(others)

    def poll(self, timeout: float) -> Deliveries:
        """Waits for the first report, and returns all reports; see :meth:`outbox_api.Sender.poll`.

        A wait ends the client's lingering: what was sent before leaves at once, in as few requests as
        possible. If the client has failed, returns the reports from before; the next call raises.
        """
        if self._error is None:
            self._wait(timeout)
        if self._error is None:
            self._renew()
            self._watch.poll()
        reports = self._take_reports()
        if self._error and not (reports.delivered or reports.failed):
            raise self._error
        return reports

    def close(self, timeout: float) -> Deliveries:
        """Flushes, and drops what is not delivered; see :meth:`outbox_api.Sender.close`.

        If requests may still be in the network, the producer is kept for the lane's next sender in this
        process.
        """
        lane = self._producer
        if lane is None:
            return Deliveries()
        producer = lane.producer
        self._settle(producer, timeout)
        if len(producer):
            lane.note_unreported()
        producer.purge()
        # Reports the purged records, whose outcome is unknown; the sender ignores these reports.
        self._poll_once(producer, 0)
        if self._fatal:
            lane.forget_unreported()
        self._background.close()  # its calls use the producer
        if self._unbatched is not None:
            self._unbatched.purge()
            self._unbatched.close()
            self._unbatched = None
        self._runs.close()
        self._producer = None
        release(lane)
        return self._take_reports()

    def refresh(self) -> None:
        """Looks topics up again before their next record; see :class:`outbox_api.PartitionedSender`."""
        self._topics.refresh()
        if not self._runs:
            self._runs.close()  # its client does not know of new partitions, and opens again when it is due

    def take_repartitioned(self) -> Sequence[Repartitioned]:
        """Returns changed topics; see :meth:`outbox_api.PartitionedSender.take_repartitioned`."""
        return self._topics.take_repartitioned()

    def _look_up(self, topics: Collection[str], new: Collection[str]) -> Statuses:
        """Looks topics up with both clients that choose partitions; on a thread in the background."""
        if (unbatched := self._unbatched) is not None:
            look_up(unbatched, topics, (), {})
        return look_up(self._open_producer().producer, topics, new, self._topics.partitions)

    def _settle(self, producer: Producer, timeout: float) -> bool:
        """Waits up to ``timeout`` seconds for all reports; returns whether there are all."""
        deadline = time.monotonic() + timeout
        while busy := bool(len(producer) or self._count_unbatched() or self._runs or self._lookup):
            left = deadline - time.monotonic()
            if left <= 0 or self._error is not None:
                break
            self._poll_once(producer, min(left, _POLL_SECONDS))
        return not busy

    def _renew(self) -> None:
        """Ends this sender after a change of certificates, with nothing in flight: the next one reads them.

        While requests without a report may be in the network, only this producer keeps them from arriving
        behind later records. It stays until they are gone, or until it cannot connect any more.
        """
        lane = self._open_producer()
        if self._renews:
            self._renews = False
            settled = self._settle(lane.producer, _SETTLE_SECONDS)
            if settled and not self._background and not lane.must_stay and self._error is None:
                lane.forget_unreported()
                self._error = DriverError("certificates have changed; open a new sender", retryable=True)
        elif not self._background and lane.renewal.is_due():
            lane.renewal.postpone()
            if not lane.must_stay:
                self._background.submit(partial(_refusal_of_files, self._settings), self._on_tried)

    def _on_tried(self, refusal: str) -> None:
        self._renews = not refusal
        if refusal:
            name = self._settings["client.id"]
            self._open_producer().log.warn_once(f"{name}: changed certificates are not used yet: {refusal}")

    def _open_producer(self) -> LaneProducer:
        if self._producer is None:
            raise DriverError("the sender is closed; open a new one", retryable=True)
        return self._producer

    # --- producing ----------------------------------------------------------------------------------

    def _produce(
        self,
        records: Sequence[MarkedRecord],
        on_refused: Callable[[MarkedRecord, Exception], None],
        lookup: TopicLookup | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        producer = self._open_producer().producer
        self._flush_until = time.monotonic() + self._flush_seconds
        handled = produce(producer, records, on_delivery or self._on_delivery, on_refused, lookup)
        self._reports.failed.extend(Failure(rest, QUEUE_FULL, retryable=True) for rest in records[handled:])

    def _produce_looked_up(self, records: Sequence[MarkedRecord]) -> None:
        self._produce(records, self._fail)

    def _produce_unbatched(self, record: MarkedRecord) -> None:
        """Produces a record again whose batch was refused; raises nothing, as the client calls it."""
        try:
            if self._unbatched is None:
                self._unbatched = unbatched_producer(self._settings, self._on_client_error)
        except OutboxError as error:
            self._reports.failed.append(Failure(record, str(error), retryable=True))
            return
        if not produce(self._unbatched, [record], self._on_unbatched_delivery, self._fail):
            self._reports.failed.append(Failure(record, QUEUE_FULL, retryable=True))

    def _count_unbatched(self) -> int:
        return 0 if self._unbatched is None else len(self._unbatched)

    # --- waiting for reports ------------------------------------------------------------------------

    def _wait(self, timeout: float) -> None:
        producer, reports = self._open_producer().producer, self._reports
        deadline = time.monotonic() + timeout
        left = 0.0 if reports.failed else timeout
        while True:
            self._poll_once(producer, min(left, _POLL_SECONDS))
            if reports.delivered or reports.failed or self._error:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                return

    def _poll_once(self, producer: Producer, timeout: float) -> None:
        try:
            if self._background:
                timeout = min(timeout, _SHORT_POLL_SECONDS)
                self._background.poll()
            busy = [each for each in (producer, self._unbatched, self._runs) if each]
            if len(busy) > 1:
                timeout = min(timeout, _SHARED_SECONDS)
            if self._unbatched is not None:
                self._unbatched.poll(timeout if self._unbatched in busy else 0)
            # Without records there are errors, and lines of the log.
            waits = self._runs in busy
            if self._runs.poll(timeout if waits else 0, flushes=waits and self._flushes(timeout)):
                self._flush_until = time.monotonic() + self._flush_seconds
            if producer in busy or not busy:
                wait(producer, timeout, flushes=self._flushes(timeout))
            else:
                producer.poll(0)
        except KafkaException as error:
            self._end(error.args[0])

    def _flushes(self, timeout: float) -> bool:
        return timeout > 0 and time.monotonic() < self._flush_until

    def _take_reports(self) -> Deliveries:
        reports, self._reports = self._reports, Deliveries()
        if reports.delivered and self._producer:
            self._producer.has_delivered, self._producer.is_refused = True, False
        return reports

    # --- callbacks ----------------------------------------------------------------------------------

    def _on_first_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            record = record._replace(partition=message.partition() if self._runs.ready else None)
            self._runs.begun(record.topic, record.partition, offset)
        self._on_delivery(record, error, message)

    def _on_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        error = delivery_error(error, message)
        if error is None:
            self._reports.delivered.append(record)
        elif self._producer is None or is_purged(error):
            return
        elif rejects_whole_batch(error):
            self._produce_unbatched(record)
        else:
            self._fail(record, error)

    def _on_unbatched_delivery(
        self, record: MarkedRecord, error: KafkaError | None, message: Message
    ) -> None:
        error = delivery_error(error, message)
        if error is None:
            self._reports.delivered.append(record)
        elif is_invalid_timestamp(error) and not record.timestamp_ms:
            self._diagnose(record)
        elif not is_purged(error):
            self._fail(record, error)

    def _on_refused(self, record: MarkedRecord, error: Exception) -> None:
        if isinstance(error, KafkaException) and is_missing_topic(error.args[0]):
            # The client's cache says so. The topic may exist by now, and a look-up updates that cache.
            self._topics.set_missing(record.topic)
            self._lookup.add(record)
        else:
            self._fail(record, error)

    def _on_client_error(self, error: KafkaError) -> None:
        """Receives an error of the client itself. The client reconnects, so few of them end the sender."""
        producer = self._open_producer()
        log_client_error(producer.log, self._settings, error)
        # After the first delivery the credentials are known to be valid. A later refusal concerns one broker
        # (say, during a rolling change of passwords), and the client may recover.
        if is_refusal(error) and not producer.has_delivered:
            self._end(error)

    # --- failures -----------------------------------------------------------------------------------

    def _fail(self, record: MarkedRecord, error: KafkaError | Exception) -> None:
        cause = error.args[0] if isinstance(error, KafkaException) else error
        if is_missing_topic(cause):
            self._lookup.on_missing(record)
            return
        if may_be_outdated(cause):
            self._topics.set_missing(record.topic)  # its next record has the client ask the broker
        if is_unsupported(cause):
            self._end(cause)  # another record would fare no better
            return
        failed = failure(record, cause, self._settings)
        if failed.retryable:
            self._open_producer().note_unreported()
        self._reports.failed.append(failed)
        if is_fatal(cause):
            self._end(cause)

    def _refuse(self, records: Sequence[MarkedRecord], error: KafkaError, retryable: bool) -> None:
        why = self._reasons.get(error.code())
        if why is None:
            why = self._reasons[error.code()] = reason(error, self._settings)
        self._reports.failed.extend(Failure(record, why, retryable=retryable) for record in records)

    def _diagnose(self, record: MarkedRecord) -> None:
        """Finds out in the background why the broker refused the time that this machine gave the record."""
        topic = record.topic
        if topic not in self._awaiting_diagnosis:
            self._awaiting_diagnosis[topic] = []
            self._background.submit(
                partial(diagnose, self._settings, topic), partial(self._on_diagnosis, topic)
            )
        self._awaiting_diagnosis[topic].append(record)

    def _on_diagnosis(self, topic: str, refusal: TimestampRefusal) -> None:
        """Fails the topic's waiting records, or ends the sender if this machine's clock is wrong."""
        records = self._awaiting_diagnosis.pop(topic)
        if refusal.clock_is_wrong:
            self._error = self._error or DriverError(refusal.reason, retryable=False)
        else:
            self._reports.failed.extend(Failure(each, refusal.reason, retryable=True) for each in records)

    def _end(self, error: KafkaError) -> None:
        if self._error:
            return
        self._fatal, refused = True, is_refusal(error)
        message = f"the Kafka producer cannot continue: {reason(error, self._settings)}"
        if refused:
            self._error = AccessDenied(f"{message}; check the credentials and the permissions")
        elif is_unsupported(error):
            self._error = DriverError(message, retryable=False)
        else:
            self._error = DriverError(f"{message}; open a new sender", retryable=True)


def _refusal_of_files(settings: Mapping[str, Any]) -> str:
    """Returns why a client cannot use the present files; empty if it can."""
    try:
        try_files(settings)
    except OutboxError as error:
        return str(error)
    return ""
