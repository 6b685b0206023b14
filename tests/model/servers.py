"""What database and broker do when they are asked: each call is one step, or has to wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .rows import Outbox
from .scope import Rule, Scope
from .world import (
    ABSENT,
    GONE,
    ONCE,
    REPEATABLE,
    UNSENT,
    Call,
    Channel,
    Checkpoint,
    Database,
    FenceRow,
    Note,
    Rows,
    Selected,
    Transaction,
    Wish,
    World,
)

DONE, LOST, FENCED = "done", "lost", "fenced"
"""Answers: as asked; the database's fence is no longer the caller's; the broker refuses the producer."""

Outcome = tuple[World, Any]
Right = tuple[int, int, int, int]
"""Lane, lanes, token, attempt; as ``outbox_sdk.Fence``."""


class Advanced(NamedTuple):
    """What an advance answers; as ``outbox_sdk.Advanced``."""

    selected: Selected | None
    locked: Checkpoint


class Servers:
    """The servers of a scope, with or without some rules."""

    def __init__(self, scope: Scope, off: frozenset[Rule]) -> None:
        self.outbox = Outbox(scope, off)
        self._keys = scope.keys
        self._off = off
        self._blind = "blind" in scope.menu

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
            case Call("advance" | "mark" | "park" | "set_transactional", (right, *_)):
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

    def advance(
        self,
        world: World,
        right: Right,
        finished: Checkpoint,
        wish: Wish,
        *,
        locked: frozenset[int] = frozenset(),
    ) -> Outcome:
        """Deletes batches and selects the next; answers with it, and with the rows that others have locked.

        A former version marks the rows that it selects.
        """
        blind = self._blind and wish.limit and not finished
        if not self._held(world, right) and not blind:
            return world, LOST
        before = world.database
        chosen = self.outbox.selected(before, right[0], right[1], wish, finished)
        whose = self.outbox.ranges if "delete the set" in self._off else self.outbox.of
        purged = whose(before.rows, finished) - locked
        after = before._replace(rows=_without(_with_name(before.rows, chosen, wish.name), purged))
        disk = world.disk if purged and "durable purge" in self._off else after
        left = self.outbox.batch(sorted(locked & self.outbox.of(after.rows, finished)))
        answer = Advanced(self.outbox.batch(chosen, wish.name), (left.batch,) if left else ())
        return world._replace(database=after, disk=disk), answer

    def mark(self, world: World, right: Right, name: int, limit: int) -> Outcome:
        """Marks for at-least-once delivery, not durably; answers with the batch, ``None`` for no rows."""
        if not self._held(world, right):
            return world, LOST
        before = world.database
        chosen = self.outbox.selected(before, right[0], right[1], Wish(limit, (), name), ())
        after = before._replace(rows=_with_name(before.rows, chosen, name))
        return world._replace(database=after), self.outbox.batch(chosen, name)

    def find(self, world: World, known: Checkpoint) -> Outcome:
        """Looks for the rows of batches of a former version; answers with sets."""
        return world, self.outbox.former(world.database.rows, known)

    def park(self, world: World, right: Right, row: int) -> Outcome:
        """Parks the key of a row, unless the row is gone."""
        if not self._held(world, right):
            return world, LOST
        if world.database.rows[row] == GONE:
            return world, DONE
        if world.log[row] == ONCE:
            world = world._replace(wrong=world.wrong or "parked")
        return _durably(world, with_parked(world.database, {*world.database.parked, row})), DONE

    def set_transactional(self, world: World, right: Right, note: Note | None) -> Outcome:
        """Writes or deletes the note."""
        if not self._held(world, right):
            return world, LOST
        row = world.database.fence[right[0]]._replace(noted=note)
        return _durably(world, _fenced_by(world.database, right[0], row)), DONE

    def recall(self, world: World, lane: int) -> Outcome:
        """Answers with the note."""
        return world, world.database.fence[lane].noted

    def eligible(self, world: World, right: Right, wish: Wish, finished: Checkpoint) -> bool:
        """Returns whether a selection finds rows, or that the fence is lost."""
        if not self._held(world, right):
            return True
        return bool(self.outbox.selected(world.database, right[0], right[1], wish, finished))

    def _held(self, world: World, right: Right) -> bool:
        if "database fence" in self._off:
            return True
        row = world.database.fence[right[0]]
        length = 2 if "attempt in the fence" in self._off else 3
        return row[:length] == right[1 : length + 1]

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
            if kind == ONCE and row in world.database.parked:
                wrong = wrong or "parked"
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


def with_parked(database: Database, heads: Iterable[int]) -> Database:
    """Returns a database with other parked keys."""
    return database._replace(parked=tuple(sorted(heads)))


def _fenced_by(database: Database, lane: int, row: FenceRow) -> Database:
    return database._replace(fence=(*database.fence[:lane], row, *database.fence[lane + 1 :]))


def _durably(world: World, database: Database) -> World:
    return world._replace(database=database, disk=database)


def _with_name(rows: Rows, chosen: list[int], name: int) -> Rows:
    return tuple(name if row in chosen else each for row, each in enumerate(rows)) if name else rows


def _without(rows: Rows, purged: set[int]) -> Rows:
    return tuple(GONE if row in purged else each for row, each in enumerate(rows))
