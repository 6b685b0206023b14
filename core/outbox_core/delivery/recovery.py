"""The recovery: how lanes begin, without I/O. It purges what is in the log already before anything is marked.

A batch that may be in the log, and that was not yet purged when its lane ended, is known by the lane's
checkpoint alone. So a new holder of a lane of exactly-once delivery does the following. The order matters:

1. It enters the lane at the fence: from now on nobody else marks or purges for it.
2. It opens the transactional sender: from now on nobody else publishes for it, and earlier transactions have
   ended.
3. It reads the checkpoint of the last attempt, which cannot change any more. The attempt may be committed or
   aborted, or, as Kafka can tear a transaction, some of each. So it looks for the attempt's rows in the log,
   if there are any left in the outbox, one by one. Of what the log does not tell, the setting
   ``failures.undecided`` decides.
4. It purges, durably, the rows that the checkpoint says were in the log before. Where there are none, the
   purge still checks the fence: a holder that was suspended since step 1 would otherwise overwrite the
   checkpoint of its successor.
5. It writes a checkpoint at its own location, and notes at the fence how it publishes. This checkpoint lists
   the rows that it found, and those that others have locked: the lane leaves these out of what it selects,
   and purges them later.
6. It purges, durably, the rows that it found. No earlier: a recovery that ends before step 5 is followed by
   another search, which would take the record of a purged row for that of the next equal one. Rows that it
   did not find are selected and published again, before any later row of their keys.

Every lane does so when it starts. Where the number of lanes has changed, a record may have been published by
another lane than the one that would select it now; and at-least-once lanes read no checkpoint at all. In both
cases the leader recovers all former lanes (the same steps, under the names that are noted; then it removes
the notes) before it starts any of its own; there it waits for locked rows. The fence notes which lanes
publish in transactions, so that this is known after any crash.

The fence also notes the name of a lane's sender, and the location of its checkpoint. A checkpoint at any
other location may be an old one, which does not name all that is in the log. A lane that would use another
name or location opens the sender that is noted, and reads the checkpoint where it is noted. It opens its own
sender before the purge, then writes a checkpoint at its own location, and notes that. It publishes nothing
before.

It reaches database and broker through :class:`Servers` alone. Those of production are in
:mod:`outbox_core.lanes.recovery`; those of the simulation answer in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from outbox_api import (
    MAX_CHECKPOINT,
    Attempt,
    Batch,
    CheckpointLost,
    DriverError,
    Fence,
    OutboxTable,
    Parked,
    Pause,
    TransactionalLane,
    TransactionalSender,
)

from outbox_core.delivery.checkpoint import Checkpoint, decode, encode, shorter
from outbox_core.settings import Delivery, Undecided

QUERY = "spark-query."
"""How the names begin under which queries of Spark are noted, which have their own checkpoints."""

Result = TypeVar("Result")


class Servers(Protocol):
    """The database and the broker of one thread."""

    @property
    def table(self) -> OutboxTable:
        """The outbox, over one connection."""
        ...

    def open_sender(self, name: str) -> TransactionalSender:
        """Opens the transactional sender of this name, which fences its former one.

        Raises:
            DriverError: The broker cannot be used.
        """
        ...

    def close_sender(self, name: str) -> None:
        """Closes the open sender of this name."""

    def for_each(self, lanes: Sequence[int], act: Callable[[Servers, int], Result]) -> list[Result]:
        """Calls ``act`` for all lanes at once, each with connections of its own; returns what they return.

        Raises:
            OutboxError: One of them has raised it, and all have ended.
        """
        ...


class Entered(NamedTuple):
    """An at-least-once lane that may begin.

    Attributes:
        fence: The right to mark and purge.
        parked: The number and age of parked keys.
        pauses: What is paused, read after the lane was entered.
    """

    fence: Fence
    parked: Parked
    pauses: Sequence[Pause] = ()


class Doubt(NamedTuple):
    """What the log has told of an attempt whose outcome was unknown.

    Attributes:
        records: How many of its records were in the outbox.
        published: How many of these are in the log.
        undecided: Of how many the log does not tell.
        reason: Why it does not.
        purged: How many are purged: those in the log, and undecided ones as the setting says.
    """

    records: int
    published: int
    undecided: int
    reason: str
    purged: int

    @property
    def is_torn(self) -> bool:
        """Whether the broker has committed one part of the transaction and aborted another."""
        return 0 < self.published < self.records - self.undecided


class Opened(NamedTuple):
    """An exactly-once lane that may begin.

    Attributes:
        fence: The right to purge.
        sender: The name of the open sender, the right to publish.
        parked: The number and age of parked keys.
        recovered: How many rows were in the log already, and were purged.
        locked: Batches that are in the log, and of which others have locked rows.
        doubt: What the log told of the last attempt; ``None`` if nothing of it was in the outbox.
        purged: The batches whose rows were purged.
        pauses: What is paused, read after the lane was entered.
    """

    fence: Fence
    sender: str
    parked: Parked
    recovered: int
    locked: Sequence[Batch] = ()
    doubt: Doubt | None = None
    purged: Sequence[Batch] = ()
    pauses: Sequence[Pause] = ()


class Recovered(NamedTuple):
    """A former lane that is settled.

    Attributes:
        rows: How many rows were in the log already, and were purged.
        doubt: As in :class:`Opened`.
    """

    rows: int = 0
    doubt: Doubt | None = None


class _InLog(NamedTuple):
    """The batches that are in the log, and may have rows in the outbox: earlier ones, and the attempt's."""

    published: Sequence[Batch]
    found: Sequence[Batch] = ()
    doubt: Doubt | None = None


