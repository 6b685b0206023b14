"""The dialect seam: the outbox table of one kind of database.

Three ways to mark exist; a dialect picks the one that its database does in the least SQL: one statement
(``UPDATE … RETURNING``), one statement with ``OUTPUT``, or a transaction (``SELECT … FOR UPDATE``,
``UPDATE``, commit).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from outbox_sdk.affinity import Condition
from outbox_sdk.finding import Finding
from outbox_sdk.lease import Lease
from outbox_sdk.parking import DeadLetters, Parked, Poison
from outbox_sdk.record import Batch, MarkedRecord, Record

UNBOUNDED = 2**62
"""So many bytes that no mark is bounded by them."""


class Capability(StrEnum):
    """What a dialect can do beyond the contract; the conformance suite asks these, never a name."""

    MARK_IN_ONE_STATEMENT = "mark in one statement"
    BYTES_VALUES = "bytes values"
    CONCURRENT_DDL = "concurrent ddl"
    INTAKE = "intake"
    CONCURRENT_WRITERS = "concurrent writers"
    """Several transactions may hold uncommitted records at once, and marks go on meanwhile."""


@dataclass(frozen=True, slots=True)
class Fence:
    """One lane's right to work, compared by every mark, purge and reset.

    Attributes:
        lane: The lane's number, from 0.
        lanes: How many lanes share the outbox; a record belongs to lane ``hash(key) mod lanes``.
        token: Raised by every new leader; an older one is dead.
        epoch: Raised whenever the lane starts anew under one leader, so that a frozen copy of the
            lane is dead too.
        identity: What tells the lane from those of any other outbox of the same name, in whatever database:
            letters and digits, drawn by chance when the lane's row was made and never changed.
    """

    lane: int
    lanes: int
    token: int
    epoch: int
    identity: str = ""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """What the fence says of one lane, for operators.

    Attributes:
        fence: The lane's current fence.
        holder: The name of the process that holds it.
        since: When that leader raised the token (database clock).
        heartbeat_at: When the lane last wrote its reading; ``None`` before the first.
        age: Seconds since ``heartbeat_at`` by the database's clock; ``None`` before the first.
        metrics: The lane's last meter reading, as it was written.
    """

    fence: Fence
    holder: str
    since: datetime
    heartbeat_at: datetime | None
    age: float | None
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much waits in the outbox.

    Attributes:
        records: Rows in the table, marked or not; an estimate when ``exact`` is false.
        exact: Whether ``records`` was counted.
        oldest: Age in seconds, by the database's clock, of the oldest row whose key is not parked; ``None``
            for none. Behind very many rows of parked keys, an upper bound.
    """

    records: int
    exact: bool
    oldest: float | None


