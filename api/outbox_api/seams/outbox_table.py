"""The connection to one outbox table: the contract that the lanes of a harvester rely on.

It is a protocol, as it is hot: a database may have a way of its own. The rest of an outbox is asked of base
classes: :class:`outbox_api.portable.PortableDialect` and what its methods return.

Three ways to mark exist; a dialect picks the one that its database does in the least SQL: one statement
(``UPDATE … RETURNING``), one statement with ``OUTPUT``, or a transaction (``SELECT … FOR UPDATE``,
``UPDATE``, commit).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from outbox_api.base.record import Batch, MarkedRecord
from outbox_api.seams.affinity import Takeover
from outbox_api.seams.fence import Fence, LaneStatus, TransactionalLane
from outbox_api.seams.kept import Tended
from outbox_api.seams.outbox_view import Backlog
from outbox_api.seams.parking import Parked, Poison
from outbox_api.seams.pausing import Pause

UNBOUNDED = 2**62
"""A number of bytes that limits no mark."""
MAX_OUTLINED_KEY = 512
"""The bytes of the longest key in an outline: one of many rows has room in memory."""


class Advanced(NamedTuple):
    """The result of :meth:`OutboxTable.advance`.

    Attributes:
        purged: How many rows it deleted. Where it selects as well, rows of the finished batches that were
            gone already may count.
        records: The rows it selected, ordered by id.
        newest: Their greatest ``create_time``, see :class:`Batch`; empty if there are none.
        locked: The rows of the finished batches that it did not delete, because others have locked them.
    """

    purged: int
    records: list[MarkedRecord]
    newest: str = ""
    locked: Sequence[Batch] = ()


class Changed(NamedTuple):
    """The result of :meth:`OutboxTable.purge`, :meth:`OutboxTable.reset` or :meth:`OutboxTable.park`.

    Attributes:
        rows: How many rows were deleted or reset, or keys parked.
        locked: Ids of rows that still carry the leader id, as others have locked them, or a row of their key
            before them. They are to be passed again later, together.
        kept: Ids of rows that nobody has locked, that the database was told to delete, and that are still
            there with the leader id: a trigger or row security keeps them. Only a purge returns any.
    """

    rows: int
    locked: Sequence[int] = ()
    kept: Sequence[int] = ()


class Outlined(NamedTuple):
    """A row as an outline has it.

    Attributes:
        id: Its id.
        topic: Its topic.
        key: Its key, never empty.
        partition: The partition that it names, or ``None``.
    """

    id: int
    topic: str
    key: str
    partition: int | None = None


class Outline(NamedTuple):
    """The result of :meth:`OutboxTable.outline`.

    Attributes:
        rows: The rows, ordered by id.
        last: The id of the last row that it has read, whether or not that is among them.
        read: How many rows it has read.
        newest: Their greatest ``create_time``, see :class:`Batch`.
    """

    rows: list[Outlined]
    last: int = 0
    read: int = 0
    newest: str = ""


class OutboxTable(Protocol):
    """A connection to one outbox table and its fence; used by one thread at a time.

    A lane has two: it marks and resets over the one, never both at once, and purges over the other meanwhile.

    Every method raises ``DriverError`` if the database refuses or cannot be reached. After a retryable one
    the outcome of the call is unknown and the connection may be broken: close it and connect anew. A call on
    a connection that somebody has closed raises a retryable one, too.

    What it has in common with :class:`outbox_api.portable.PortableView` is described there.
    """

    @property
    def name(self) -> str:
        """As of a view."""
        ...

    def transactional_lanes(self) -> Mapping[int, TransactionalLane]:
        """As of a view."""
        ...

    def parked(self) -> Parked:
        """As of a view."""
        ...

    def lane_statuses(self) -> list[LaneStatus]:
        """As of a view."""
        ...

    def backlog(self, paused: Collection[str] = ()) -> Backlog:
        """As of a view."""
        ...

    def peek(self, after: int, limit: int) -> list[MarkedRecord]:
        """As of a view."""
        ...

    def takeovers(self) -> Sequence[Takeover]:
        """As of a view."""
        ...

    def pauses(self) -> Sequence[Pause]:
        """As of a view."""
        ...

    def now(self) -> datetime:
        """As of a view."""
        ...

    def close(self) -> None:
        """Disconnects. Idempotent, and never raises."""
        ...

    def identity(self) -> str:
        """Returns what distinguishes this outbox from every other, of whatever name, in whatever database.

        Random letters and digits. They are created durably beside the fence when they are first asked for,
        and never changed. Two processes that ask at once get the same.
        """
        ...

    def bump(self, lanes: int, holder: str, expected: int | None = None) -> int:
        """Makes the caller the leader: raises the token of every lane, durably before it returns.

        Creates the rows of lanes that are new. Rows beyond ``lanes`` are raised, too, so that a leader with
        another number of lanes is fenced as well. All in one transaction.

        Args:
            lanes: The number of lanes.
            holder: The caller's name.
            expected: The token that is to be raised; ``None`` for whichever it is, as leaders do. 0 is the
                token before the first leader.

        Returns:
            The new token, the same for all lanes: higher than any before, by a random step
            (:func:`outbox_api.seams.fence.token_step`).

        Raises:
            LeadershipLost: The token is not the expected one; nothing was done.
        """
        ...

    def enter(self, lane: int, lanes: int, token: int) -> Fence:
        """Starts a lane under the leader's token: raises its epoch, which ends every earlier start.

        Raises:
            LeadershipLost: The token is no longer the lane's.
        """
        ...

    def mark(  # noqa: PLR0917 - a lane gives them by place
        self,
        fence: Fence,
        leader_id: UUID,
        limit: int,
        max_bytes: int = UNBOUNDED,
        excluded_keys: Collection[str] = (),
        source: int = 0,
        excluded_topics: Collection[str] = (),
    ) -> list[MarkedRecord]:
        """Claims the lane's earliest rows that ``leader_id`` has not claimed (docs/algorithm.md, step A3).

        Checks the fence in the same statement or transaction, and holds it against a concurrent bump.
        Always starts at the table's head, and leaves out the rows of parked and of excluded keys. Need not be
        durable. If another transaction has locked a row, the mark waits for it, or leaves out its whole key.

        Args:
            fence: The caller's fence.
            leader_id: What the rows will carry.
            limit: How many rows to claim at most.
            max_bytes: How many bytes the claimed rows may have together, by their keys, values and headers.
                Claims rows from the first up to the one that would exceed it. A row that exceeds it alone
                does not count: it is claimed and returned as faulty, without its value and headers, which are
                never loaded.
            excluded_keys: Keys of which no row is claimed. Another call may exclude others: a key that is no
                longer excluded is claimed from its earliest row on.
            source: The index of the condition, among those the connection was opened with, that rows must
                meet; ignored if there are none.
            excluded_topics: Topics of which no row is claimed, as with keys.

        Returns:
            The rows, ordered by id; none if nothing waits.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was marked.
        """
        ...

    def purge(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Deletes rows that still carry ``leader_id`` (docs/algorithm.md, B1), durably before it returns.

        Where several clusters harvest copies of the table and replication brings their marks, rows may be
        deleted by their ids, whatever they carry: the fence says that they are the caller's.

        Idempotent: a row that is gone does not count. If others have locked some of the rows, it deletes the
        rest after a wait, but none that is behind a locked one of its key, by their ids: if the lane ended
        then, its successor would publish the locked one behind it. It returns what it has left; for a while
        the connection then waits for no locked row. A dialect that cannot skip locked rows waits, and raises
        a retryable ``DriverError``.

        Returns:
            How many rows were deleted, and which are still there.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was deleted.
        """
        ...

    def reset(self, fence: Fence, leader_id: UUID, ids: Sequence[int]) -> Changed:
        """Clears the leader id of rows that still carry ``leader_id`` (docs/algorithm.md, B2). Idempotent.

        Locked rows are as for :meth:`purge`.

        Returns:
            How many rows were reset, and which others have locked.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was reset.
        """
        ...

    def advance(  # noqa: PLR0917 - a lane gives them by place
        self,
        fence: Fence,
        finished: Sequence[Batch],
        pending: Sequence[Batch],
        limit: int,
        max_bytes: int = UNBOUNDED,
        source: int = 0,
        excluded_keys: Collection[str] = (),
        excluded_topics: Collection[str] = (),
        dated: bool = False,
    ) -> Advanced:
        """Deletes batches that are published, and selects the next: one transaction, durable on return.

        Selects the lane's earliest rows that are in none of the batches, whatever their leader id, and
        changes nothing in them. Leaves out the rows of parked keys. Sees every row that was committed before
        the call, also one with a lower id than rows of earlier batches. Selecting waits for nobody: a row
        that others have locked is selected as it was committed.

        A batch that is in neither ``finished`` nor ``pending`` was abandoned: its rows are selected again.
        A row of a finished batch that is gone already is no error.

        Args:
            fence: The caller's fence. If nothing is finished, the fence is compared, and need not be held
                against a concurrent bump: rows that a former leader selects do no harm.
            finished: Batches whose rows are to be deleted. If others have locked some of them, it deletes the
                rest after a wait, and returns these; it does not wait for them when they are passed again.
            pending: Batches that are selected and not finished; ignored if ``limit`` is 0.
            limit: How many rows to select at most; 0 only deletes.
            max_bytes: As for :meth:`mark`.
            source: As for :meth:`mark`.
            excluded_keys: Keys of which no row is selected; as for :meth:`mark`.
            excluded_topics: Topics of which no row is selected.
            dated: Whether all selected rows are to tell when they were created, not only some of many.

        Returns:
            How many rows were deleted, and the selected rows.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was deleted.
        """
        ...

    def outline(self, fence: Fence, after: int, limit: int, topics: Sequence[str]) -> Outline:
        """Reads ids, topics and keys of rows that wait; changes nothing, and waits for nobody.

        Reads the first ``limit`` rows behind an id, whatever they are. Of these it returns the lane's that
        are of the first source, carry no leader id, and whose topic matches; but none of a parked key, none
        without a key, and none whose key is long (``MAX_OUTLINED_KEY``).

        Args:
            fence: The caller's fence, which is compared, and need not be held.
            after: The id.
            limit: How many rows to read.
            topics: Patterns of topics, with ``*`` and ``?``, of which one must match.

        Raises:
            LeadershipLost: The fence is no longer the caller's.
        """
        ...

    def supersede(self, fence: Fence, batch: Batch) -> int:
        """Deletes rows of an outline that need not be delivered, as later ones wait, durably on return.

        One transaction, which holds the fence. It waits for no row that others have locked, but leaves it; a
        dialect that cannot skip locked rows waits, and deletes none if that takes too long. Where delivered
        records are kept, so are these, as superseded (:attr:`outbox_api.seams.kept.KeptRecord.superseded`).

        Args:
            fence: The caller's fence.
            batch: The rows; a younger one that has got the id of one is not meant.

        Returns:
            How many rows were deleted.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was deleted.
        """
        ...

    def rows(self, batch: Batch) -> list[MarkedRecord]:
        """Returns those rows of a batch that are still in the outbox, ordered by id; changes nothing.

        They are as :meth:`advance` selects them; a row that is no longer a sound message carries a fault.
        Includes rows of parked keys, and rows that others have locked, as they were committed; waits for
        nobody. A younger row that has got the id of a deleted one (its ``create_time`` is later than
        ``batch.newest``) is not of the batch. Needs no fence: who is no longer the leader only reads.
        """
        ...

    def set_transactional(self, fence: Fence, noted: TransactionalLane | None) -> None:
        """Stores durably that the lane publishes in transactions, and how.

        ``None`` stores that it no longer does: nobody has to read its checkpoint any more. Bumps and new
        starts of the lane do not change what is stored.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was stored.
        """
        ...

    def park(
        self, fence: Fence, leader_id: UUID | None, poisons: Sequence[Poison], ids: Sequence[int] = ()
    ) -> Changed:
        """Parks the keys of poisonous records, and clears the leader id of rows, durably before it returns.

        One transaction, which holds the fence against a concurrent bump as a mark does: it copies each of
        ``poisons`` whose row still carries ``leader_id`` to the dead letters, which parks its key, and
        resets those of ``ids`` that still carry it. Idempotent: a row that is reset already is left out.
        Without a leader id it copies the rows of ``poisons`` whatever they carry, and changes no row of the
        outbox; a row that is gone is left out. If others have locked some of ``ids``, it waits as
        :meth:`purge`, parks the other heads, and resets the other rows.

        If an outbox gives out ids anew, a dead letter may have the id of such a row, although it is skipped
        or of another key. It is the only copy of its record, and gets a new id: negative, and below those of
        all dead letters of the outbox, so that several keep their order.

        Args:
            fence: The caller's fence.
            leader_id: What the rows carry; ``None`` in exactly-once delivery, which marks no rows.
            poisons: The heads; their ids are among ``ids``, if there are any.
            ids: All rows of these keys that ``leader_id`` has marked.

        Returns:
            How many keys were parked, and which of ``ids`` others have locked.

        Raises:
            LeadershipLost: The fence is no longer the caller's; nothing was changed.
        """
        ...

    def forget_skipped(self, age: float, limit: int) -> int:
        """Deletes dead letters that were skipped, durably before it returns; those of parked keys stay.

        Idempotent, and harmless whoever calls it.

        Args:
            age: For how many seconds, by the database's clock, a letter must have been skipped.
            limit: How many to delete at most; those with the lowest ids.

        Returns:
            How many were deleted.
        """
        ...

    def tend_kept(self, limit: int) -> Tended:
        """Removes what was kept for longer than ``keep.for``, and makes the partitions of the next days.

        Idempotent, harmless whoever calls it, and durable. Without ``keep`` it does nothing, not even ask.
        It changes few partitions in a call, never waits for one for long, and where it may not change them
        it deletes rows. Partitions go when their whole day, in UTC, has expired.

        Days and ages go by the database's clock. A clock that jumps ahead removes records earlier than
        ``keep.for`` says, by no more than it jumped; one that goes back removes them later.

        Args:
            limit: How many records to delete at most, beside whole partitions.

        Returns:
            What it did, and what it could not do.
        """
        ...

    def tend_days(self) -> Tended:
        """Makes the partitions of the next days of an outbox that has one for each day, and removes old ones.

        Idempotent, harmless whoever calls it, and durable; of an outbox without partitions it does nothing.
        A partition goes once its day, in UTC by the database's clock, is over and it has no row, not even one
        of a transaction that is open. Never waits for another one for long.

        Returns:
            What it could not do; it deletes no record.
        """
        ...

    def heartbeat(self, fence: Fence, metrics: Mapping[str, Any]) -> None:
        """Writes the lane's metrics beside its fence, for ``outbox status``.

        Args:
            fence: The caller's fence.
            metrics: Name → number, or anything else that JSON can hold.

        Raises:
            LeadershipLost: The fence is no longer the caller's.
        """
        ...

    def begin_takeover(self, cluster: int, reason: str) -> bool:
        """Stores durably that the rows of ``cluster`` are to be taken over without delay.

        Leaders read it when they begin (``outbox takeover`` raises the fence afterwards).

        Args:
            cluster: The cluster's number, 1 to ``MAX_CLUSTER``.
            reason: Why, for operators; cut at 200 characters.

        Returns:
            Whether there was none.
        """
        ...

    def end_takeover(self, cluster: int) -> bool:
        """Stores durably that a takeover has ended; returns whether there was one."""
        ...

    def pause(self, topic: str, operator: str, reason: str, seconds: float | None = None) -> Pause:
        """Stores durably that a topic is paused. Lanes learn of it within a second or two.

        A pause that is on goes on, with this operator, reason and end, and since when it was on.

        Args:
            topic: The exact name; ``WHOLE`` for the whole outbox.
            operator: Who pauses it; cut at 200 characters.
            reason: Why, for operators; cut at 200 characters.
            seconds: After how many seconds it ends by itself, by the database's clock; ``None`` for never.

        Returns:
            The pause as it is stored.

        Raises:
            DriverError: There are ``MAX_PAUSES`` already, or no row can have this topic; nothing was stored.
        """
        ...

    def resume(self, topic: str) -> Pause | None:
        """Stores durably that a topic is paused no longer; returns the pause that was on, if there was one.

        To resume a topic does not resume the whole outbox, nor the other way round.
        """
        ...