class _Purged(NamedTuple):
    """How many rows were purged, and the batches of which others have locked rows."""

    rows: int
    locked: Sequence[Batch]


@dataclass(frozen=True)
class Recovery:
    """How the lanes of one leadership begin.

    Attributes:
        lanes: How many lanes share the outbox.
        token: The fence token of the leadership.
        delivery: The delivery mode of its lanes.
        undecided: What becomes of rows of which the log does not tell.
    """

    lanes: int
    token: int
    delivery: Delivery
    undecided: Undecided = Undecided.CHECKPOINT

    def enter(self, servers: Servers, lane: int) -> Entered:
        """Enters a lane of at-least-once delivery.

        Raises:
            LeadershipLost: The fence carries another token.
            DriverError: The database cannot be used.
        """
        fence = servers.table.enter(lane, self.lanes, self.token)
        return Entered(fence, servers.table.parked(), servers.table.pauses())

    def open(self, servers: Servers, lane: int) -> Opened:
        """Takes over a lane of exactly-once delivery.

        Leaves open only the sender that it returns. After an error any may be open.

        Raises:
            LeadershipLost: The fence carries another token.
            DriverError: The database or the broker cannot be used; or the checkpoint is gone, or at another
                broker (not retryable).
        """
        table = servers.table
        fence, noted = entered = self._enter(table, lane)
        name = self._sender_name(table, fence)
        sender, in_log = self._take_over(servers, name, noted)
        note = TransactionalLane(fence.lanes, name, sender.location)
        rows, locked = self._purge(table, entered, sender, in_log, note)
        batches = (*in_log.published, *in_log.found)
        parked, pauses = table.parked(), table.pauses()
        return Opened(fence, name, parked, rows, locked, in_log.doubt, batches, pauses)

    def recover(self, servers: Servers, noted: Mapping[int, TransactionalLane]) -> dict[int, Recovered]:
        """Recovers former lanes whose published records the lanes of this leadership would not find.

        Idempotent. Without such lanes it asks for nothing.

        Args:
            servers: Database and broker.
            noted: The transactional lanes in the fence, see
                :meth:`outbox_api.OutboxTable.transactional_lanes`.

        Returns:
            Each recovered lane, by its number.

        Raises:
            LeadershipLost: The fence carries another token.
            DriverError: The database or the broker cannot be used; or a checkpoint is gone (not retryable).
        """
        former = self._former(noted)
        if not former:
            return {}
        return dict(zip(former, servers.for_each(former, self._recover_lane), strict=True))

    def _former(self, noted: Mapping[int, TransactionalLane]) -> list[int]:
        """Returns the lanes to recover."""
        same = self.lanes if self.delivery is Delivery.EXACTLY_ONCE else 0
        return [lane for lane, note in noted.items() if note.lanes != same]

    def _recover_lane(self, servers: Servers, lane: int) -> Recovered:
        fence, noted = entered = self._enter(servers.table, lane)
        recovered = Recovered()
        if noted is not None:
            sender, in_log = self._open_former(servers, noted)
            note = TransactionalLane(noted.lanes, noted.sender, sender.location)
            purged = self._purge(servers.table, entered, sender, in_log, note)
            servers.close_sender(noted.sender)
            if purged.locked:
                raise _locked_rows(lane)
            recovered = Recovered(purged.rows, in_log.doubt)
        servers.table.set_transactional(fence, None)
        return recovered

    def _enter(self, table: OutboxTable, lane: int) -> tuple[Fence, TransactionalLane | None]:
        """Enters a lane; returns its fence, and the note about it."""
        fence = table.enter(lane, self.lanes, self.token)
        return fence, table.transactional_lanes().get(lane)

    def _sender_name(self, table: OutboxTable, fence: Fence) -> str:
        """Returns the name of the lane's sender, which is the same however the table was configured."""
        # Outboxes of many databases may share the broker, and be called the same.
        return f"{table.name}.{fence.lane}.{fence.identity}"

    def _take_over(
        self, servers: Servers, name: str, noted: TransactionalLane | None
    ) -> tuple[TransactionalSender, _InLog]:
        """Opens our own sender; returns it, and what the last publisher left in the log."""
        if noted is not None and noted.sender != name:
            _, in_log = self._open_former(servers, noted)
            servers.close_sender(noted.sender)
            return servers.open_sender(name), in_log
        sender = servers.open_sender(name)
        return sender, self._in_log(servers.table, sender, name, noted)

    def _open_former(self, servers: Servers, noted: TransactionalLane) -> tuple[TransactionalSender, _InLog]:
        """Opens the noted sender, which ends its transactions; returns it, and what it left in the log."""
        sender = servers.open_sender(noted.sender)
        return sender, self._in_log(servers.table, sender, noted.sender, noted)

    def _in_log(
        self, table: OutboxTable, sender: TransactionalSender, name: str, noted: TransactionalLane | None
    ) -> _InLog:
        """Looks at what the last publisher left in the log; its sender is open."""
        attempt = sender.attempt(noted.location if noted else "")
        if attempt is None and noted is not None:
            raise _missing_checkpoint(name)
        checkpoint = _decoded(name, attempt)
        if attempt is None or checkpoint.attempted is None:
            return _InLog(checkpoint.published)
        rows = table.rows(checkpoint.attempted)
        if not rows:
            return _InLog(checkpoint.published)
        found = sender.find(rows, attempt.trace)
        purges = self.undecided is Undecided.PURGE or (
            self.undecided is Undecided.CHECKPOINT and found.committed
        )
        ids = sorted([*found.published, *(found.undecided if purges else ())])
        doubt = Doubt(len(rows), len(found.published), len(found.undecided), found.reason, len(ids))
        in_log = [Batch.of(ids, checkpoint.attempted.newest)] if ids else []
        return _InLog(checkpoint.published, in_log, doubt)

    def _purge(
        self,
        table: OutboxTable,
        entered: tuple[Fence, TransactionalLane | None],
        sender: TransactionalSender,
        in_log: _InLog,
        note: TransactionalLane,
    ) -> _Purged:
        """Purges what is in the log; a checkpoint lists what was found before that is purged."""
        fence, noted = entered
        known, found = in_log.published, in_log.found
        if len(encode(found)) > MAX_CHECKPOINT:  # an attempt that is torn into many runs
            known, found = [*known, *found], []
        rows, locked = self._purge_batches(table, fence, known)
        checkpoint = encode([*locked, *found])
        if len(checkpoint) > MAX_CHECKPOINT:
            raise _locked_rows(fence.lane)
        sender.publish([], checkpoint)
        self._note(table, fence, noted, note)
        if not found:
            return _Purged(rows, locked)
        more = self._purge_batches(table, fence, found)
        return _Purged(rows + more.rows, [*locked, *more.locked])

    def _note(
        self, table: OutboxTable, fence: Fence, noted: TransactionalLane | None, note: TransactionalLane
    ) -> None:
        if note != noted:
            table.set_transactional(fence, note)

    def _purge_batches(self, table: OutboxTable, fence: Fence, batches: Sequence[Batch]) -> _Purged:
        purged = table.advance(fence, batches, [], 0)
        return _Purged(purged.purged, shorter(purged.locked, batches) if purged.locked else ())


