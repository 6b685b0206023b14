"""Collects the errors of a transaction's records, and decides which records are at fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_api import Failure, MarkedRecord

from outbox_kafka.client.errors import one_of
from outbox_kafka.errors import (
    delivery_error,
    is_invalid_timestamp,
    is_secondary,
    may_be_outdated,
    rejects_whole_batch,
)
from outbox_kafka.produce import failure

_contradicts = one_of(KafkaError.INVALID_TXN_STATE, KafkaError.INVALID_PRODUCER_ID_MAPPING)
"""What a broker answers that does not know of the transaction, or of its producer, which are there for the
client.
"""

_NOT_AUTHORIZED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
_INVALID_TIMESTAMP = KafkaError(KafkaError.INVALID_TIMESTAMP)


class TransactionErrors:
    """The errors of one transaction's records and of its checkpoint; true if there is any.

    Attributes:
        checkpoint: The record of the checkpoint.
        time_ms: The timestamp of records without one of their own.
        checkpoint_error: Why it could not be stored; ``None`` if there is no error.
        chunk: The records that were produced last.
        delivery_failed: Whether the client accepted a record and then did not surely deliver it.
        missing_topics: The topics that are missing or lack a partition, according to the client.
    """

    def __init__(self, checkpoint: MarkedRecord, time_ms: int) -> None:
        self.checkpoint = checkpoint
        self.time_ms = time_ms
        self.checkpoint_error: KafkaError | Exception | None = None
        self.chunk: Sequence[MarkedRecord] = ()
        self.delivery_failed = False
        self.missing_topics: set[str] = set()
        self._errors: dict[int, KafkaError | Exception] = {}
        self._refused: set[int] = set()  # one by one

    def __bool__(self) -> bool:
        """Returns whether any record has an error, or the checkpoint has."""
        return bool(self._errors) or self.checkpoint_error is not None

    @property
    def is_ambiguous(self) -> bool:
        """Whether a batch was refused as a whole, and no error shows which of its records is at fault.

        A broker checks whole batches. It refuses every record of one that is too large, or that contains an
        invalid timestamp.
        """
        blaming = self._blaming()
        of_batch = not any(self._is_own(number, error) for number, error in blaming.items())
        return self.delivery_failed and of_batch and len(blaming) > 1 and len(self.chunk) > 1

    def first_with_our_invalid_timestamp(self, records: Iterable[MarkedRecord]) -> MarkedRecord | None:
        """Returns the first record that was refused for the time that this machine gave it, if any."""
        errors = self._blaming()
        for record in records:
            error = errors.get(record.id)
            if is_invalid_timestamp(error) and not record.timestamp_ms:
                return record
        return None

    @property
    def has_refused_time(self) -> bool:
        """Whether a broker has refused a timestamp."""
        return any(map(is_invalid_timestamp, self._errors.values()))

    def contradiction(self, transaction_error: KafkaError | None) -> KafkaError | None:
        """Returns an answer that the transaction is not open; ``None`` if there is none.

        Args:
            transaction_error: The error of the transaction as a whole.
        """
        errors = [transaction_error, self.checkpoint_error, *self._errors.values()]
        return next(filter(_contradicts, errors), None)

    def blames_nothing(self, transaction_error: KafkaError | None) -> bool:
        """Returns whether no error, ``transaction_error`` included, says why the transaction failed."""
        errors = [*self._errors.values(), self.checkpoint_error, transaction_error]
        return all(error is None or is_secondary(error) for error in errors)

    @property
    def checkpoint_at_fault(self) -> KafkaError | Exception | None:
        """Why the checkpoint could not be stored, unless a record's error says why, or none does."""
        error = self.checkpoint_error
        if error is None or is_secondary(error) or not all(map(is_secondary, self._errors.values())):
            return None
        return error

    def on_delivery(self, record: MarkedRecord, error: KafkaError | None, message: Message) -> None:
        """Receives a delivery report."""
        if (error := delivery_error(error, message)) is not None:
            self.delivery_failed = True
            self._add(record, error)

    def on_refused(self, record: MarkedRecord, error: Exception) -> None:
        """Receives a record that the client did not accept."""
        self._refused.add(record.id)
        self._add(record, error.args[0] if isinstance(error, KafkaException) else error)

    def add_unauthorized(self, records: Iterable[MarkedRecord]) -> None:
        """Adds records whose topic this client may not write to."""
        self._errors.update((record.id, _NOT_AUTHORIZED) for record in records)

    def add_untimely(self, records: Iterable[MarkedRecord]) -> None:
        """Adds records whose topic does not permit their timestamps."""
        for record in records:
            self._refused.add(record.id)
            self._errors[record.id] = _INVALID_TIMESTAMP

    def failures(
        self,
        records: Sequence[MarkedRecord],
        transaction_error: KafkaError | None,
        settings: Mapping[str, Any],
    ) -> list[Failure]:
        """Returns the records at fault, the first of each key, in the order produced.

        If no record is at fault, returns the first record as a suspect, with a retryable failure.

        Args:
            records: All records of the transaction.
            transaction_error: The error of the transaction as a whole.
            settings: The producer's settings, whose secrets stay out of the reasons.
        """
        failures: dict[str, Failure] = {}
        errors = self._blaming()
        for record in records:
            error = errors.get(record.id)
            if error is not None and record.key not in failures:
                failures[record.key] = failure(record, error, settings)
        if failures or not records:
            return list(failures.values())
        cause = transaction_error or next(iter(self._errors.values()))
        return [replace(failure(records[0], cause, settings), retryable=True, suspect=True)]

    def _blaming(self) -> Mapping[int, KafkaError | Exception]:
        """Returns the errors that say which records are at fault.

        Beside one that is a record's own, those of batches that were refused as a whole say nothing: others
        of a batch may be at fault. What is at fault fails again in the next transaction.
        """
        primary = {number: error for number, error in self._errors.items() if not is_secondary(error)}
        own = {number: error for number, error in primary.items() if self._is_own(number, error)}
        return own or primary

    def _is_own(self, number: int, error: KafkaError | Exception) -> bool:
        return number in self._refused or not rejects_whole_batch(error)

    def _add(self, record: MarkedRecord, error: KafkaError | Exception) -> None:
        if record is self.checkpoint:
            self.checkpoint_error = error
            return
        self._errors[record.id] = error
        if may_be_outdated(error):
            self.missing_topics.add(record.topic)


def untimely_failures(records: Sequence[MarkedRecord], settings: Mapping[str, Any]) -> list[Failure]:
    """Returns the failures of records whose timestamps are refused, the first of each key."""
    first = {record.key: record for record in reversed(records)}
    return [failure(record, _INVALID_TIMESTAMP, settings) for record in first.values()]
