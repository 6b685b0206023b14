"""A transactional producer: publishes a batch and its checkpoint, all or nothing unless the broker tears it.

The checkpoint leaves before the records or beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from outbox_api import Failure, MarkedRecord

from .broker import Broker
from .filling import UNPLACED, Filling
from .log import CHECKPOINTS, Publication
from .requests import TIMED_OUT, Reply, Request, TwiceSent
from .scheduler import Host
from .trail import FAILING, Session, Violation, serial_of
from .transactions import DONE, FENCED, INVALID, TransactionalId

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

    Attributes:
        is_in_doubt: Whether it must not be used any more: an end of a transaction was sent twice.
    """

    alone = 0.5
    """In which part of the transactions the records wait for the checkpoint."""

    def __init__(self, broker: Broker, host: Host, session: Session, name: str, location: str) -> None:
        self.session = session
        self.name = name
        self.location = location
        self._broker = broker
        self.chance = broker.chance
        self._host = host
        self._epoch = 0
        self.is_in_doubt = False
        self._known: set[int] = set()  # partitions that have taken records of it

    @property
    def identity(self) -> TransactionalId:
        """What it publishes under."""
        return self._broker.identity(self.name)

    def open(self, then: Callable[[bool], None]) -> None:
        """Ends what earlier producers were about; tells whether that went well."""

        def opened(epoch: Any) -> None:
            if epoch is TIMED_OUT:
                then(False)
            else:
                self._epoch = epoch
                self.is_in_doubt = False
                self._known.clear()
                self._probe(then)

        self.ask(self.identity.initialize, opened)

    def _probe(self, then: Callable[[bool], None]) -> None:
        """Aborts a transaction with nothing but a cancelled checkpoint, which ends what is open there."""
        probe = self._begin()

        def added(result: Any) -> None:
            if result is DONE:
                self._ask_end(probe, ended, commits=False)
            else:
                then(False)

        def ended(result: Any) -> None:
            then(result not in (TIMED_OUT, FENCED, INVALID))

        self.ask(partial(self.identity.add, probe, CHECKPOINTS), added)

    def attempt(self, location: str, then: Reply) -> None:
        """Reads the last attempt at a place, ``None`` if there is none; or tells that it timed out."""
        self.ask(lambda reply: self.identity.attempt(location, reply), then)

    def find(self, records: Sequence[MarkedRecord], trace: str, then: Reply) -> None:
        """Looks for the records of an attempt in the log; or tells that it timed out."""
        self.ask(lambda reply: self.identity.find(records, trace, reply), then)

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str, then: Outcome) -> None:
        """Publishes records in order, and the checkpoint with them.

        I10: a checkpoint has its bound.
        """
        self._check_bounds(checkpoint)
        if self.is_in_doubt:
            self._broker.audit.counts["producers ended in doubt"] += 1
            self._host.after(0.0, then, UNKNOWN)
            return
        for record in records:
            self._broker.audit.published(self.session, record)
        publication = self._begin()
        troubles = self._refuse(records)
        if troubles and self.chance.random() < 0.5:
            self._host.after(self.chance.random() * 0.01, then, _verdict(troubles))  # nothing was sent
            return
        parts: dict[int, list[MarkedRecord]] = {}
        for record in records:
            if record.id not in troubles:
                partition = self._broker.partition_of(record.key, record.partition or 0)
                parts.setdefault(partition, []).append(record)
        filling = Filling(self, publication, parts, troubles)
        filling.start(
            checkpoint,
            lambda: self._end(publication, filling, then),
            alone=self.chance.random() < self.alone,
        )

    def _begin(self) -> Publication:
        trace = self._broker.next_trace()
        return Publication(self.session, self._epoch, self.location, self.name, trace)

    def _check_bounds(self, checkpoint: str) -> None:
        if not 0 < len(checkpoint) <= self._broker.characters or not checkpoint.isascii():
            raise Violation("I10", f"a checkpoint of {len(checkpoint)} characters", lane=self.session.lane)

    def _end(self, publication: Publication, filling: Filling, then: Outcome) -> None:
        if filling.lost:
            then(UNKNOWN)
        elif failures := _verdict(filling.troubles):
            self._abort(publication, filling, failures, then)
        else:
            self._commit(publication, then)

    def _commit(self, publication: Publication, then: Outcome) -> None:
        """Asks for the commit; from here on whatever is no success is an unknown outcome."""
        self._ask_end(publication, lambda result: self.committed(publication, result, then), commits=True)

    def committed(self, publication: Publication, result: Any, then: Outcome) -> None:
        """Takes the answer to a commit."""
        if result is DONE:
            then([])
        else:
            self._broker.audit.counts["unknown commits"] += 1
            then(UNKNOWN)

    def _abort(
        self, publication: Publication, filling: Filling, failures: list[Failure], then: Outcome
    ) -> None:
        def aborted(result: Any) -> None:
            if self.is_unknown(result):
                then(UNKNOWN)
            else:
                self._epoch = self.rise(result)
                then(failures)

        self._ask_end(publication, aborted, commits=False, rises=filling.is_cut)

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
            elif self._broker.failing and int(record.key[1:]) >= FAILING and record.key not in keys:
                keys.add(record.key)
                refused[record.id] = Failure(record, "no leader for the partition", retryable=True)
        return refused

    # --- what is concluded from answers -------------------------------------------------------------

    def is_unknown(self, result: Any) -> bool:
        """Returns whether the answer to an abort leaves open what became of the transaction."""
        return result in (TIMED_OUT, FENCED, INVALID)

    def failed(self, result: Any) -> bool | None:
        """Returns whether records were not delivered; ``None`` if the transaction is not the producer's."""
        return None if result in (FENCED, INVALID) else result in (TIMED_OUT, UNPLACED)

    def rise(self, epoch: Any) -> Any:
        """Returns the epoch that an abort was answered with."""
        return epoch

    def ended_twice(self) -> None:
        """Takes that an end of a transaction was sent a second time: its first copy may be on its way."""
        self.is_in_doubt = True

    def is_unready(self, partition: int) -> bool:
        """Returns whether a partition refuses the first request of this producer for the moment."""
        first = partition not in self._known
        self._known.add(partition)
        return first and self.chance.random() < self._broker.unready

    # --- requests -----------------------------------------------------------------------------------

    def ask(self, action: Callable[[Reply], None], answer: Reply) -> None:
        """Sends a request."""
        Request(self._broker, self._host, action, answer)

    def _ask_end(
        self, publication: Publication, answer: Reply, *, commits: bool, rises: bool = False
    ) -> None:
        def repeated() -> None:
            self.identity.keep(publication, commits=commits)
            self.ended_twice()

        def end(reply: Reply) -> None:
            self.identity.end(publication, commits=commits, rises=rises, reply=reply)

        TwiceSent(self._broker, self._host, end, answer, repeated)


def _verdict(troubles: Mapping[int, Failure]) -> list[Failure]:
    """Returns the failures, of each key only that of its first record."""
    first: dict[str, Failure] = {}
    for number in sorted(troubles):
        first.setdefault(troubles[number].record.key, troubles[number])
    return list(first.values())
