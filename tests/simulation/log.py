"""The log of the topic, as a reader of committed messages comes to know it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto

from .audit import Audit
from .trail import Session


class Stage(Enum):
    """Where a transaction has come to."""

    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Publication:
    """One transaction at the broker.

    Attributes:
        session: Whose it is.
        epoch: The epoch of the producer that began it.
        stage: Where it has come to.
        numbers: The records appended so far.
        partitions: Where to.
        sender: The name of its sender.
        location: Where it writes the checkpoint.
        checkpoint: The checkpoint that it carries; empty so far.
    """

    __slots__ = ("checkpoint", "epoch", "location", "numbers", "partitions", "sender", "session", "stage")

    def __init__(self, session: Session, epoch: int, location: str, sender: str = "") -> None:
        self.session = session
        self.epoch = epoch
        self.location = location
        self.sender = sender
        self.stage = Stage.OPEN
        self.numbers: list[int] = []
        self.partitions: dict[int, None] = {}
        self.checkpoint = ""


class Log:
    """The partitions of the topic.

    A reader comes no further than to the first record of a transaction that has not ended, and never sees the
    records of one that was aborted.
    """

    def __init__(self, audit: Audit, partitions: int, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._audit = audit
        self._clock = clock
        self._unread: list[deque[tuple[Session, int, bool, Publication | None]]] = [
            deque() for _ in range(partitions)
        ]

    def append(self, partition: int, session: Session, number: int, *, stale: bool = False) -> None:
        """Appends a record without a transaction."""
        self._audit.appended(session, number, stale=stale)
        if self._unread[partition]:
            self._unread[partition].append((session, number, stale, None))
        else:
            self._audit.seen(session, number, stale=stale, now=self._clock())

    def append_to(self, publication: Publication, partition: int, numbers: Sequence[int]) -> None:
        """Appends records as part of a transaction."""
        publication.numbers.extend(numbers)
        publication.partitions[partition] = None
        session = publication.session
        self._unread[partition].extend((session, number, False, publication) for number in numbers)

    def decide(self, publication: Publication, *, commits: bool) -> None:
        """Takes that it is certain whether a transaction commits."""
        publication.stage = Stage.COMMITTING if commits else Stage.ABORTING
        if commits:
            for number in publication.numbers:
                self._audit.committed_copy(publication.session, number)

    def complete(self, publication: Publication) -> None:
        """Takes that a transaction has ended, as it was decided."""
        committed = publication.stage is Stage.COMMITTING
        publication.stage = Stage.COMMITTED if committed else Stage.ABORTED
        for partition in publication.partitions:
            self._read_on(self._unread[partition])

    def _read_on(self, unread: deque[tuple[Session, int, bool, Publication | None]]) -> None:
        while unread:
            session, number, stale, publication = unread[0]
            if publication is not None and publication.stage not in (Stage.COMMITTED, Stage.ABORTED):
                return
            unread.popleft()
            if publication is None or publication.stage is Stage.COMMITTED:
                self._audit.seen(session, number, stale=stale, now=self._clock())
