"""What database and broker do when they are asked: each call is one step, or has to wait."""

from __future__ import annotations

from typing import Any

from .scope import Rule, Scope
from .world import (
    ABSENT,
    FREE,
    GONE,
    ONCE,
    REPEATABLE,
    UNSENT,
    Batch,
    Call,
    Channel,
    Checkpoint,
    Database,
    FenceRow,
    Marked,
    Note,
    Rows,
    Transaction,
    Wish,
    World,
)

DONE, LOST, FENCED = "done", "lost", "fenced"
"""Answers: as asked; the database's fence is no longer the caller's; the broker refuses the producer."""

Outcome = tuple[World, Any]
Right = tuple[int, int, int, int]
"""Lane, lanes, token, attempt; as ``outbox_sdk.Fence``."""


class Servers:
    """The servers of a scope, with or without some rules."""

    def __init__(self, scope: Scope, off: frozenset[Rule]) -> None:
        self._keys = scope.keys
        self._off = off

    def execute(self, world: World, call: Call) -> Outcome | None:
        """Returns the world after a call, and the answer; ``None`` while the call has to wait."""
        outcome: Outcome | None = getattr(self, call.name)(world, *call.arguments)
        return outcome

    def vain(self, world: World, call: Call) -> bool:
        """Returns whether a call can never have an effect again."""
        match call:
            case Call("bump"):
                return False
            case Call("enter", (lane, lanes, token)):
                return "database fence" not in self._off and world.database.fence[lane][:2] != (lanes, token)
            case Call("advance" | "mark" | "transact", (right, *_)):
                return not self._held(world, right)
            case Call("fill" | "commit" | "freshen", (number, epoch, *_)):
                return not self._produces(world.channels[number], epoch)
        return False

    # --- the database -------------------------------------------------------------------------------

    def bump(self, world: World, lanes: int) -> Outcome:
        """Raises the token of all lanes; answers with it."""
        fence = world.database.fence
        token = fence[0].token + 1
        fence = tuple(row._replace(lanes=lanes, token=token, attempt=0) for row in fence)
        return _durably(world, world.database._replace(fence=fence)), token

    def enter(self, world: World, lane: int, lanes: int, token: int) -> Outcome:
        """Raises the attempt; answers with it."""
        if self.vain(world, Call("enter", (lane, lanes, token))):
            return world, LOST
        row = world.database.fence[lane]
        row = row._replace(attempt=row.attempt + 1)
        return _durably(world, _fenced_by(world.database, lane, row)), row.attempt

    def advance(self, world: World, right: Right, finished: Checkpoint, wish: Wish) -> Outcome:
        """Deletes batches and marks the next; answers with it, ``None`` when no row was marked."""
        if not self._held(world, right):
            return world, LOST
        before = world.database.rows
        left_out = {batch.name for batch in finished} | {*wish.pending, wish.name}
        chosen = self._chosen(before, right, left_out, wish.limit)
        purged = self._purged(before, right, finished) - set(chosen)
        return _advanced(world, _as_marked(wish.name, chosen), purged, self._off)

    def mark(self, world: World, right: Right, name: int, limit: int) -> Outcome:
        """Marks for at-least-once delivery, not durably."""
        if not self._held(world, right):
            return world, LOST
        rows = world.database.rows
        marked = _as_marked(name, self._chosen(rows, right, {name}, limit))
        return world._replace(database=world.database._replace(rows=_with_mark(rows, marked))), marked

    def set_transactional(self, world: World, right: Right, note: Note | None) -> Outcome:
        """Writes or deletes the note."""
        if not self._held(world, right):
            return world, LOST
        row = world.database.fence[right[0]]._replace(noted=note)
        return _durably(world, _fenced_by(world.database, right[0], row)), DONE

    def recall(self, world: World, lane: int) -> Outcome:
        """Answers with the note."""
        return world, world.database.fence[lane].noted

    def eligible(self, world: World, right: Right, own: set[int]) -> bool:
        """Returns whether a mark finds rows, those named in ``own`` left out, or that the fence is lost."""
        return not self._held(world, right) or bool(self._chosen(world.database.rows, right, own, 1))

    def _held(self, world: World, right: Right) -> bool:
        if "database fence" in self._off:
            return True
        row = world.database.fence[right[0]]
        length = 2 if "attempt in the fence" in self._off else 3
        return row[:length] == right[1 : length + 1]

    def _chosen(self, rows: Rows, right: Right, left_out: set[int], limit: int) -> list[int]:
        lane, lanes = right[:2]
        keys = enumerate(self._keys)
        free = [row for row, key in keys if rows[row] >= FREE and key % lanes == lane]
        return [row for row in free if rows[row] not in left_out][:limit]

    def _purged(self, rows: Rows, right: Right, finished: Checkpoint) -> set[int]:
        if "purge by name" in self._off:
            last = max((batch.last for batch in finished), default=-1)
            lane, lanes = right[:2]
            return {row for row in range(last + 1) if rows[row] >= FREE and self._keys[row] % lanes == lane}
        return {
            row for batch in finished for row in range(batch.first, batch.last + 1) if rows[row] == batch.name
        }

    # --- the broker ---------------------------------------------------------------------------------

    def open(self, world: World, number: int) -> Outcome | None:
        """Initializes a producer: aborts an open transaction, waits for a prepared one; answers the epoch."""
        channel = world.channels[number]
        if "producer fence" in self._off:
            return world, channel.epoch
        if channel.transaction and channel.transaction.prepared:
            return None
        channel = channel._replace(epoch=channel.epoch + 1, transaction=None)
        return with_channel(world, number, channel), channel.epoch

    def look(self, world: World, number: int, place: int) -> Outcome | None:
        """Reads the checkpoint; waits for one that cannot be read yet."""
        channel = world.channels[number]
        if "checkpoint" in self._off:
            return world, ()
        if channel.late is not None and "stable checkpoint" not in self._off:
            return None
        return world, channel.checkpoints[place]

    def fill(self, world: World, number: int, epoch: int, transaction: Transaction) -> Outcome | None:
        """Begins a transaction with rows and checkpoint; waits for the end of the one before."""
        channel = world.channels[number]
        if not self._produces(channel, epoch):
            return world, FENCED
        if channel.transaction or channel.late is not None:
            return None
        transaction = transaction._replace(early=self._early(world, transaction.rows))
        return with_channel(world, number, channel._replace(transaction=transaction)), DONE

    def commit(self, world: World, number: int, epoch: int) -> Outcome:
        """Makes sure that the open transaction is committed; the coordinator does that some time later."""
        channel = world.channels[number]
        transaction = channel.transaction
        if not self._produces(channel, epoch) or transaction is None or transaction.prepared:
            return world, FENCED
        world = self.deliver(world, transaction.rows, ONCE, early=transaction.early)
        prepared = Transaction((), transaction.place, transaction.checkpoint, prepared=True)
        return with_channel(world, number, channel._replace(transaction=prepared)), DONE

    def freshen(
        self, world: World, number: int, epoch: int, place: int, checkpoint: Checkpoint
    ) -> Outcome | None:
        """Commits a checkpoint and no rows, all at once: before the commit that is nothing to anybody."""
        channel = world.channels[number]
        if not self._produces(channel, epoch):
            return world, FENCED
        if channel.transaction or channel.late is not None:
            return None
        return with_channel(world, number, with_checkpoint(channel, place, checkpoint)), DONE

    def _produces(self, channel: Channel, epoch: int) -> bool:
        return channel.epoch == epoch or "producer fence" in self._off

    def send(self, world: World, rows: Rows) -> World:
        """Appends rows without a transaction."""
        return self.deliver(world, rows, REPEATABLE, early=self._early(world, rows))

    def deliver(self, world: World, rows: Rows, kind: int, *, early: bool) -> World:
        """Has consumers of committed messages see rows, and judges what they see."""
        wrong = world.wrong or ("order" if early else "")
        log = list(world.log)
        for row in rows:
            if log[row] == ONCE:
                wrong = wrong or "duplicate"
            log[row] = max(log[row], kind)
        return world._replace(log=tuple(log), wrong=wrong)

    def _early(self, world: World, rows: Rows) -> bool:
        """Returns whether a row of the same key, with a lower id, is yet to come."""
        return any(
            world.log[other] == UNSENT and other not in rows and world.database.rows[other] != ABSENT
            for row in rows
            for other in range(row)
            if self._keys[other] == self._keys[row]
        )


