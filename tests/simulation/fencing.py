"""What leaders and lanes ask of the fence."""

from __future__ import annotations

from outbox_api import Fence, Parked, TransactionalLane

from .base_statements import Common, FenceWrite
from .database import LOST, Database, Transaction
from .tables import FenceRow
from .trail import Session


class Bump(Transaction):
    """Makes a leader: raises the token of every lane there is, also beyond the leader's own."""

    def __init__(self, database: Database, lanes: int, expected: int | None = None) -> None:
        super().__init__(database)
        self.lanes = lanes
        self._expected = expected

    def covers(self, lane: int) -> bool:
        return True

    def run(self) -> None:
        self.database.alone.acquire(self, True, lambda: self.pause_then(self._lock_fence))

    def _lock_fence(self) -> None:
        for lane in range(self.lanes):
            if lane not in self.database.fence:
                self.database.fence[lane] = FenceRow()
        self._lock_next([lane for lane in sorted(self.database.fence) if self.covers(lane)])

    def _lock_next(self, lanes: list[int]) -> None:
        if lanes:
            lock = self.database.fence[lanes[0]].lock
            lock.acquire(self, True, lambda: self._lock_next(lanes[1:]))
        elif self._expected in {None, self._former()}:
            self.finish()
        else:
            self.refuse(LOST)

    def _former(self) -> int:
        return max(row.token for row in self.database.fence.values())

    def apply(self) -> int:
        fence = self.database.fence
        token = self._former() + 1
        for lane, row in fence.items():
            if self.covers(lane):
                row.token, row.lanes, row.epoch = token, self.lanes, 0
                row.belong_to(None)
                row.said = {}
        self.database.logged([], durable=True)
        return token


class Enter(Transaction):
    """Starts an attempt at a lane under a token."""

    def __init__(self, database: Database, session: Session, lane: int, lanes: int, token: int) -> None:
        super().__init__(database)
        self.session = session
        self._wanted_right = (lane, lanes, token)

    def run(self) -> None:
        row = self.database.fence[self._wanted_right[0]]
        self.pause_then(lambda: row.lock.acquire(self, True, self._check))

    def _check(self) -> None:
        lane, lanes, token = self._wanted_right
        row = self.database.fence[lane]
        if row.token == token and row.lanes == lanes:
            self.finish()
        else:
            self.refuse(LOST)

    def apply(self) -> Fence:
        lane, lanes, token = self._wanted_right
        row = self.database.fence[lane]
        row.epoch += 1
        row.belong_to(self.session)
        self.database.logged([], durable=True)
        return Fence(lane, lanes, token, row.epoch)


class WriteNote(FenceWrite):
    """Notes how the lane publishes in transactions; or, with ``None``, that it has ended that."""

    verb = "note"

    def __init__(self, common: Common, note: TransactionalLane | None) -> None:
        super().__init__(common)
        self.note = note

    def apply(self) -> None:
        current = self.still_current()
        self.database.audit.fenced_write(self.session, self.verb, current=current)
        self.database.fence[self.right.lane].note = self.note
        self.database.logged([], durable=True)


class ReadNotes(Transaction):
    """Reads the notes of the lanes that publish in transactions, by lane."""

    def run(self) -> None:
        self.pause_then(self._look)

    def _look(self) -> None:
        fence = self.database.fence
        self.refuse({lane: row.note for lane, row in sorted(fence.items()) if row.note is not None})


class ReadParked(Transaction):
    """Counts the parked keys."""

    def run(self) -> None:
        self.pause_then(lambda: self.refuse(Parked(len(self.database.parked), None)))
