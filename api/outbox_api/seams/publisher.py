"""The publisher seam: sends marked records to a broker and reports each delivery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from outbox_api.base.finding import Finding
from outbox_api.base.record import MarkedRecord

MAX_CHECKPOINT = 100_000
"""How many characters a checkpoint has at most: enough for 20,000 scattered ids, and small for a message."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that the broker, or the client on its behalf, did not take.

    Attributes:
        record: The record as it was sent.
        reason: What happened, free of secrets.
        retryable: ``False`` when sending the same bytes again cannot succeed (too large, unknown topic
            where topics are not created, not authorized, not serializable).
        suspect: Whether a transaction, or a run, failed as a whole, and any of its records may be at fault.
            The next transaction ends before this record; if it is the first, the lane waits before it
            publishes them again. The records of such a run are sent one by one.
        innocent: Whether it failed because of another record, so that this is none of its failed attempts.
    """

    record: MarkedRecord
    reason: str
    retryable: bool
    suspect: bool = False
    innocent: bool = False


@dataclass(slots=True)
class Deliveries:
    """What became of records since the last poll.

    Attributes:
        delivered: Records of which the broker itself has said that they are durable (in Kafka: on all in-sync
            replicas, at an offset). What a client concludes from other answers is not enough.
        failed: All others; whether the broker holds a copy all the same is unknown.
    """

    delivered: list[MarkedRecord] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)


class Attempt(NamedTuple):
    """The last transaction of a lane that may have been committed, whatever became of it.

    Attributes:
        checkpoint: Its checkpoint.
        trace: By what its sender recognises its records in the log; opaque to callers.
    """

    checkpoint: str
    trace: str = ""


class Found(NamedTuple):
    """Which records of an attempt are in the log, for readers of committed records.

    Attributes:
        published: The ids of those that are.
        undecided: The ids of those of which the log does not tell. All others are not in the log.
        committed: Whether the attempt's checkpoint was committed; ``False`` if records were looked for and
            all of them are decided.
        reason: Why something is undecided.
    """

    published: Sequence[int]
    undecided: Sequence[int] = ()
    committed: bool = False
    reason: str = ""


class Sender(Protocol):
    """One lane's connection to the broker; used by one thread at a time."""

    def send(self, records: Sequence[MarkedRecord]) -> None:
        """Hands records to the client for sending, in the order given, and returns without waiting.

        Never raises for the sake of one record: what the client will not take is reported by the next
        :meth:`poll` as a failure. Every record handed over is reported exactly once.

        Raises:
            DriverError: The client as a whole is beyond repair; open a new sender.
        """
        ...

    def poll(self, timeout: float) -> Deliveries:
        """Returns what became of sent records.

        Args:
            timeout: Seconds to wait for the first report; 0 only collects what is there.

        Raises:
            DriverError: The client as a whole is beyond repair; open a new sender.
        """
        ...

    def close(self, timeout: float) -> Deliveries:
        """Waits up to ``timeout`` seconds for outstanding deliveries, drops the rest, and disconnects.

        Returns:
            The last reports. Records without one have an unknown outcome: they may arrive later, but if the
            lane's next sender is opened in this process, not behind one of its records of the same key.
            Idempotent.
        """
        ...


@runtime_checkable
class RunSender(Sender, Protocol):
    """A sender that keeps the order of several records of a key in flight."""

    def send_runs(self, first: Sequence[MarkedRecord], others: Sequence[MarkedRecord]) -> None:
        """Hands records to the client for sending, of which several may have one key: its *run*.

        What is in the log of a run is always a prefix of it, its first record perhaps twice, and so is what
        is reported as delivered: behind a record that is not written, none is, whatever the client repeats.
        All records of a run that are behind one that failed are reported as failures, retryable; ``suspect``
        are those that the broker has refused together. Other runs may fail with them, ``innocent`` and
        retryable.

        Records without a report, ``suspect`` and ``innocent`` ones, may still arrive: also behind later
        records of their key, if the network delays them for longer than the sender waits.

        Args:
            first: The first records of runs, sent as by :meth:`send`. They are delivered with the
                ``partition`` that they were written to; of one without it, no others come. So a sender that
                is not ready for others leaves it out.
            others: Those that follow a first record, with its partition, once it is delivered. Nothing more
                of a run comes after a failure of one of its records was reported.

        Raises:
            DriverError: The client as a whole is beyond repair; open a new sender.
        """
        ...


