"""The database: rows, locks, snapshots, commits and crashes, as PostgreSQL has them at READ COMMITTED.

Not simulated is how it stores anything. What matters for the algorithm is here: a statement sees what was
committed when it began, waits for locks, and looks at the newest version of what it waited for; a commit that
is not durable is forgotten by a crash, with all that follows it in the log and is not durable either.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from .audit import Audit
from .scheduler import Host, Scheduler
from .tables import FenceRow, Lock, Row

if TYPE_CHECKING:
    from .pauses import Noted

FAILED = "failed"
"""The answer that stands for every error after which the outcome is unknown."""
LOST = "leadership lost"
"""The answer of a statement whose fence is another's."""
LOCK_SECONDS = 3.0
"""How long a statement waits for a lock before it fails."""
FLUSH_SECONDS = 0.6
"""How long a commit that is not durable may be forgotten by a crash."""

Change = tuple[Row, Any, bool]
"""What undoes the change of a row: the row, the leader id it had, and whether it was deleted."""


class Database:
    """The tables, and what runs at the moment.

    Attributes:
        rows: The committed rows of the outbox, by id.
        ids: Their ids in order.
        serials: The same rows, by the numbers of their records.
        fence: Lane → its fence row.
        parked: Key → its parked head; the dead letters.
        skipped: Serials of skipped dead letters → their keys.
        pauses: Topic → the pause that is noted, perhaps one that has ended.
        at_once: Whether one statement deletes and selects, as of one moment; else one after the other.
        dates: Whether selections tell when the rows were created.
        anew: Whether ids are given out anew, as by SQLite without ``AUTOINCREMENT``.
        taken: Ids that running transactions have taken.
        holders: Transactions that have taken an id and not ended, which a look at the locks finds.
        boot: Raised by every crash; a connection of an earlier one is dead.
        down: Whether it is starting after a crash.
        slow: The longest pause in the middle of a statement, in seconds.
        slow_share: In how many of the places where it could there is one.
    """

    def __init__(self, scheduler: Scheduler, audit: Audit, chance: Random) -> None:
        self.scheduler = scheduler
        self.audit = audit
        self.chance = chance
        self.rows: dict[int, Row] = {}
        self.ids: list[int] = []
        self.serials: dict[int, Row] = {}
        self.fence: dict[int, FenceRow] = {}
        self.alone = Lock()
        self.parked: dict[str, Row] = {}
        self.skipped: dict[int, str] = {}
        self.pauses: dict[str, Noted] = {}
        self.holders: dict[str, Transaction] = {}
        self.boot = 0
        self.down = False
        self.slow = 0.0
        self.slow_share = 0.5
        self.at_once = self.dates = True
        self.anew = False
        self.taken: set[int] = set()
        self._next_id = 0
        self._running: dict[Transaction, None] = {}
        self._unflushed: list[tuple[float, list[Change]]] = []

    def next_id(self) -> int:
        """Takes an id from the sequence, which no rollback gives back; or the least above all rows."""
        if self.anew:
            self._next_id = max(self.ids[-1] if self.ids else 0, max(self.taken, default=0))
        self._next_id += 1
        return self._next_id

    def pause(self) -> float:
        """Returns how long a statement takes from one step to the next; mostly no time at all."""
        chance = self.chance.random()
        return chance / self.slow_share * self.slow if chance < self.slow_share else 0.0

    def add(self, row: Row) -> None:
        row.gone = False
        self.rows[row.id] = self.serials[row.serial] = row
        insort(self.ids, row.id)

    def remove(self, row: Row) -> None:
        row.gone = True
        del self.rows[row.id], self.serials[row.serial]
        del self.ids[bisect_left(self.ids, row.id)]

    def begin(self, transaction: Transaction) -> None:
        self._running[transaction] = None

    def end(self, transaction: Transaction) -> None:
        self._running.pop(transaction, None)

    def logged(self, undo: list[Change], *, durable: bool) -> None:
        """Takes note of a commit: a durable one carries all before it to the disk."""
        if durable:
            self._unflushed.clear()
        else:
            self._unflushed.append((self.scheduler.now, undo))

    def crash(self) -> None:
        """Forgets what was not durable, ends what runs, and is down until :meth:`start`."""
        self.boot += 1
        self.down = True
        for transaction in list(self._running):
            transaction.abort()
        recent = [undo for at, undo in self._unflushed if at > self.scheduler.now - FLUSH_SECONDS]
        for undo in reversed(recent[self.chance.randint(0, len(recent)) :]):
            for row, leader, deleted in reversed(undo):
                row.leader = leader
                if deleted:
                    self.add(row)
        self._unflushed.clear()

    def start(self) -> None:
        self.down = False