class TakenOver(NamedTuple):
    """A leadership that may begin.

    Attributes:
        token: Its fence token.
        recovered: The former lanes that are settled, by their numbers.
    """

    token: int
    recovered: Mapping[int, Recovered]


def take_over(servers: Servers, lanes: int, holder: str, recovery: Callable[[int], Recovery]) -> TakenOver:
    """Raises the fence, and then settles the lanes of former leaders, before any lane starts.

    Args:
        servers: Database and broker.
        lanes: How many lanes will share the outbox.
        holder: The name of the process.
        recovery: Returns how the lanes of a leadership begin, from its token.

    Raises:
        LeadershipLost: Another process has raised the fence meanwhile.
        DriverError: The database or the broker cannot be used; or a checkpoint is gone (not retryable).
    """
    token = servers.table.bump(lanes, holder)
    # From now on the lanes of earlier leaderships write no notes.
    noted = servers.table.transactional_lanes()
    return TakenOver(token, recovery(token).recover(servers, noted))


def _decoded(name: str, attempt: Attempt | None) -> Checkpoint:
    try:
        return decode(attempt.checkpoint) if attempt is not None else Checkpoint()
    except ValueError as error:
        message = f"cannot read the checkpoint of lane {name!r}: {error}; was it written by a later version?"
        raise CheckpointLost(message) from error


def _locked_rows(lane: int) -> DriverError:
    message = f"lane {lane} has published rows that other transactions have locked; waiting for these"
    return DriverError(message, retryable=True)


def _missing_checkpoint(name: str) -> DriverError:
    if name.startswith(QUERY):
        message = (
            f"a query of Spark ({name}) reads this outbox, and may have delivered rows that are still here: "
            "run the query with availableNow, and then 'outbox fence forget', which takes what is left for "
            "undelivered"
        )
        return CheckpointLost(message)
    message = (
        f"lane {name!r} has published in transactions, and the broker has no checkpoint of it: its "
        "topic was deleted, or this is another broker. The earliest records of the outbox may be in the log "
        "or not; look, and then let 'outbox fence forget' take them for unpublished"
    )
    return CheckpointLost(message)
