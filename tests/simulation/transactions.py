"""The broker's transactions: one producer at a time for each transactional id, and what it has attempted.

The broker may tear a transaction: some partitions commit their part, and others abort it, that of the
checkpoint included, each independently of the others. It tears only a transaction whose commit was asked for,
and then it does not answer that it was committed. Some partitions end their part soon, and the others once
another producer has come or the transaction has timed out.

A request to end a transaction names no transaction but a producer's epoch. One that was sent twice may arrive
a second time in the middle of a later transaction, and ends that one. The producer does not know of it: what
follows is refused, or begins another transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outbox_api import MarkedRecord

from .attempts import Attempts
from .log import CHECKPOINTS, Publication, Stage
from .requests import REQUEST_SECONDS, Reply

if TYPE_CHECKING:
    from .broker import Broker

TRANSACTION_SECONDS = 2.0
"""How long a transaction may be open before the broker aborts it."""
DONE = "done"
FENCED = "fenced"
"""The answer to a producer whose epoch, or whose transaction, is no longer the one in force."""
INVALID = "invalid state"
"""The answer to a request for a transaction that is not open, or has ended otherwise."""
LATE_SHARE = 0.2
"""At which part of the requests one arrives that the network has kept."""


class TransactionalId(Attempts):
    """What the broker knows under one transactional id.

    Attributes:
        epoch: That of the producer in force; a request with another is refused.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.epoch = 0
        self._late: list[tuple[Publication, bool]] = []
        self._outside: list[Publication] = []
        self._publication: Publication | None = None
        self._waiting: list[Callable[[], None]] = []

    def initialize(self, reply: Reply) -> None:
        """Takes a new producer: fences the former, aborts what it has open, waits for what is ending."""
        self._deliver_late()
        self.fence()
        epoch = self.epoch
        self._once_ended(lambda: reply(epoch))

    def fence(self) -> None:
        """Refuses the producer in force from now on, and ends what it has open."""
        self.epoch += 1
        self._end_outside([each.added[0] for each in self._outside], commits=False)
        publication = self.unfinished
        if publication is not None and publication.stage is Stage.OPEN:
            self._end(publication, commits=False)
        elif publication is not None:
            self._end_parts(publication, publication.added)

    def add(self, publication: Publication, partition: int, reply: Reply) -> None:
        """Takes a partition into a transaction, which begins with it unless one is open."""
        self._deliver_late()
        if self._ending:
            self._waiting.append(lambda: self.add(publication, partition, reply))
            return
        current = self.unfinished
        if publication.epoch != self.epoch or (current is not None and current.trace != publication.trace):
            reply(FENCED)
            return
        (current or self._begin(publication)).add(partition)
        reply(DONE)

    def append(
        self, publication: Publication, partition: int, records: Sequence[MarkedRecord], reply: Reply
    ) -> None:
        """Takes records of a transaction."""
        self._into(publication, partition, reply, lambda into: self._append(into, partition, records))

    def name(self, publication: Publication, checkpoint: str, reply: Reply) -> None:
        """Takes the checkpoint of a transaction."""

        def change(into: Publication) -> None:
            into.checkpoint = publication.checkpoint = checkpoint
            self.attempts.setdefault(into.location, []).append(into)
            self._broker.attempted(into)

        self._into(publication, CHECKPOINTS, reply, change)

    def end(self, publication: Publication, *, commits: bool, rises: bool, reply: Reply) -> None:
        """Commits or aborts what is open; answers an abort with the producer's epoch.

        Args:
            publication: What the producer means to end; the request names its epoch only.
            commits: Whether it commits.
            rises: Whether the epoch rises with the abort, as the producer has lost requests.
            reply: Takes the answer.
        """
        self._deliver_late()
        if publication.epoch != self.epoch:
            reply(FENCED)
            return
        current = self._publication
        stage = current.stage if current is not None and current.epoch == self.epoch else None
        if current is not None and stage is Stage.OPEN:
            if commits and self._broker.tears():
                self._tear(current, reply)
                return
            self._end(current, commits=commits)
        elif stage in (Stage.TEARING, Stage.TORN):
            reply(FENCED)
            return
        elif stage not in ((Stage.COMMITTING, Stage.COMMITTED) if commits
                           else (Stage.ABORTING, Stage.ABORTED)):  # fmt: skip
            reply(INVALID)
            return
        if commits:
            # Answered once that is certain, which is before it shows.
            reply(DONE)
        else:
            self.epoch += rises
            epoch = self.epoch
            self._once_ended(lambda: reply(epoch))

    def keep(self, publication: Publication, *, commits: bool) -> None:
        """Takes that the network keeps a copy of an end, which arrives at some later moment."""
        self._late.append((publication, commits))

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

    # --- how transactions go on ---------------------------------------------------------------------

    def _begin(self, publication: Publication) -> Publication:
        broker = self._broker
        begun = publication if publication.trace not in broker.log.transactions else publication.another()
        self._publication = begun
        broker.log.transactions[begun.trace].append(begun)
        broker.scheduler.after(TRANSACTION_SECONDS, self.time_out, begun)
        return begun

    def _into(
        self,
        publication: Publication,
        partition: int,
        reply: Reply,
        change: Callable[[Publication], None],
    ) -> None:
        """Makes a change to the transaction that has a partition.

        A partition takes records until the end of its transaction is written there. Behind that, a broker
        that verifies transactions refuses them. One that does not has a transaction be open there of which
        nobody knows, until the partition's next one ends.
        """
        self._deliver_late()
        current, broker = self._publication, self._broker
        if publication.epoch != self.epoch or (current is not None and current.stage is Stage.TEARING):
            reply(FENCED)
            return
        takes = current is not None and (current.stage is Stage.OPEN or self._ending)
        takes = takes and current is not None and current.trace == publication.trace
        if current is not None and takes and partition in current.added:
            change(current)
        elif broker.verifies:
            reply(INVALID)
            return
        else:
            broker.counts["records outside of transactions"] += 1
            outside = publication.another()
            outside.add(partition)
            broker.log.transactions[outside.trace].append(outside)
            self._outside.append(outside)
            change(outside)
        reply(DONE)

    def _append(self, into: Publication, partition: int, records: Sequence[MarkedRecord]) -> None:
        self._broker.log.append_to(into, partition, records)

    def _deliver_late(self) -> None:
        """Has a request that was sent twice arrive a second time, by a chance."""
        chance, counts = self._broker.chance, self._broker.counts
        if self._late and chance.random() < LATE_SHARE:
            publication, commits = self._late.pop(chance.randrange(len(self._late)))
            open_now = self._publication is not None and self._publication.stage is Stage.OPEN
            hits = publication.epoch == self.epoch and open_now
            counts["late ends of transactions" if hits else "late ends without effect"] += 1
            self.end(publication, commits=commits, rises=False, reply=lambda _: None)

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
        self._end_outside(publication.added, commits=publication.stage is Stage.COMMITTED)
        self._ended()

    def _end_outside(self, partitions: Sequence[int], *, commits: bool) -> None:
        for outside in [each for each in self._outside if each.added[0] in partitions]:
            self._outside.remove(outside)
            self._broker.log.decide(outside, commits=commits)
            self._broker.log.complete(outside)

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
        self._end_parts(publication, [each for each in publication.added if random() < 0.5])

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
        if len(publication.fates) == len(publication.added):
            publication.stage = Stage.TORN
            self._count(publication)
            self._ended()

    def _count(self, publication: Publication) -> None:
        """Counts transactions by what became of their checkpoint and of their records."""
        fates = dict(publication.fates)
        named, counts = fates.pop(CHECKPOINTS, False), self._broker.audit.counts
        some = "all" if all(fates.values()) else "some" if any(fates.values()) else "none"
        counts["transactions torn"] += len({named, *fates.values()}) > 1
        if fates:
            counts[f"unknown: checkpoint {'yes' if named else 'no'}, records {some}"] += 1
