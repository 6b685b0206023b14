"""The broker's transactions: one producer at a time for each transactional id, and what it has committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .log import Publication, Stage
from .requests import Reply

if TYPE_CHECKING:
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
        checkpoints: Place → the checkpoint that was committed there last.
    """

    def __init__(self, broker: Broker) -> None:
        self.epoch = 0
        self.checkpoints: dict[str, str] = {}
        self._broker = broker
        self._publication: Publication | None = None
        self._waiting: list[Callable[[], None]] = []

    def initialize(self, reply: Reply) -> None:
        """Takes a new producer: fences the former, aborts what it has open, waits for what is ending."""
        self.fence()
        epoch = self.epoch
        self._once_ended(lambda: reply(epoch))

    def fence(self) -> None:
        """Refuses the producer in force from now on, and aborts what it has open."""
        self.epoch += 1
        if self._publication is not None and self._publication.stage is Stage.OPEN:
            self._end(self._publication, commits=False)

    def append(self, publication: Publication, partition: int, numbers: Sequence[int], reply: Reply) -> None:
        """Takes records of a transaction, which begins with them if it has not."""
        self._with(publication, reply, lambda: self._broker.log.append_to(publication, partition, numbers))

    def name(self, publication: Publication, checkpoint: str, reply: Reply) -> None:
        """Takes the checkpoint of a transaction, which begins with it if it has not."""
        self._with(publication, reply, lambda: setattr(publication, "checkpoint", checkpoint))

    def end(self, publication: Publication, *, commits: bool, reply: Reply) -> None:
        """Commits or aborts; answers an abort with the producer's new epoch."""
        stage = publication.stage
        decided = (Stage.COMMITTING, Stage.COMMITTED) if commits else (Stage.ABORTING, Stage.ABORTED)
        if publication.epoch != self.epoch:
            reply(FENCED)
            return
        if stage is Stage.OPEN and publication is self._publication:
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

    def read_checkpoint(self, location: str, reply: Reply) -> None:
        """Answers with the checkpoint at a place or ``None``, once no transaction is about to change it."""
        self._once_ended(lambda: reply(self.checkpoints.get(location)))

    def time_out(self, publication: Publication) -> None:
        """Aborts a transaction that has been open for too long."""
        if publication is self._publication and publication.stage is Stage.OPEN:
            self._broker.counts["transactions timed out"] += 1
            self.fence()

    @property
    def open(self) -> Publication | None:
        """The transaction that is open now."""
        publication = self._publication
        return publication if publication is not None and publication.stage is Stage.OPEN else None

    def _with(self, publication: Publication, reply: Reply, change: Callable[[], None]) -> None:
        """Makes a change to a transaction of the producer in force, once the one before has ended."""
        if publication is not self._publication and self._publication is not None and self._ending:
            self._waiting.append(lambda: self._with(publication, reply, change))
            return
        if publication.epoch != self.epoch or publication.stage is not Stage.OPEN:
            reply(FENCED)
            return
        if publication is not self._publication:
            if self.open is not None:
                reply(FENCED)
                return
            self._publication = publication
            self._broker.scheduler.after(TRANSACTION_SECONDS, self.time_out, publication)
        change()
        reply(DONE)

    @property
    def _ending(self) -> bool:
        publication = self._publication
        return publication is not None and publication.stage in (Stage.COMMITTING, Stage.ABORTING)

    def _once_ended(self, then: Callable[[], None]) -> None:
        if self._ending:
            self._waiting.append(then)
        else:
            then()

    def _end(self, publication: Publication, *, commits: bool) -> None:
        broker = self._broker
        broker.audit.counts["transactions committed" if commits else "transactions aborted"] += 1
        broker.log.decide(publication, commits=commits)
        if commits:
            broker.decided(publication)
        broker.scheduler.after(broker.completion(), self._complete, publication)

    def _complete(self, publication: Publication) -> None:
        broker = self._broker
        if broker.away_until > broker.scheduler.now:
            broker.scheduler.at(broker.away_until, self._complete, publication)
            return
        broker.log.complete(publication)
        if publication.stage is Stage.COMMITTED and publication.checkpoint:
            self.checkpoints[publication.location] = publication.checkpoint
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