class Transaction:
    """One transaction, in steps between which others run.

    Attributes:
        durable: Whether its commit reaches the disk before it is answered.
        over: Whether it has ended, one way or the other.
        waiting: Whether it waits for a lock.
        client: The host that asked for it, if it reads the reply.
        cut: Whether its connection breaks before its commit, which undoes it.
        waiters: What waits for the rows it has locked.
    """

    durable = True

    def __init__(self, database: Database) -> None:
        self.database = database
        self.answer: Callable[[Any], None] = lambda _: None
        self.over = self.waiting = self.cut = False
        self.client: Host | None = None
        self.locks: list[Lock] = []
        self.locked: list[Row] = []
        self.waiters: list[Transaction] = []
        self._wanted: list[Row] = []
        self._at = 0
        self._then: Callable[[], None] = self.finish

    def start(self) -> None:
        """Begins: takes the snapshot, and whatever locks are free."""
        self.database.begin(self)
        self.run()

    def run(self) -> None:
        raise NotImplementedError

    def keeps(self, row: Row) -> bool:
        """Whether the newest version of a row, now locked, is still one to change."""
        return True

    def skips(self, row: Row) -> bool:
        """Whether a row is left alone if others have locked it; else the statement waits for it."""
        return False

    def apply(self) -> Any:
        """Makes the changes visible, and returns the answer."""
        raise NotImplementedError

    def pause_then(self, then: Callable[[], None]) -> None:
        """Goes on at once, or after a pause if the database is slow."""
        if pause := self.database.pause():
            self.database.scheduler.after(pause, self._unless_over, then)
        else:
            then()

    def lock_rows(self, rows: list[Row], then: Callable[[], None]) -> None:
        """Locks rows in order, and then goes on; ``locked`` are those that are still to be changed."""
        self._wanted, self._then = rows, then
        self.waiting = True
        self.lock_on()

    def finish(self) -> None:
        """Commits after the time that takes."""
        scheduler = self.database.scheduler
        scheduler.after(0.0005 + self.database.pause(), self._unless_over, self._commit)

    def refuse(self, answer: Any) -> None:
        """Ends without a change, with an answer."""
        self._release()
        self.answer(answer)

    def abort(self) -> None:
        """Ends without a change, and with an error."""
        if not self.over:
            self.refuse(FAILED)

    def wait_for(self, lock: Lock | Row) -> None:
        """Waits for a lock, of the fence or of a row, though not for ever."""
        self.waiting = True
        self.database.scheduler.after(LOCK_SECONDS, self._unless_over, self.give_up)

    def _unless_over(self, then: Callable[[], None]) -> None:
        if not self.over:
            then()

    def give_up(self) -> None:
        """Fails if it waits for a lock still."""
        if self.waiting:
            self.abort()

    def lock_on(self) -> None:
        """Locks the rows that are left, unless it waits for one again."""
        if self.over or not self.waiting:
            return
        self.waiting = False
        while self._at < len(self._wanted):
            row = self._wanted[self._at]
            if row.lock is not None and row.lock is not self and not self.skips(row):
                row.lock.waiters.append(self)
                self.wait_for(row)
                return
            self._at += 1
            if row.lock is None and not row.gone and self.keeps(row):
                row.lock = self
                self.locked.append(row)
        self._then()

    def _commit(self) -> None:
        if self.cut:
            self.abort()
            return
        answer = self.apply()
        self._release()
        self.answer(answer)

    def _release(self) -> None:
        self.over = True
        self.database.end(self)
        for row in self.locked:
            row.lock = None
        for lock in self.locks:
            lock.release(self)
        for waiter in self.waiters:
            waiter.lock_on()
