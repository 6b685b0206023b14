"""A lane's transactional sender: publishes a batch and its checkpoint atomically."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from outbox_api import (
    MAX_CHECKPOINT,
    AccessDenied,
    Attempt,
    DriverError,
    Failure,
    Found,
    MarkedRecord,
    Repartitioned,
)

from outbox_kafka.checkpoint import CANCELLED, CheckpointStore
from outbox_kafka.errors import driver_error, is_missing_topic, is_unauthorized, reason
from outbox_kafka.log_reader import OpenTransactionError, Partition
from outbox_kafka.partition_watch import PartitionWatch
from outbox_kafka.produce import missing_topic_failures
from outbox_kafka.timestamps import KnownLimits, diagnose
from outbox_kafka.topic_cache import TopicCache
from outbox_kafka.topic_lookup import BackgroundCalls
from outbox_kafka.trace import Trace, Tracer
from outbox_kafka.transaction_errors import TransactionErrors, untimely_failures
from outbox_kafka.transactional_producer import UNKNOWN, TransactionalProducer

_NOT_COMMITTED = "nothing of the transaction was committed"

_OVERHEAD_BYTES = 20
"""About what Kafka's record format adds to a record."""


def chunks(records: Sequence[MarkedRecord], max_bytes: int | None) -> Iterator[Sequence[MarkedRecord]]:
    """Yields chunks of up to ``max_bytes`` bytes, or of a single larger record, in order.

    Yields at least one chunk, which is empty if there are no records.
    """
    start, size = 0, 0
    for index, record in enumerate(records if max_bytes is not None else ()):
        size += _size(record)
        if max_bytes is not None and size > max_bytes and index > start:
            yield records[start:index]
            start, size = index, _size(record)
    yield records[start:]


def _size(record: MarkedRecord) -> int:
    parts = [record.key, record.value, *(part for header in record.headers for part in header)]
    encoded = (part.encode(errors="replace") if isinstance(part, str) else part for part in parts if part)
    return _OVERHEAD_BYTES + sum(map(len, encoded))


_REQUEST_BYTES = 1_000_000
"""Bytes that the client puts into a request by default; smaller chunks are fractions of it."""

_QUOTA_CHUNKS = 8
"""Chunks of a transaction while a quota delays this client, which waits between two: each has its own time to
be delivered, and what is in the network is not delayed several times.
"""

_RETRIES = 2
"""Retries of a transaction that failed, but not because of a record. The one after a refused batch always
fails: the client has counted the refused records in its sequence, the broker has not, and the next abort
resets both.
"""


