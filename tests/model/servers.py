"""What the database does when it is asked, each call in one step; and what both servers do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .broker import DONE, Broker, Outcome
from .scope import Rule, Scope
from .world import (
    GONE,
    ONCE,
    Batch,
    Batches,
    Call,
    Database,
    FenceRow,
    Note,
    Rows,
    Selected,
    Wish,
    World,
)

LOST = "lost"
"""The answer that the database's fence is no longer the caller's; others are as the broker's."""

Right = tuple[int, int, int, int]
"""Lane, lanes, token, attempt; as ``outbox_api.Fence``."""


class Advanced(NamedTuple):
    """What an advance answers; as ``outbox_api.Advanced``."""

    selected: Selected | None
    locked: Batches


class Servers(Broker):
    """The servers of a scope, with or without some rules."""

    def __init__(self, scope: Scope, off: frozenset[Rule]) -> None:
        super().__init__(scope, off)
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
            case Call("commit", (number, epoch)):
                return not self._commits(world.channels[number], epoch)
            case Call("fill" | "freshen" | "end", (number, epoch, *_)):
                return not self._produces(world.channels[number], epoch)
        return call.name in ("recall", "read", "find")

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
        finished: Batches,
        wish: Wish,
        *,
        locked: frozenset[int] = frozenset(),
    ) -> Outcome:
        """Deletes batches and selects the next; answers with it, and with rows that others have locked."""
        blind = self._blind and wish.limit and not finished
        if not self._held(world, right) and not blind:
            return world, LOST
        before = world.database
        chosen = self.outbox.selected(before, right[0], right[1], wish, finished)
        whose = self.outbox.ranges if "delete the set" in self._off else self.outbox.of
        purged = whose(before.rows, finished) - locked
        after = before._replace(rows=_without(before.rows, purged))
        disk = world.disk if purged and "durable purge" in self._off else after
        left = self.outbox.batch(sorted(locked & self.outbox.of(after.rows, finished)))
        answer = Advanced(self.outbox.batch(chosen), (left.batch,) if left else ())
        return world._replace(database=after, disk=disk), answer

    def mark(self, world: World, right: Right, name: int, limit: int) -> Outcome:
        """Marks for at-least-once delivery, not durably; answers with the batch, ``None`` for no rows."""
        if not self._held(world, right):
            return world, LOST
        before = world.database
        chosen = self.outbox.selected(before, right[0], right[1], Wish(limit, ()), ())
        after = before._replace(rows=_with_name(before.rows, chosen, name))
        return world._replace(database=after), self.outbox.batch(chosen, name)

    def read(self, world: World, batch: Batch) -> Outcome:
        """Answers with the rows of a batch that are in the outbox."""
        return world, tuple(sorted(self.outbox.of(world.database.rows, (batch,))))

    def park(self, world: World, right: Right, row: int) -> Outcome:
        """Parks the key of a row, unless the row is gone."""
        if not self._held(world, right):
            return world, LOST
        if world.database.rows[row] == GONE:
            return world, DONE
        if world.log[row] >= ONCE:
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

    def eligible(self, world: World, right: Right, wish: Wish, finished: Batches) -> bool:
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
