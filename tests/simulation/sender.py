"""A transactional producer: publishes a batch and its checkpoint, all or nothing unless the broker tears it.

The checkpoint leaves before the records or with them, so no transaction is to be committed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from outbox_api import Failure, MarkedRecord

from .broker import Broker
from .log import Publication
from .requests import TIMED_OUT, Reply, Request
from .scheduler import Host
from .trail import Session, Violation, serial_of
from .transactions import DONE, FENCED, TransactionalId

UNKNOWN = "unknown"
"""What came of a publication of which nobody can say whether it was committed; the producer has ended."""

Outcome = Callable[[Any], None]
"""Takes the failures for whose sake it was aborted, none once it is committed, or ``UNKNOWN``."""


class TransactionalProducer:
    """One producer of exactly-once delivery.

    Args:
        broker: Where it publishes.
        host: Where it runs.
        session: Whose it is.
        name: Its transactional id.
        location: Where it keeps its checkpoint.
    """

    def __init__(self, broker: Broker, host: Host, session: Session, name: str, location: str) -> None:
        self.session = session
        self.name = name
        self.location = location
        self._broker = broker
        self._host = host
        self._epoch = 0

    @property
    def identity(self) -> TransactionalId:
        """What it publishes under."""
        return self._broker.identity(self.name)

    def open(self, then: Callable[[bool], None]) -> None:
        """Ends what earlier producers were about; tells whether that went well."""

        def opened(epoch: Any) -> None:
            if epoch is not TIMED_OUT:
                self._epoch = epoch
            then(epoch is not TIMED_OUT)

        self._ask(self.identity.initialize, opened)

    def attempt(self, location: str, then: Reply) -> None:
        """Reads the last attempt at a place, ``None`` if there is none; or tells that it timed out."""
        self._ask(lambda reply: self.identity.attempt(location, reply), then)

    def find(self, records: Sequence[MarkedRecord], trace: str, then: Reply) -> None:
        """Looks for the records of an attempt in the log; or tells that it timed out."""
        self._ask(lambda reply: self.identity.find(records, trace, reply), then)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str, then: Outcome) -> None:
        """Publishes records in order, and the checkpoint with them.

        I10: a checkpoint has its bound.
        """
        self._check_bounds(checkpoint)
        for record in records:
            self._broker.audit.published(self.session, record)
        trace = self._broker.next_trace()
        publication = Publication(self.session, self._epoch, self.location, self.name, trace)
        troubles = self._refuse(records)
        if troubles and self._broker.chance.random() < 0.5:
            self._host.after(
                self._broker.chance.random() * 0.01, then, _verdict(troubles)
            )  # nothing was sent
            return
        parts: dict[int, list[MarkedRecord]] = {}
        for record in records:
            if record.id not in troubles:
                partition = self._broker.partition_of(record.key, record.partition or 0)
                parts.setdefault(partition, []).append(record)
        filling = _Filling(len(parts) + 1, troubles, lambda: self._end(publication, filling, then))
        alone = self._broker.chance.random() < 0.5

        def named(result: Any) -> None:
            if alone and result is DONE:
                self._append(publication, parts, filling)
            if alone and result is not DONE:
                then(UNKNOWN)
            else:
                filling.answered([], result if result is DONE else FENCED)

        if not alone:
            self._append(publication, parts, filling)
        self._ask(lambda reply: self.identity.name(publication, checkpoint, reply), named)

    def _check_bounds(self, checkpoint: str) -> None:
        if not 0 < len(checkpoint) <= self._broker.characters or not checkpoint.isascii():
            raise Violation("I10", f"a checkpoint of {len(checkpoint)} characters", lane=self.session.lane)

    def _append(
        self, publication: Publication, parts: Mapping[int, list[MarkedRecord]], filling: _Filling
    ) -> None:
        for partition, part in parts.items():
            self._ask(
                partial(self.identity.append, publication, partition, part),
                partial(filling.answered, part),
            )

    def _end(self, publication: Publication, filling: _Filling, then: Outcome) -> None:
        if filling.lost:
            then(UNKNOWN)
        elif failures := _verdict(filling.troubles):
            self._abort(publication, failures, then)
        else:
            self._commit(publication, then)

    def _commit(self, publication: Publication, then: Outcome) -> None:
        """Asks for the commit; from here on whatever is no success is an unknown outcome."""
        self._ask(
            lambda reply: self.identity.end(publication, commits=True, reply=reply),
            lambda result: self.committed(publication, result, then),
        )

    def committed(self, publication: Publication, result: Any, then: Outcome) -> None:
        """Takes the answer to a commit."""
        if result is DONE:
            then([])
        else:
            self._broker.audit.counts["unknown commits"] += 1
            then(UNKNOWN)

    def _abort(self, publication: Publication, failures: list[Failure], then: Outcome) -> None:
        def aborted(epoch: Any) -> None:
            if epoch in (TIMED_OUT, FENCED):
                then(UNKNOWN)
            else:
                self._epoch = epoch
                then(failures)

        self._ask(lambda reply: self.identity.end(publication, commits=False, reply=reply), aborted)

    def _refuse(self, records: Sequence[MarkedRecord]) -> dict[int, Failure]:
        """Returns the records that the client does not take, by their ids; of each key only the first."""
        keys: set[str] = set()
        refused: dict[int, Failure] = {}
        for record in records:
            entry = self._broker.audit.entries[serial_of(record)]
            if entry.refusals and record.key not in keys:
                entry.refusals -= 1
                self._broker.counts["refused records"] += 1
                keys.add(record.key)
                refused[record.id] = Failure(record, "too large", retryable=False)
        return refused

    def _ask(self, action: Callable[[Reply], None], answer: Reply) -> None:
        Request(self._broker, self._host, action, answer)


class _Filling:
    """What is under way of a transaction: its checkpoint, and its records by partition.

    Args:
        left: How many requests there are.
        troubles: The records that were refused, by their ids, and those that are not delivered.
        then: Called once all are answered.

    Attributes:
        lost: Whether the transaction is no longer the producer's.
    """

    def __init__(self, left: int, troubles: dict[int, Failure], then: Callable[[], None]) -> None:
        self.troubles = troubles
        self.lost = False
        self._left = left
        self._then = then

    def answered(self, part: list[MarkedRecord], result: Any) -> None:
        """Takes the answer to one of the requests."""
        self._left -= 1
        self.lost = self.lost or result is FENCED
        if result is TIMED_OUT:
            self.troubles.update((each.id, Failure(each, "timed out", retryable=True)) for each in part)
        if not self._left:
            self._then()


def _verdict(troubles: Mapping[int, Failure]) -> list[Failure]:
    """Returns the failures, of each key only that of its first record."""
    first: dict[str, Failure] = {}
    for number in sorted(troubles):
        first.setdefault(troubles[number].record.key, troubles[number])
    return list(first.values())
