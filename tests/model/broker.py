"""What the broker does when it is asked: each call is one step, or has to wait."""

from __future__ import annotations

from typing import Any

from .rows import Outbox
from .scope import Rule, Scope
from .world import (
    ABSENT,
    ONCE,
    REPEATABLE,
    UNSENT,
    Batch,
    Channel,
    Checkpoint,
    Rows,
    Transaction,
    World,
)

DONE, FENCED, CONTRADICTED = "done", "fenced", "contradicted"
"""Answers: as asked; the broker refuses the producer; the transaction is not in the state for it."""

Outcome = tuple[World, Any]
"""The world after a call, and the answer."""


class Broker:
    """The broker of a scope, with or without some rules."""

    def __init__(self, scope: Scope, off: frozenset[Rule]) -> None:
        self.outbox = Outbox(scope, off)
        self.keys = scope.keys
        self.verifies = scope.verifies
        self._remembers = "repeat" in scope.menu
        self._off = off

    def open(self, world: World, number: int) -> Outcome | None:
        """Initializes a producer: aborts an open transaction, waits for a prepared one; answers the epoch."""
        channel = world.channels[number]
        if "producer fence" in self._off:
            return world, channel.epoch
        if channel.transaction and channel.transaction.prepared:
            return None
        if channel.transaction:
            world = self._end_hanging(world, number, channel.transaction.rows, commits=False)
        channel = world.channels[number]
        channel = channel._replace(epoch=channel.epoch + 1, transaction=None)
        return with_channel(world, number, channel), channel.epoch

    def look(self, world: World, number: int, place: int) -> Outcome:
        """Reads the checkpoint of the last attempt, committed or not."""
        channel = world.channels[number]
        if "checkpoint" in self._off:
            return world, Checkpoint()
        if "read the last attempt" in self._off:
            return world, channel.committed[place]
        return world, channel.checkpoints[place]

    def find(self, world: World, number: int, place: int, attempted: Batch, rows: Rows) -> Outcome | None:
        """Answers which of an attempt's rows are in the log; waits until that can be read."""
        channel = world.channels[number]
        if channel.transaction or (channel.late and "stable log" not in self._off):
            return None
        world = self._end_hanging(world, number, rows, commits=False)
        if channel.late:
            return world, ()
        if "look for each record" in self._off:
            return world, rows if channel.committed[place] == channel.checkpoints[place] else ()
        return world, self.outbox.found(rows, world.log, attempted)

    def fill(self, world: World, number: int, epoch: int, transaction: Transaction) -> Outcome | None:
        """Begins a transaction with rows and checkpoint; waits for the end of the one before."""
        channel = world.channels[number]
        if not self._produces(channel, epoch):
            return world, FENCED
        if channel.transaction:
            return None
        former = channel.checkpoints[transaction.place] if self._remembers else None
        transaction = transaction._replace(early=self._early(world, transaction.rows), former=former)
        channel = with_checkpoint(channel, transaction.place, transaction.checkpoint)
        return with_channel(world, number, channel._replace(transaction=transaction)), DONE

    def commit(self, world: World, number: int, epoch: int) -> Outcome:
        """Makes sure that the open transaction is committed; the coordinator does that some time later."""
        channel = world.channels[number]
        transaction = channel.transaction
        if not self._produces(channel, epoch):
            return world, FENCED
        if transaction is None or transaction.prepared:
            return world, CONTRADICTED
        if transaction.contradicted:
            return self.abort(world, number, epoch) or (world, FENCED)
        world = self._end_hanging(world, number, transaction.rows, commits=True)
        return self.prepare(world, number, transaction.rows, transaction.checkpoint), DONE

    def abort(self, world: World, number: int, epoch: int) -> Outcome | None:
        """Aborts the open transaction; ``None`` if there is none of this epoch."""
        channel = world.channels[number]
        transaction = channel.transaction
        if transaction is None or not self._commits(channel, epoch) or channel.epoch != epoch:
            return None
        world = self._end_hanging(world, number, transaction.rows, commits=False)
        closed = world.channels[number]._replace(transaction=None)
        known = (transaction.rows or transaction.checkpoint) and not transaction.contradicted
        return with_channel(world, number, closed), DONE if known else CONTRADICTED

    def _end_hanging(self, world: World, number: int, rows: Rows, *, commits: bool) -> World:
        """Commits or aborts what hangs in the partitions of these rows."""
        channel = world.channels[number]
        keys = {self.keys[row] for row in rows}
        ended = tuple(row for row in channel.hanging if self.keys[row] in keys)
        if not ended:
            return world
        left = tuple(row for row in channel.hanging if row not in ended)
        world = with_channel(world, number, channel._replace(hanging=left))
        return self.deliver(world, ended, ONCE, early=bool(self._early(world, ended))) if commits else world

    def prepare(self, world: World, number: int, rows: Rows, checkpoint: Checkpoint | None) -> World:
        """Decides what becomes of the open transaction.

        Args:
            world: The state.
            number: The channel's.
            rows: Those of its rows that are committed.
            checkpoint: Its checkpoint; ``None`` if that is aborted.
        """
        channel = world.channels[number]
        if channel.transaction is None:
            raise ValueError("no transaction is open")
        world = self.deliver(world, rows, ONCE, early=bool({*channel.transaction.early} & {*rows}))
        prepared = Transaction((), channel.transaction.place, checkpoint, prepared=True)
        return with_channel(world, number, channel._replace(transaction=prepared))

    def completed(self, channel: Channel, *, late: bool) -> Channel:
        """Returns a channel whose prepared transaction has ended."""
        done = channel._replace(transaction=None, late=late)
        transaction = channel.transaction
        if transaction is None or transaction.checkpoint is None:
            return done
        return with_committed(done, transaction.place, transaction.checkpoint)

    def freshen(
        self, world: World, number: int, epoch: int, place: int, checkpoint: Checkpoint
    ) -> Outcome | None:
        """Commits a checkpoint and no rows, all at once: nobody asks whether it is committed."""
        channel = world.channels[number]
        if not self._produces(channel, epoch):
            return world, FENCED
        if channel.transaction:
            return None
        channel = with_committed(with_checkpoint(channel, place, checkpoint), place, checkpoint)
        return with_channel(world, number, channel), DONE

    def _commits(self, channel: Channel, epoch: int) -> bool:
        transaction = channel.transaction
        return self._produces(channel, epoch) and transaction is not None and not transaction.prepared

    def _produces(self, channel: Channel, epoch: int) -> bool:
        return channel.epoch == epoch or "producer fence" in self._off

    def send(self, world: World, rows: Rows) -> World:
        """Appends rows without a transaction."""
        return self.deliver(world, rows, REPEATABLE, early=bool(self._early(world, rows)))

    def deliver(self, world: World, rows: Rows, kind: int, *, early: bool) -> World:
        """Has consumers of committed messages see rows, and judges what they see."""
        wrong = world.wrong or ("order" if early else "")
        log = list(world.log)
        for row in rows:
            if log[row] >= ONCE:
                wrong = wrong or "duplicate"
            if kind == ONCE and row in world.database.parked:
                wrong = wrong or "parked"
            log[row] = max(log[row], kind)
        return world._replace(log=tuple(log), wrong=wrong)

    def _early(self, world: World, rows: Rows) -> Rows:
        """Returns the rows before which another of the same key, with a lower id, is yet to come."""
        return tuple(
            row
            for row in rows
            if any(
                world.log[other] == UNSENT and other not in rows and world.database.rows[other] != ABSENT
                for other in range(row)
                if self.keys[other] == self.keys[row]
            )
        )


def with_channel(world: World, number: int, channel: Channel) -> World:
    """Returns a world with another state of one lane at the broker."""
    return world._replace(channels=(*world.channels[:number], channel, *world.channels[number + 1 :]))


def with_checkpoint(channel: Channel, place: int, checkpoint: Checkpoint | None) -> Channel:
    """Returns a channel with another checkpoint at a place; what became of the one before is of no use."""
    return channel._replace(checkpoints=_with(channel.checkpoints, place, checkpoint), late=False)


def with_committed(channel: Channel, place: int, checkpoint: Checkpoint | None) -> Channel:
    """Returns a channel with another committed checkpoint at a place, where that is kept."""
    if not channel.committed:
        return channel
    return channel._replace(committed=_with(channel.committed, place, checkpoint))


def _with(
    checkpoints: tuple[Checkpoint | None, ...], place: int, checkpoint: Checkpoint | None
) -> tuple[Checkpoint | None, ...]:
    return (*checkpoints[:place], checkpoint, *checkpoints[place + 1 :])