class KafkaTransactionalSender:
    """Sends with one transactional producer; see :class:`outbox_api.TransactionalSender` for the contract.

    The request to commit is the point of no return. Before it, any error aborts the transaction, with a
    certain outcome once the broker has answered that. After it, anything but a success is an unknown outcome:
    even an error that the client calls abortable may be the answer to a second request, of which the first
    succeeded. So is, at any time, an answer that contradicts what the client knows: something else has ended
    the transaction.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        store: CheckpointStore,
        tracer: Tracer,
        unwritable: Callable[[Collection[str]], set[str]],
    ) -> None:
        """Connects, and ends the transaction of an earlier sender."""
        self._settings = settings
        self._store = store
        self._tracer = tracer
        self._unwritable = unwritable
        self._topics = TopicCache(int(settings["topic.metadata.propagation.max.ms"]) / 1000)
        self._limits = KnownLimits(settings)
        self._accepting: set[str] = set()
        """The topics that have taken records of a transaction."""
        self._chunk_bytes: int | None = None
        self._producer = TransactionalProducer(settings)
        self._look_up = partial(self._producer.look_up, partitions=self._topics.partitions)
        self._background = BackgroundCalls()
        self._watch = PartitionWatch(self._topics, self._look_up, self._background)
        try:
            self._producer.initialize(store.topic)
            self._end_late_transactions()
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        """Names cluster, topic and partition; see :attr:`outbox_api.TransactionalSender.location`."""
        return self._store.location

    def attempt(self, location: str = "") -> Attempt | None:
        """Reads the checkpoint; see :meth:`outbox_api.TransactionalSender.attempt`."""
        attempt = self._store.attempt(location)
        if attempt is not None:
            self._tracer.last_ms = Trace.parse(attempt.trace).time_ms
        return attempt

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Looks into the log; see :meth:`outbox_api.TransactionalSender.find`."""
        try:
            return self._store.find(records, trace)
        except OpenTransactionError as error:
            self._end_late_transactions(error.places)
            return self._store.find(records, trace)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        """Publishes in one transaction; see :meth:`outbox_api.TransactionalSender.publish`.

        Takes up to about twice ``transaction.timeout.ms``. It takes several times that in the rare case that
        a topic accepts smaller batches than the client sends: then it retries with ever smaller chunks, one
        at a time, until it is clear which record is too large by itself.
        """
        if len(checkpoint) > MAX_CHECKPOINT:
            raise ValueError(f"a checkpoint of {len(checkpoint)} characters, {MAX_CHECKPOINT} fit")
        self._background.poll()
        self._watch.poll()
        retries, topics, chunk_bytes = _RETRIES, {record.topic for record in records}, self._chunk_bytes
        if failures := self._foreseen(records):
            return failures
        while True:
            trace = self._tracer.next(records, topics)
            errors = TransactionErrors(self._store.record(checkpoint, trace), trace.time_ms)
            deadline = self._producer.begin()
            try:
                error = self._fill(records, errors, deadline, accepted=topics <= self._accepting)
            except DriverError:
                raise
            except Exception:  # of a record; the transaction has ended once it is raised
                self._producer.abort()
                raise
            if error is None and not errors:
                self._producer.commit(deadline)
                self._accepting |= topics
                return []
            self._refuse_contradiction(errors, error)
            self._producer.abort()
            self._refuse_contradiction(errors, error)  # of what was reported meanwhile
            if errors.has_refused_time and (refused := self._limits.refused(records)):
                errors.add_untimely(refused)
                self._chunk_bytes = chunk_bytes
                return errors.failures(records, error, self._settings)
            if errors.is_ambiguous:
                self._chunk_bytes = (self._chunk_bytes or _REQUEST_BYTES) // 4
            elif retries and self._producer.error is None and errors.blames_nothing(error):
                retries -= 1
            else:
                self._chunk_bytes = chunk_bytes  # smaller ones were to find these records
                return self._failures(records, errors, error)

    def close(self) -> None:
        """Disconnects; see :meth:`outbox_api.TransactionalSender.close`."""
        self._background.close()  # its calls use the producer
        self._producer.close()

    def refresh(self) -> None:
        """Looks topics up again before their next record; see :class:`outbox_api.PartitionedSender`."""
        self._topics.refresh()

    def take_repartitioned(self) -> Sequence[Repartitioned]:
        """Returns changed topics; see :meth:`outbox_api.PartitionedSender.take_repartitioned`."""
        return self._topics.take_repartitioned()

    def _foreseen(self, records: Sequence[MarkedRecord]) -> list[Failure]:
        """Returns the records that brokers would refuse, the first of each key, as far as that is known."""
        missing = missing_topic_failures(self._topics, self._look_up, records, self._settings)
        return missing or untimely_failures(self._limits.foreseen(records), self._settings)

    def _end_late_transactions(self, places: Sequence[Partition] = ()) -> None:
        """Ends what late requests of an earlier sender have left open, with its checkpoint and in ``places``.

        A broker that does not verify transactions (before KIP-890, or by configuration) accepts a request
        that arrives after its client's abort: the partition shows nothing behind it any more. Another aborted
        transaction there ends that. The broker has then seen our epoch, and refuses what arrives even later.
        Besides, this shows a refusal now.
        """
        trace = self._tracer.next([], set())
        errors = TransactionErrors(self._store.record(CANCELLED, trace), trace.time_ms)
        others = [MarkedRecord(-1, topic, "", None, partition=number) for topic, number in places]
        failed = self._producer.produce([errors.checkpoint, *others], errors, self._producer.begin())
        error = failed or errors.checkpoint_error
        try:
            self._producer.abort()
        except DriverError:  # there is nothing to abort if the broker has refused everything
            if error is None:
                raise
        if error is not None:
            raise self._checkpoint_error(error)

    def _fill(
        self,
        records: Sequence[MarkedRecord],
        errors: TransactionErrors,
        deadline: float,
        *,
        accepted: bool,
    ) -> KafkaError | None:
        """Produces everything and waits for its delivery; returns why the transaction failed, if it did.

        The transaction has failed, too, if there are ``errors`` afterwards. The checkpoint leaves together
        with the records if their topics have ``accepted`` some before: if a broker refuses everything of a
        transaction, it knows of no transaction that it could abort, and the client is of no use any more.
        """
        if accepted:
            self._producer.send([errors.checkpoint], errors)
        else:
            failed = self._producer.produce([errors.checkpoint], errors, deadline)
            if failed is not None:
                return failed
        if errors:
            return None
        size = self._chunk_bytes
        if self._producer.has_quota:
            size = min(size or _REQUEST_BYTES, sum(map(_size, records)) // _QUOTA_CHUNKS)
        for chunk in chunks(records, size):
            self._producer.wait_for_quota(deadline)
            errors.chunk = chunk
            failed = self._producer.produce(chunk, errors, deadline)
            if failed is not None or errors:
                return failed
        return None

    def _refuse_contradiction(self, errors: TransactionErrors, error: KafkaError | None) -> None:
        if (contradiction := errors.contradiction(error)) is not None:
            raise self._producer.end(UNKNOWN, KafkaException(contradiction))

    def _failures(
        self, records: Sequence[MarkedRecord], errors: TransactionErrors, failed: KafkaError | None
    ) -> list[Failure]:
        """Returns the records at fault, the first of each key; raises any other cause of the abort."""
        if is_unauthorized(failed):
            # The error names no topic; it may be the checkpoint's.
            refused = self._unwritable({self._store.topic, *(record.topic for record in records)})
            if not refused and records:  # the broker does not tell which: smaller batches do
                suspect = records[len(records) // 2]
                why, alone = reason(failed, self._settings), len(records) == 1
                return [Failure(suspect, why, retryable=not alone, suspect=True)]
            if self._store.topic in refused:
                raise self._checkpoint_error(failed)
            errors.add_unauthorized(record for record in records if record.topic in refused)
        if (at_fault := errors.checkpoint_at_fault) is not None:
            raise self._checkpoint_error(at_fault)
        for topic in errors.missing_topics:
            self._topics.set_missing(topic)
        if (record := errors.first_with_our_invalid_timestamp(records)) is not None:
            refusal = diagnose(self._settings, record.topic)
            if refusal.clock_is_wrong:
                raise DriverError(f"{_NOT_COMMITTED}: {refusal.reason}", retryable=False)
            return [Failure(record, refusal.reason, retryable=True)]
        failures = errors.failures(records, failed, self._settings)
        if not failures:
            raise DriverError("a transaction without records failed", retryable=True)
        return failures

    def _checkpoint_error(self, error: KafkaError | Exception) -> DriverError:
        what = f"{_NOT_COMMITTED}: the checkpoint cannot be written to topic '{self._store.topic}'"
        if not isinstance(error, KafkaError):
            return DriverError(f"{what}: {error}", retryable=False)
        if is_missing_topic(error):  # the next sender creates it, or says that it is gone
            return DriverError(f"{what}: {error.str()} ({error.name()})", retryable=True)
        if is_unauthorized(error):
            return AccessDenied(f"{what}: {reason(error, self._settings)}")
        return driver_error(what, error, self._settings)