@dataclass(frozen=True, slots=True)
class Insert:
    """How the stasher writes a record in this dialect.

    Attributes:
        sql: One INSERT whose parameters are written ``{name}``, and braces twice; the stasher turns it into
            the connection's own style.
        bind: Makes the parameters of a record; raises ``ValueError`` for one that the table cannot hold.
    """

    sql: str
    bind: Callable[[Record], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class TransactionalLane:
    """What the fence notes of a lane that publishes in transactions.

    Attributes:
        lanes: How many lanes there were.
        sender: The name that its transactional sender was opened under; empty where an earlier version noted
            it, which did not say.
        location: Where that sender keeps the lane's checkpoint, see ``TransactionalSender.location``; empty
            likewise.
    """

    lanes: int
    sender: str = ""
    location: str = ""


class Advanced(NamedTuple):
    """What :meth:`OutboxTable.advance` did.

    Attributes:
        purged: How many rows it deleted.
        records: The rows it marked, ordered by id.
    """

    purged: int
    records: list[MarkedRecord]


class OutboxTable(Protocol):
    """A connection to one outbox table and its fence; used by one thread at a time.

    A lane has two: it marks and resets over the one, never both at once, and purges over the other meanwhile.

    Every method raises ``DriverError`` when the database refuses or cannot be reached. After a retryable
    one the outcome of the call is unknown and the connection may be dead: close it and connect anew. So does
    a call on a connection that was closed, by whomever.
    """

    @property
    def name(self) -> str:
        """The outbox's name as the database knows it, with its schema: the same however it was configured."""
        ...

    def identity(self) -> str:
        """Returns what tells this outbox from every other, of whatever name and in whatever database.

        Letters and digits, drawn by chance when it was first asked for, kept beside the fence durably, and
        never changed. Two processes that ask at once get the same.
        """
        ...

    def bump(self, lanes: int, holder: str) -> int:
        """Makes the caller the leader: raises the token of every lane durably, before it returns.

        Creates the rows of lanes that are new; rows beyond ``lanes`` are raised too, so that a leader
        with another number of lanes is fenced as well.

        Returns:
            The new token, larger than any before.
        """
        ...

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        """Starts one attempt at a lane under the leader's token, which ends every earlier attempt.

        Raises:
            LeadershipLost: The token is no longer the lane's.
        """
        ...

    def mark(
        self,
        fence: Fence,
        leader_id: UUID,
        limit: int,
        max_bytes: int = UNBOUNDED,
        excluded_keys: Collection[str] = (),
    ) -> list[MarkedRecord]:
        """Claims the lane's earliest rows that ``leader_id`` has not claimed (docs/algorithm.md, step A3).

        Checks the fence in the same statement or transaction, holding it against a concurrent bump.
        Always starts at the table's head, leaves out the rows of parked and of excluded keys, and need not be
        durable. A row that another transaction has locked is waited for, or its whole key is left out.

        Args:
            fence: The caller's fence.
            leader_id: What the rows will carry.
            limit: How many rows to claim at most.
            max_bytes: How many bytes the claimed rows may have together, by their keys, values and headers.
                Rows are claimed from the first up to the one that would exceed it. A row that exceeds it
                alone counts nothing: it is claimed and returned as faulty, without its value and headers,
                which are never loaded.
            excluded_keys: Keys of which no row is claimed. Another call may exclude others: a key that is
                excluded no longer is claimed from its earliest row on.

        Returns:
            The rows, ordered by id; none when nothing waits.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was marked.
        """
        ...

    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> int:
        """Deletes rows that still carry ``leader_id`` (docs/algorithm.md, B1), durably before it returns.

        Idempotent: a row that is gone is left out of the count.

        Returns:
            How many rows were deleted.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was deleted.
        """
        ...

    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> int:
        """Clears the leader id of rows that still carry ``leader_id`` (docs/algorithm.md, B2). Idempotent.

        Returns:
            How many rows were reset.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was reset.
        """
        ...

    def advance(  # noqa: PLR0917 - finished and following batches, each with what bounds it
        self,
        fence: Fence,
        finished: Sequence[Batch],
        leader_id: UUID,
        limit: int,
        pending: Sequence[UUID],
        max_bytes: int = UNBOUNDED,
    ) -> Advanced:
        """Deletes batches that are published, and marks the next: one transaction, durable on return.

        Marks as :meth:`mark` does, but durably, and leaves out rows that carry one of ``pending`` (of a batch
        that is marked and not finished) or ``leader_id``. A batch that is in neither ``finished`` nor
        ``pending`` when rows are marked was abandoned: its rows are marked again, in their place.

        Args:
            fence: The caller's fence.
            finished: Batches whose rows are to be deleted where they still carry the batch's leader id.
            leader_id: The new batch's name, never used before.
            limit: How many rows to mark at most; 0 only deletes.
            pending: The names of batches that are marked and not finished; of no matter when ``limit`` is 0.
            max_bytes: As for :meth:`mark`.

        Returns:
            How many rows were deleted, and the marked ones.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was deleted or marked.
        """
        ...

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        """Notes durably that, and how, the lane publishes in transactions.

        Or, with ``None``, that it has ended that: its checkpoint has nothing to tell any more. Bumps and new
        attempts do not change the note.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was noted.
        """
        ...

    def transactional_lanes(self) -> dict[int, TransactionalLane]:
        """Returns the lanes that are noted to publish in transactions, as they may be after a crash.

        Returns:
            Lane → its note, ordered by lane. It may name lanes that are no more.
        """
        ...

    def park(self, fence: Fence, leader_id: UUID, poisons: Sequence[Poison], ids: Sequence[int]) -> int:
        """Parks the keys of poisonous records, and clears the leader id of rows, durably before it returns.

        In one transaction that holds the fence against a concurrent bump, as a mark does: copies each of
        ``poisons`` whose row still carries ``leader_id`` to the dead letters, whereby its key is parked, and
        resets those of ``ids`` that do. Idempotent: a row that is reset already is left out.

        Where an outbox gives out ids anew, a letter may have the id of such a row: one that is skipped, or of
        another key. It is the only copy of its record, and takes an id of its own: negative, and below those
        of all letters of the outbox, so that several keep their order.

        Args:
            fence: The caller's fence.
            leader_id: What the rows carry.
            poisons: The heads; their ids are among ``ids``.
            ids: All rows of these keys that ``leader_id`` has marked.

        Returns:
            How many keys were parked.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was changed.
        """
        ...

    def parked(self) -> Parked:
        """Returns how much is parked, at the cost of a look at the parked keys only."""
        ...

    def heartbeat(self, fence: Fence, metrics: Mapping[str, Any]) -> None:
        """Writes the lane's meter reading beside its fence, for ``outbox status``.

        Args:
            fence: The caller's fence.
            metrics: Name → number, or anything else that JSON can hold.

        Raises:
            LeadershipLost: The fence is no longer the caller's.
        """
        ...

    def lane_statuses(self) -> list[LaneStatus]:
        """Returns what the fence says of each lane, ordered by lane; empty before the first leader."""
        ...

    def backlog(self) -> Backlog:
        """Returns how much waits, without a full scan of a large table."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...


class Dialect(Protocol):
    """One outbox in one database. Holds options only; connects late."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this dialect can do beyond the contract."""
        ...

    def connect(self, eligible: Sequence[Condition] = ()) -> OutboxTable:
        """Connects to the outbox and makes sure that it can be harvested.

        Args:
            eligible: Conditions of which at least one must hold for a row to be marked; none means all.

        Raises:
            DriverError: Unreachable (retryable), or a missing table, column or permission (not retryable),
                saying which and how to cure it.
        """
        ...

    def dead_letters(self) -> DeadLetters:
        """Connects to the dead letters of the outbox, for an operator.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        ...

    def lease(self) -> Lease:
        """Connects to the outbox's lease, for an elector that needs nothing but the database.

        Raises:
            DriverError: As for :meth:`connect`.
        """
        ...

    def stash_connection(self) -> Any:
        """Opens a DB-API connection to the outbox's database, as an application that stashes would have.

        Transactions are on, and the caller commits and closes. For ``outbox pump``.

        Raises:
            DriverError: Unreachable, or not permitted.
        """
        ...

    def ddl(self) -> Sequence[str]:
        """Returns the statements that create what does not exist of outbox, fence and dead letters."""
        ...

    def create(self) -> Sequence[str]:
        """Creates what does not exist of outbox, fence and dead letters.

        Touches no existing table, except that it adds what the fence of an earlier version lacks. Idempotent.

        Returns:
            The names of the tables created.

        Raises:
            DriverError: Unreachable, or not permitted (the message carries the DDL for whoever may).
        """
        ...

    def check(self) -> Sequence[Finding]:
        """Looks at everything that could be wrong with the database side; never raises."""
        ...