class TransactionalSender(Protocol):
    """One lane's transactions; used by one thread at a time.

    Opening it ends what an earlier sender of the same lane was about, wherever that runs: its open
    transaction is aborted, one that is being committed is waited for, and it can begin no other.
    """

    @property
    def location(self) -> str:
        """Where this sender keeps the checkpoint: names broker and whatever else the settings could change.

        Opaque to callers, who compare it, keep it, and pass it to :meth:`attempt`.
        """
        ...

    def attempt(self, location: str = "") -> Attempt | None:
        """Returns the lane's last transaction whose checkpoint is kept at ``location``, committed or not.

        Every transaction that may have been committed is that one, or was begun before it. An empty place is
        this sender's own. ``None`` when the broker has none: none was ever attempted, or it was deleted.

        Raises:
            DriverError: The broker cannot be reached or refuses; or ``location`` is at another broker (not
                retryable).
        """
        ...

    def find(self, records: Sequence[MarkedRecord], trace: str) -> Found:
        """Looks for the records of the last attempt in the log, one by one.

        Brokers may commit a part of a transaction and abort the rest, the checkpoint's part included. So the
        checkpoint does not tell what became of the records.

        Args:
            records: Records of the attempt, in the order in which they were published; none only to learn
                whether the attempt's checkpoint was committed.
            trace: The attempt's, from :meth:`attempt`; or that of an earlier one.

        Returns:
            What is certain, and what the log does not tell: a topic was deleted, a record has been compacted
            away, others have published the same bytes.

        Raises:
            DriverError: The broker cannot be reached or refuses.
        """
        ...

    def publish(self, records: Sequence[MarkedRecord], checkpoint: str) -> list[Failure]:
        """Publishes records in the order given, and the checkpoint with them: all or nothing.

        Args:
            records: What to publish; none only writes the checkpoint.
            checkpoint: Up to ``MAX_CHECKPOINT`` ASCII characters, never empty. They mean nothing to the
                sender.

        Returns:
            Nothing once the transaction is committed. Otherwise it was aborted, and these are the records
            that did not go through, the first of each key; no reader of committed messages sees any of
            ``records``.

        Raises:
            DriverError: Whether the transaction was committed is unknown, or somebody else has opened the
                lane: close this sender and open another, whose :meth:`attempt` and :meth:`find` tell.
            Exception: Any other is taken for the fault of a record. The transaction was aborted or not begun.
                The caller looks for the record in smaller batches.
        """
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...


class Publisher(Protocol):
    """Makes senders. Holds options only, so that it can be made anywhere from the same options."""

    def open(self, lane: str) -> Sender:
        """Connects a sender for one lane.

        Args:
            lane: A name that is the same for every holder of the lane ("outbox.3").
        """
        ...

    def prepare(self, topics: Sequence[str], partitions: int) -> Sequence[str]:
        """Creates those of ``topics`` that are missing, with ``partitions`` partitions each.

        With no topics it only makes sure that the broker answers.

        Returns:
            The topics created. Idempotent.

        Raises:
            DriverError: The broker cannot be reached or refuses.
        """
        ...

    def check(self, *, transactional: bool) -> Sequence[Finding]:
        """Looks at everything that could be wrong between here and the broker; never raises.

        Args:
            transactional: Whether transactional senders will be opened: what makes them impossible or unsafe
                is an error then, and of no interest otherwise. A publisher that has none says so by an error.
        """
        ...


@runtime_checkable
class TransactionalPublisher(Protocol):
    """What a publisher has in addition if it can deliver exactly once; others leave it out."""

    def open_transactional(self, lane: str) -> TransactionalSender:
        """Connects one lane's transactional sender, and ends what an earlier one was about.

        Args:
            lane: As for :meth:`open`; two outboxes that share a broker have different names.

        Raises:
            DriverError: The broker cannot be reached (retryable), or does not do transactions.
        """
        ...
