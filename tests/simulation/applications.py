"""Applications that stash records, and now and then lock, change or delete what they have stashed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_api import WHOLE

from .broker import hash_of
from .database import Transaction
from .tables import Row
from .trail import FAILING, FIRST_CROWDED, Entry

if TYPE_CHECKING:
    from .world import World

HOT = f"k{FIRST_CROWDED}"
"""The key that is hot, where there is one."""
FRONT_RECORDS = 50
"""How many of them a transaction inserts."""


class Stash(Transaction):
    """An application's transaction: takes ids when it inserts, and is seen when it commits.

    Args:
        world: The world.
        keys: The keys of the records it inserts, in this order.
        seconds: How long it stays open.
        gives_up: Whether it rolls back.
        redrives: The serial of a skipped dead letter whose record this is, or ``None``.
    """

    def __init__(
        self, world: World, keys: list[str], seconds: float, *, gives_up: bool, redrives: int | None = None
    ) -> None:
        super().__init__(world.database)
        self._world = world
        self._keys = keys
        self._seconds = seconds
        self._gives_up = gives_up
        self._redrives = redrives
        self._rows: list[tuple[int, Entry]] = []
        world.transactions += 1
        self.number = world.transactions

    def run(self) -> None:
        database, scheduler = self.database, self._world.scheduler
        database.holders[str(self.number)] = self
        # Some transactions insert all at once, some the last record only just before they commit.
        last = self._keys.pop() if self._seconds and self._world.chance.random() < 0.3 else None
        for key in self._keys:
            self._insert(key)
        scheduler.after(self._seconds, self._unless_over, lambda: self._end(last))

    def _insert(self, key: str) -> None:
        world = self._world
        number = self.database.next_id()
        self.database.taken.add(number)
        entry = Entry(world.serial(), key, hash_of(key), self.number, world.moment())
        entry.refusals = world.draw_refusals()
        entry.size = world.draw_size()
        entry.topic = world.draw_topic()
        entry.apart = bool(set(world.scenario.pauses) - {WHOLE})
        entry.kept = world.draw_kept()
        entry.inserted_at = world.scheduler.now
        world.audit.inserted(entry)
        self._rows.append((number, entry))

    def _end(self, last: str | None) -> None:
        if last is not None:
            self._insert(last)
        if self._gives_up:
            self.abort()
        else:
            self.finish()

    def apply(self) -> None:
        moment = self._world.moment()
        for number, entry in self._rows:
            self.database.add(Row(number, entry))
            entry.since = self._world.scheduler.now
            self._world.audit.committed(entry, moment)
            if self._world.parts.is_dropped(entry.serial):
                entry.copies = 1  # as many as it ever has
                self._world.audit.skipped(entry.serial)
            self._world.tell(None, entry.key, "record %d is committed, with the id %d", entry.serial, number)
        if self._redrives is not None:
            self.database.skipped.pop(self._redrives, None)
        self.database.logged([], durable=True)
        self._world.audit.counts["records"] += len(self._rows)

    def _release(self) -> None:
        self.database.holders.pop(str(self.number), None)
        self.database.taken.difference_update(number for number, _ in self._rows)
        super()._release()


class Touch(Transaction):
    """An application's transaction that locks rows, and then leaves them, changes them or deletes them.

    Args:
        world: The world.
        rows: The rows, in the order of their ids.
        seconds: How long it holds their locks.
        deletes: Whether it deletes them in the end.
    """

    def __init__(self, world: World, rows: list[Row], seconds: float, *, deletes: bool) -> None:
        super().__init__(world.database)
        self._world = world
        self._rows = rows
        self._seconds = seconds
        self._deletes = deletes

    def run(self) -> None:
        self.lock_rows(self._rows, self._hold)

    def _hold(self) -> None:
        self._world.scheduler.after(self._seconds, self._unless_over, self.finish)

    def apply(self) -> None:
        if self._deletes:
            for row in [row for row in self.locked if not row.kept]:
                self._world.tell(None, row.key, "an application deletes record %d", row.serial)
                self.database.remove(row)
                self._world.audit.skipped(row.serial)
            self.database.logged([], durable=True)


class Applications:
    """Stashes at random times until told to end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.busy = True
        self.held_open = 0.0
        world.scheduler.after(0.0, self._begin)

    def _begin(self) -> None:
        """Stashes what lies in front, and goes on."""
        keys = [f"k{FAILING + number}" for number in range(self.world.scenario.front)]
        for first in range(0, len(keys), FRONT_RECORDS):
            Stash(self.world, keys[first : first + FRONT_RECORDS], 0.0, gives_up=False).start()
        self._next()

    def _key(self) -> str:
        chance, scenario = self.world.chance, self.world.scenario
        if scenario.hot and chance.random() < scenario.hot:
            return HOT
        return f"k{chance.randrange(scenario.keys)}"

    def _next(self) -> None:
        if not self.busy:
            return
        world, scenario = self.world, self.world.scenario
        chance = world.chance
        if not world.database.down:
            keys = [self._key() for _ in range(chance.choice((1, 1, 1, 2, 4)))]
            late = chance.random() < scenario.late_commits
            gives_up = chance.random() < scenario.rollbacks
            world.faults["late commits"] += late
            world.faults["rollbacks"] += gives_up
            seconds = chance.random() * chance.choice((0.05, 0.5, 3.0)) if late else 0.0
            Stash(world, keys, seconds, gives_up=gives_up).start()
            if scenario.touched and chance.random() < scenario.touched:
                self._touch()
        world.scheduler.after(chance.expovariate(scenario.transactions_per_second), self._next)

    def _touch(self) -> None:
        """Locks some rows that are near each other, mostly for a moment, and sometimes for long."""
        world, database, chance = self.world, self.world.database, self.world.chance
        if database.ids:
            first = chance.randrange(len(database.ids))
            last, step = first + chance.choice((1, 2, 4, 16)), chance.choice((1, 1, 2))
            rows = [database.rows[number] for number in database.ids[first:last:step]]
            seconds = chance.random() * chance.choice((0.01, 0.1, 0.5, 4.0))
            deletes = chance.random() < world.scenario.withdrawn
            world.faults["withdrawals" if deletes else "locks of applications"] += 1
            Touch(world, rows, seconds, deletes=deletes).start()
