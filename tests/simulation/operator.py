"""An operator, who looks after dead letters, and after lanes whose marker the broker has lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .applications import Stash
from .database import FAILED, LOST, Database, Transaction
from .fencing import Bump, Enter, Transact, Transacting
from .recovery import Errand
from .scheduler import Host
from .sender import TransactionalProducer
from .statements import Right

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
        head = self.database.rows.get(self.database.parked.get(self._key, 0))
        self.lock_rows([head] if self._skip and head is not None else [], self.finish)

    def apply(self) -> None:
        database, world = self.database, self._world
        number = database.parked.pop(self._key, None)
        if number is None:
            return
        self.raise_releases(database)
        world.tell(None, self._key, "an operator %s %d", "skips" if self._skip else "retries", number)
        if self._skip:
            for row in self.locked:
                database.remove(row)
                world.audit.skipped(row.id)
                database.skipped[row.id] = self._key
        elif self._cure:
            world.audit.entries[number].refusals = 0
        database.logged([], durable=True)

    def raise_releases(self, database: Database) -> None:
        """Has the next mark of every lane start at the head."""
        for row in database.fence.values():
            row.releases += 1


class Forget(Transact):
    """Ends a lane's note: what it may have published is taken for unpublished."""

    def apply(self) -> None:
        for row in self.database.rows.values():
            if row.leader is not None:
                self.database.audit.forgiven(row.id)
        super().apply()


class Forgetting(Errand):
    """What ``outbox fence forget`` does: raises the token, and ends the notes of all lanes."""

    def __init__(self, world: World) -> None:
        world.refused = False
        world.tell(None, None, "an operator has the markers forgotten")
        super().__init__(world, Host("operator", world.scheduler), self._failed)
        self._lanes = next(row.lanes for lane, row in world.database.fence.items() if lane < row.lanes)
        self.ask(Bump(world.database, self._lanes), self._bumped)

    def _failed(self, outcome: str) -> None:
        assert outcome in (FAILED, LOST)
        self.world.refused = True  # and is seen to later

    def _bumped(self, token: int) -> None:
        self.ask(Transacting(self.world.database), lambda noted: self._end(list(noted), token))

    def _end(self, noted: list[int], token: int) -> None:
        if noted:
            world = self.world
            session = TransactionalProducer(world.broker, self.host, noted[0], "operator")
            enter = Enter(world.database, session, noted[0], self._lanes, token)
            self.ask(enter, lambda entered: self._forget(entered, session, noted, token))

    def _forget(
        self, entered: tuple[Right, int], session: TransactionalProducer, noted: list[int], token: int
    ) -> None:
        forget = Forget((self.world.database, session, entered[0], None), begun=False)
        self.ask(forget, lambda _: self._end(noted[1:], token))


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
