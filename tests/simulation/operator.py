"""An operator, who looks after dead letters, and after lanes whose checkpoint the broker has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from outbox_api import Fence

from .applications import Stash
from .database import FAILED, LOST, Database, Transaction
from .fencing import Bump, Enter, ReadNotes, WriteNote
from .scheduler import Host
from .trail import Session

if TYPE_CHECKING:
    from .world import World


class Free(Transaction):
    """An operator's retry or skip of one parked key."""

    def __init__(self, world: World, key: str, *, skip: bool, cure: bool) -> None:
        super().__init__(world.database)
        self._world = world
        self._key = key
        self._skip = skip
        self._cure = cure

    def run(self) -> None:
        self.database.alone.acquire(self, True, lambda: self._lock(sorted(self.database.fence)))

    def _lock(self, lanes: list[int]) -> None:
        if lanes:
            self.database.fence[lanes[0]].lock.acquire(self, True, lambda: self._lock(lanes[1:]))
        else:
            self.pause_then(self._take)

    def _take(self) -> None:
        head = self.database.parked.get(self._key)
        self.lock_rows([head] if self._skip and head is not None else [], self.finish)

    def apply(self) -> None:
        database, world = self.database, self._world
        head = database.parked.pop(self._key, None)
        if head is None:
            return
        self.raise_releases(database)
        world.tell(None, self._key, "an operator %s %d", "skips" if self._skip else "retries", head.serial)
        if self._skip:
            for row in self.locked:
                row.kept = False  # the operator has removed what does
                database.remove(row)
                world.audit.skipped(row.serial)
                database.skipped[row.serial] = self._key
        else:
            world.audit.retried.add(self._key)
        world.audit.entries[head.serial].vain = None
        if self._cure and not self._skip:
            entry = world.audit.entries[head.serial]
            entry.refusals = 0
            if not entry.sent:
                head.size = 1
            head.kept = False
        database.logged([], durable=True)

    def raise_releases(self, database: Database) -> None:
        """Has the next mark of every lane start at the head."""
        for row in database.fence.values():
            row.releases += 1


class Forget(WriteNote):
    """Ends a lane's note: what it may have published is taken for unpublished."""

    def apply(self) -> None:
        for row in self.database.rows.values():
            self.database.audit.forgiven(row.serial)
        super().apply()


class Forgetting:
    """What ``outbox fence forget`` does: raises the token, and ends the notes of all lanes."""

    def __init__(self, world: World) -> None:
        world.refused = False
        world.tell(None, None, "an operator has the checkpoints forgotten")
        self._world = world
        self._host = Host("operator", world.scheduler)
        self._boot = world.database.boot
        self._lanes = next(row.lanes for lane, row in world.database.fence.items() if lane < row.lanes)
        self._ask(Bump(world.database, self._lanes), self._bumped)

    def _ask(self, statement: Transaction, then: Callable[[Any], None]) -> None:
        def answered(result: Any) -> None:
            if result is FAILED or result is LOST:
                self._world.refused = True  # and is seen to later
            else:
                then(result)

        self._world.wire.call(self._host, statement, answered, self._boot)

    def _bumped(self, token: int) -> None:
        self._ask(ReadNotes(self._world.database), lambda noted: self._end(list(noted), token))

    def _end(self, noted: list[int], token: int) -> None:
        if noted:
            session = Session(noted[0], "operator")
            enter = Enter(self._world.database, session, noted[0], self._lanes, token)
            self._ask(enter, lambda fence: self._forget(fence, session, noted, token))

    def _forget(self, fence: Fence, session: Session, noted: list[int], token: int) -> None:
        forget = Forget((self._world.database, session, fence, None), None)
        self._ask(forget, lambda _: self._end(noted[1:], token))


class Operator:
    """Now and then frees a parked key, stashes a skipped record again, or lets refused lanes begin."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.busy = True
        world.scheduler.after(world.chance.expovariate(1.0), self._next)

    def _next(self) -> None:
        if not self.busy:
            return
        self.act(cure=self.world.chance.random() < 0.5)
        self.world.scheduler.after(self.world.chance.expovariate(1.0), self._next)

    def act(self, *, cure: bool) -> None:
        """Frees one key, if one is parked; else redrives one record, if one was skipped."""
        world, database, chance = self.world, self.world.database, self.world.chance
        if database.down:
            return
        if world.refused:
            world.faults["forgetting"] += 1
            Forgetting(world)
        if database.parked:
            key = chance.choice(list(database.parked))
            skip = chance.random() < 0.4
            world.faults["skips" if skip else "retries"] += 1
            world.parts.free(world, key, skip=skip, cure=cure).start()
        elif database.skipped:
            number = chance.choice(list(database.skipped))
            world.faults["redrives"] += 1
            Stash(world, [database.skipped[number]], 0.0, gives_up=False, redrives=number).start()