def with_channel(world: World, number: int, channel: Channel) -> World:
    """Returns a world with another state of one lane at the broker."""
    return world._replace(channels=(*world.channels[:number], channel, *world.channels[number + 1 :]))


def with_checkpoint(channel: Channel, place: int, checkpoint: Checkpoint | None) -> Channel:
    """Returns a channel with another checkpoint at a place."""
    return channel._replace(
        checkpoints=(*channel.checkpoints[:place], checkpoint, *channel.checkpoints[place + 1 :])
    )


def _fenced_by(database: Database, lane: int, row: FenceRow) -> Database:
    return database._replace(fence=(*database.fence[:lane], row, *database.fence[lane + 1 :]))


def _durably(world: World, database: Database) -> World:
    return world._replace(database=database, disk=database)


def _as_marked(name: int, rows: list[int]) -> Marked | None:
    return Marked(Batch(name, rows[0], rows[-1]), tuple(rows)) if rows else None


def _with_mark(rows: Rows, marked: Marked | None) -> Rows:
    if marked is None:
        return rows
    return tuple(marked.batch.name if row in marked.rows else each for row, each in enumerate(rows))


def _without(rows: Rows, purged: set[int]) -> Rows:
    return tuple(GONE if row in purged else each for row, each in enumerate(rows))


def _advanced(world: World, marked: Marked | None, purged: set[int], off: frozenset[Rule]) -> Outcome:
    """Marks and purges, and writes what is durable of it to the disk."""
    before = world.database
    both = before._replace(rows=_without(_with_mark(before.rows, marked), purged))
    disk = both
    if "durable mark" in off and marked:
        disk = world.disk
    elif "durable purge" in off and purged:
        # The purge comes last: to wait for a mark is to wait for what was written before it.
        disk = before._replace(rows=_with_mark(before.rows, marked)) if marked else world.disk
    return world._replace(database=both, disk=disk), marked
