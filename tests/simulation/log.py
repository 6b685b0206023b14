"""The log of the topic, as a reader of committed messages comes to know it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from itertools import chain

from outbox_api import MarkedRecord

from .audit import Audit
from .trail import Session, serial_of

CHECKPOINTS = -1
"""Stands for the partition of another topic in which a transaction writes its checkpoint."""

Content = tuple[str, str | bytes | None]
"""The key and the value of a record; records of one key may be equal."""


class Stage(Enum):
    """Where a transaction has come to."""

    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    TEARING = auto()
    COMMITTED = auto()
    ABORTED = auto()
    TORN = auto()


class Publication:
    """One transaction at the broker.

    Attributes:
        session: Whose it is.
        epoch: The epoch of the producer that began it.
        stage: Where it has come to.
        added: The partitions that it ends, that of the checkpoint included.
        parts: Partition → the numbers of the records appended there so far, and what they contain; 0 for what
            is no copy of a record by itself.
        fates: Partition → whether it has committed its part of the transaction; without those that have not
            ended it.
        sender: The name of its sender.
        location: Where it writes the checkpoint.
        checkpoint: The checkpoint that it carries; empty so far.
        trace: What all records carry that its producer sends as one transaction. A late end may have made
            several of it.
    """

    __slots__ = (
        "added", "checkpoint", "epoch", "fates", "location", "parts", "sender", "session", "stage", "trace",
    )  # fmt: skip

    def __init__(
        self, session: Session, epoch: int, location: str, sender: str = "", trace: str = ""
    ) -> None:
        self.session = session
        self.epoch = epoch
        self.location = location
        self.sender = sender
        self.trace = trace
        self.stage = Stage.OPEN
        self.added: list[int] = []
        self.parts: dict[int, list[tuple[int, Content]]] = {}
        self.fates: dict[int, bool] = {}
        self.checkpoint = ""

    def another(self) -> Publication:
        """Returns another transaction in which its producer goes on, and does not know of."""
        other = Publication(self.session, self.epoch, self.location, self.sender, self.trace)
        other.checkpoint = self.checkpoint
        return other

    def add(self, partition: int) -> None:
        """Takes that it ends a partition, too."""
        if partition not in self.added:
            self.added.append(partition)

    @property
    def numbers(self) -> Sequence[int]:
        """The records appended so far."""
        return [number for part in self.parts.values() for number, _ in part if number]


class Log:
    """The partitions of the topic.

    A reader comes no further than to the first record of a transaction that has not ended there, and never
    sees the records of one that was aborted there.

    Attributes:
        transactions: Trace → the transactions that carry it.
    """

    def __init__(self, audit: Audit, partitions: int, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._audit = audit
        self._clock = clock
        self._unread: list[deque[tuple[Session, int, bool, Publication | None]]] = [
            deque() for _ in range(partitions)
        ]
        self.transactions: defaultdict[str, list[Publication]] = defaultdict(list)

    def append(self, partition: int, session: Session, number: int, *, stale: bool = False) -> None:
        """Appends a record without a transaction."""
        self._audit.appended(session, number, stale=stale)
        if self._unread[partition]:
            self._unread[partition].append((session, number, stale, None))
        else:
            self._audit.seen(session, number, stale=stale, now=self._clock())

    def append_to(self, publication: Publication, partition: int, records: Sequence[MarkedRecord]) -> None:
        """Appends records as part of a transaction."""
        publication.add(partition)
        part = publication.parts.setdefault(partition, [])
        part += [(number_of(each), content_of(each)) for each in records]
        session, numbers = publication.session, [*filter(None, map(number_of, records))]
        self._unread[partition].extend((session, number, False, publication) for number in numbers)
        if publication.stage is Stage.COMMITTING:
            self._commit_copies(session, numbers)

    def decide(self, publication: Publication, *, commits: bool) -> None:
        """Takes that it is certain whether a transaction commits, as a whole."""
        publication.stage = Stage.COMMITTING if commits else Stage.ABORTING
        if commits:
            self._commit_copies(publication.session, publication.numbers)

    def complete(self, publication: Publication) -> None:
        """Takes that a transaction has ended, as it was decided."""
        committed = publication.stage is Stage.COMMITTING
        publication.stage = Stage.COMMITTED if committed else Stage.ABORTED
        for partition in publication.added:
            self._end(publication, partition, committed)

    def tear(self, publication: Publication, partition: int, *, commits: bool) -> None:
        """Takes that one partition ends its part of a transaction, whatever the others do."""
        if commits:
            numbers = [number for number, _ in publication.parts.get(partition, ()) if number]
            self._commit_copies(publication.session, numbers)
        self._end(publication, partition, commits)

    def committed(self, trace: str | None) -> Counter[Content]:
        """Returns what a transaction has committed, and how often; what all have for ``None``."""
        found = chain(*self.transactions.values()) if trace is None else self.transactions[trace]
        return Counter(
            content
            for publication in found
            for partition, part in publication.parts.items()
            if publication.fates.get(partition)
            for _, content in part
        )

    def has_checkpoint(self, trace: str) -> bool:
        """Returns whether a checkpoint is committed."""
        return any(each.fates.get(CHECKPOINTS) for each in self.transactions[trace])

    def _commit_copies(self, session: Session, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._audit.committed_copy(session, number)

    def _end(self, publication: Publication, partition: int, committed: bool) -> None:
        publication.fates[partition] = committed
        if partition != CHECKPOINTS:
            self._read_on(self._unread[partition], partition)

    def _read_on(self, unread: deque[tuple[Session, int, bool, Publication | None]], partition: int) -> None:
        while unread:
            session, number, stale, publication = unread[0]
            committed = publication is None or publication.fates.get(partition)
            if committed is None:
                return
            unread.popleft()
            if committed:
                self._audit.seen(session, number, stale=stale, now=self._clock())


def number_of(record: MarkedRecord) -> int:
    """Returns the number of the record of which this is a copy; 0 for a part of one, see ``transformed``."""
    return serial_of(record) if record.partition is None else 0


def content_of(record: MarkedRecord) -> Content:
    """Returns by what a record is compared with another."""
    return record.key, record.value
