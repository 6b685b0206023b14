"""What befell the records of one transaction, and which of them are to blame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from outbox_sdk import Failure, MarkedRecord

from outbox_kafka.handover import failure
from outbox_kafka.verdict import blames_the_batch, is_collateral, is_missing, is_untimely

_FORBIDDEN = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Attempt:
    """Gathers the trouble with the records of one transaction; true once there is any.

    Attributes:
        portion: The records that were handed over last.
        failed: Whether the client took a record and then could not deliver it.
        missing: The topics that the client takes for missing.
    """

    def __init__(self) -> None:
        self.portion: Sequence[MarkedRecord] = ()
        self.failed = False
        self.missing: set[str] = set()
        self._troubles: dict[int, KafkaError | Exception] = {}

    def __bool__(self) -> bool:
        """Tells whether there is trouble with any record."""
        return bool(self._troubles)

    @property
    def undecided(self) -> bool:
        """Whether a batch was refused as a whole and nothing says which of its records is to blame.

        A broker measures whole batches, and refuses every record of one that is too large, or that has a
        timestamp in it that is not to be.
        """
        troubles = [error for error in self._troubles.values() if not _innocent(error)]
        batch = all(isinstance(error, KafkaError) and blames_the_batch(error) for error in troubles)
        return self.failed and batch and len(troubles) > 1 and len(self.portion) > 1

    def untimely(self, records: Iterable[MarkedRecord]) -> MarkedRecord | None:
        """Returns the first record that was refused for the time that we gave it, if any."""
        for record in records:
            error = self._troubles.get(record.id)
            if isinstance(error, KafkaError) and is_untimely(error) and not record.timestamp_ms:
                return record
        return None

    def blameless(self, trouble: KafkaError | None) -> bool:
        """Tells whether neither a record nor ``trouble``, what befell the transaction, says why it failed."""
        return all(map(_innocent, self._troubles.values())) and (trouble is None or is_collateral(trouble))

    def report(self, record: MarkedRecord, error: KafkaError | None, _message: Message) -> None:
        """Takes a failed delivery."""
        if error is not None:
            self.failed = True
            self._note(record, error)

    def refuse(self, record: MarkedRecord, error: Exception) -> None:
        """Takes a record that the client would not have."""
        self._note(record, error.args[0] if isinstance(error, KafkaException) else error)

    def _note(self, record: MarkedRecord, error: KafkaError | Exception) -> None:
        self._troubles[record.id] = error
        if isinstance(error, KafkaError) and is_missing(error):
            self.missing.add(record.topic)

    def blame(self, records: Iterable[MarkedRecord]) -> None:
        """Takes records whose topic may not be written to."""
        self._troubles.update((record.id, _FORBIDDEN) for record in records)

    def failures(
        self, records: Sequence[MarkedRecord], trouble: KafkaError | None, settings: Mapping[str, Any]
    ) -> list[Failure]:
        """Returns the records that were to blame, the first of each key, in the order sent.

        Where none was, the first record stands for all, to be sent again.

        Args:
            records: All records of the transaction.
            trouble: What befell the transaction as a whole.
            settings: The producer's settings, whose secrets stay out of the reasons.
        """
        guilty: dict[str, Failure] = {}
        for record in records:
            error = self._troubles.get(record.id)
            if error is not None and not _innocent(error) and record.key not in guilty:
                guilty[record.key] = failure(record, error, settings)
        if guilty or not records:
            return list(guilty.values())
        cause = trouble or next(iter(self._troubles.values()))
        return [replace(failure(records[0], cause, settings), retryable=True)]


def portions(records: Sequence[MarkedRecord], limit: int | None) -> Iterator[Sequence[MarkedRecord]]:
    """Cuts records into portions of up to ``limit`` bytes, or of a single record; at least one, maybe empty.

    Args:
        records: What to cut, in order.
        limit: How many bytes; ``None`` for all in one.
    """
    start, size = 0, 0
    for index, record in enumerate(records if limit is not None else ()):
        size += _size(record)
        if limit is not None and size > limit and index > start:
            yield records[start:index]
            start, size = index, _size(record)
    yield records[start:]


def _size(record: MarkedRecord) -> int:
    """Returns about how many bytes the record has, uncompressed, with what Kafka adds to it."""
    parts = [record.key, record.value, *(part for header in record.headers for part in header)]
    return 20 + sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part)


def _innocent(error: KafkaError | Exception) -> bool:
    return isinstance(error, KafkaError) and is_collateral(error)
