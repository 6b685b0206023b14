"""The broker's transactions: one producer at a time for each transactional id, and what it has attempted.

The broker may tear a transaction: some partitions commit their part, and others abort it, that of the
checkpoint included, each independently of the others. It tears only a transaction whose commit was asked for,
and then it does not answer that it was committed. Some partitions end their part soon, and the others once
another producer has come or the transaction has timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outbox_api import Attempt, Found, MarkedRecord

from .log import CHECKPOINTS, Content, Publication, Stage, content_of
from .requests import REQUEST_SECONDS, Reply

if TYPE_CHECKING:
    from collections import Counter

    from .broker import Broker

TRANSACTION_SECONDS = 2.0
"""How long a transaction may be open before the broker aborts it."""
DONE = "done"
FENCED = "fenced"
"""The answer to a producer whose epoch, or whose transaction, is no longer the one in force."""


class TransactionalId:
    """What the broker knows under one transactional id.

    Attributes:
        epoch: That of the producer in force; a request with another is refused.
        attempts: Place → the transactions that have written a checkpoint there, whatever became of them.
    """

    def __init__(self, broker: Broker) -> None:
        self.epoch = 0
        self.attempts: dict[str, list[Publication]] = {}
        self._broker = broker
        self._publication: Publication | None = None
        self._waiting: list[Callable[[], None]] = []

    def initialize(self, reply: Reply) -> None:
        """Takes a new producer: fences the former, aborts what it has open, waits for what is ending."""
        self.fence()
        epoch = self.epoch
        self._once_ended(lambda: reply(epoch))

    def fence(self) -> None:
        """Refuses the producer in force from now on, and ends what it has open."""
        self.epoch += 1
        publication = self.unfinished
        if publication is not None and publication.stage is Stage.OPEN:
            self._end(publication, commits=False)
        elif publication is not None:
            self._end_parts(publication, publication.partitions)

    def append(
        self, publication: Publication, partition: int, records: Sequence[MarkedRecord], reply: Reply
    ) -> None:
        """Takes records of a transaction, which begins with them if it has not."""
        self._with(publication, reply, lambda: self._broker.log.append_to(publication, partition, records))

    def name(self, publication: Publication, checkpoint: str, reply: Reply) -> None:
        """Takes the checkpoint of a transaction, which begins with it if it has not."""

        def change() -> None:
            publication.checkpoint = checkpoint
            self.attempts.setdefault(publication.location, []).append(publication)
            self._broker.attempted(publication)

        self._with(publication, reply, change)

    def end(self, publication: Publication, *, commits: bool, reply: Reply) -> None:
        """Commits or aborts; answers an abort with the producer's new epoch."""
        stage = publication.stage
        decided = (Stage.COMMITTING, Stage.COMMITTED) if commits else (Stage.ABORTING, Stage.ABORTED)
        if publication.epoch != self.epoch:
            reply(FENCED)
            return
        if stage is Stage.OPEN and publication is self._publication:
            if commits and self._broker.tears():
                self._tear(publication, reply)
                return
            self._end(publication, commits=commits)
        elif stage is Stage.OPEN and not commits:  # nothing of it has arrived, nor will
            publication.stage = Stage.ABORTED
        elif stage not in decided:
            reply(FENCED)
            return
        if commits:
            # Answered once that is certain, which is before it shows.
            reply(DONE)
        else:
            self.epoch += 1
            epoch = self.epoch
            self._once_ended(lambda: reply(epoch))

    def time_out(self, publication: Publication) -> None:
        """Ends a transaction that has been open for too long."""
        if publication is self.unfinished:
            self._broker.counts["transactions timed out"] += 1
            self.fence()

    @property
    def unfinished(self) -> Publication | None:
        """The transaction that is open now, or that some partitions may not have ended."""
        publication = self._publication
        unfinished = (Stage.OPEN, Stage.TEARING)
        return publication if publication is not None and publication.stage in unfinished else None

    # --- what is read -------------------------------------------------------------------------------

    def last(self, location: str) -> Publication | None:
        """Returns the last attempt at a place."""
        attempts = self.attempts.get(location)
        return attempts[-1] if attempts else None

    def attempt(self, location: str, reply: Reply) -> None:
        """Answers with the last attempt at a place, or ``None``."""
        last = self.last(location)
        reply(Attempt(last.checkpoint, last.trace) if last is not None else None)

    def find(self, records: Sequence[MarkedRecord], trace: str, reply: Reply) -> None:
        """Answers which records of an attempt are committed, and of which the log does not tell."""
        reply(self.found(records, trace))

    def found(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Compares records with what an attempt has committed, one by one."""
        broker = self._broker
        left = self.committed(trace)
        published, undecided = [], []
        for record in records:
            content = content_of(record)
            if broker.blind and broker.chance.random() < broker.blind:
                undecided.append(record.id)
            elif left[content]:
                left[content] -= 1
                published.append(record.id)
        if records and not undecided:
            return Found(published)
        committed = broker.log.transactions[trace].fates.get(CHECKPOINTS, False)
        return Found(published, undecided, committed, "the log does not tell")

    def committed(self, trace: str) -> Counter[Content]:
        """Returns what is in the log of an attempt."""
        return self._broker.log.committed(trace)

    # --- how transactions go on ---------------------------------------------------------------------

    def _with(self, publication: Publication, reply: Reply, change: Callable[[], None]) -> None:
        """Makes a change to a transaction of the producer in force, once the one before has ended."""
        if publication is not self._publication and self._publication is not None and self._ending:
            self._waiting.append(lambda: self._with(publication, reply, change))
            return
        if publication.epoch != self.epoch or publication.stage is not Stage.OPEN:
            reply(FENCED)
            return
        if publication is not self._publication:
            if self.unfinished is not None:
                reply(FENCED)
                return
            self._publication = publication
            self._broker.log.transactions[publication.trace] = publication
            self._broker.scheduler.after(TRANSACTION_SECONDS, self.time_out, publication)
        change()
        reply(DONE)

    @property
    def _ending(self) -> bool:
        ending = (Stage.COMMITTING, Stage.ABORTING, Stage.TEARING)
        return self._publication is not None and self._publication.stage in ending

    def _once_ended(self, then: Callable[[], None]) -> None:
        if self._ending:
            self._waiting.append(then)
        else:
            then()

    def _end(self, publication: Publication, *, commits: bool) -> None:
        broker = self._broker
        broker.audit.counts["transactions committed" if commits else "transactions aborted"] += 1
        if commits:
            broker.asked(publication)
        broker.log.decide(publication, commits=commits)
        broker.scheduler.after(broker.completion(), self._complete, publication)

    def _complete(self, publication: Publication) -> None:
        broker = self._broker
        if broker.away_until > broker.scheduler.now:
            broker.scheduler.at(broker.away_until, self._complete, publication)
            return
        broker.log.complete(publication)
        self._ended()

    def _ended(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    # --- torn transactions --------------------------------------------------------------------------

    def _tear(self, publication: Publication, reply: Reply) -> None:
        """Leaves each partition to itself; answers with an error or, by a chance, not in time."""
        broker, random = self._broker, self._broker.chance.random
        broker.asked(publication)
        publication.stage = Stage.TEARING
        broker.scheduler.after(random() * 0.01 if random() < 0.5 else REQUEST_SECONDS, reply, FENCED)
        self._end_parts(publication, [each for each in publication.partitions if random() < 0.5])

    def _end_parts(self, publication: Publication, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._broker.scheduler.after(self._broker.completion(), self._end_part, publication, partition)

    def _end_part(self, publication: Publication, partition: int) -> None:
        broker = self._broker
        if partition in publication.fates:
            return
        if broker.away_until > broker.scheduler.now:
            broker.scheduler.at(broker.away_until, self._end_part, publication, partition)
            return
        broker.log.tear(publication, partition, commits=broker.chance.random() < 0.5)
        if len(publication.fates) == len(publication.partitions):
            publication.stage = Stage.TORN
            self._count(publication)
            self._ended()

    def _count(self, publication: Publication) -> None:
        """Counts transactions by what became of their checkpoint and of their records."""
        fates = dict(publication.fates)
        named, counts = fates.pop(CHECKPOINTS), self._broker.audit.counts
        some = "all" if all(fates.values()) else "some" if any(fates.values()) else "none"
        counts["transactions torn"] += len({named, *fates.values()}) > 1
        if fates:
            counts[f"unknown: checkpoint {'yes' if named else 'no'}, records {some}"] += 1
