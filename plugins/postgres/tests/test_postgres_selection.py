"""Selections and deletions against a model, with everything that applications and operators may do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from outbox_api import Batch, DeadLetterStatus, LeadershipLost

from .outbox_hands import BatchHand, MakeOutbox, Outbox, ask

KEYS = [f"k{number}" for number in range(6)]
LANES = 2


@dataclass
class Writer:
    """An application's transaction."""

    connection: psycopg.Connection[Any]
    rows: dict[int, str] = field(default_factory=dict)  # id → key, not committed yet
    reserved: list[int] = field(default_factory=list)  # ids taken from the sequence, and not used yet


@dataclass
class Lane:
    """A lane, and its batches."""

    hand: BatchHand
    finished: list[Batch] = field(default_factory=list)  # to be deleted, also those with locked rows
    pending: list[Batch] = field(default_factory=list)
    start_seen: bool = False


class World:
    """An outbox beside a model of it: which rows are there, parked and locked."""

    def __init__(self, outbox: Outbox, seed: int, *, restarts: bool) -> None:
        self.selected = self.deleted = self.late = self.locked_rows = 0
        self._outbox = outbox
        self._dice = random.Random(seed)
        self._restarts = restarts
        self._rows: dict[int, str] = {}
        self._parked: set[str] = set()
        self._writers = [Writer(outbox.session()) for _ in range(3)]
        self._locker = outbox.session()
        self._locked: set[int] = set()
        self._doomed = False  # whether the locked rows are deleted by who has locked them
        self._letters = outbox.dead_letters()
        self._highest = 0
        lane_of = "SELECT (hashtext(%s) & 2147483647) %% %s"
        self._lane_of = {key: ask(outbox.admin, lane_of, key, LANES) for key in KEYS}
        self.lanes = [Lane(hand) for hand in outbox.lead_batches(LANES)]

    def step(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (14, self._write),
            (10, self._commit),
            (2, self._roll_back),
            (30, self._advance),
            (16, self._end_batch),
            (2, self._abandon),
            (2, self._park),
            (2, self._release),
            (3, self._lock),
            (3, self._unlock),
            (1, self._take_over),
            (1, self._truncate),
        ]
        weights, choices = zip(*acts, strict=True)
        self._dice.choices(choices, weights)[0]()

    def finish(self) -> None:
        """Commits everything, and harvests the rest."""
        self._unlock()
        for writer in self._writers:
            self._commit(writer)
        while self._parked:
            self._release()
        for _ in range(100):
            for lane in self.lanes:
                self._select(lane, 100)
                lane.finished += lane.pending
                lane.pending = []
        assert self._outbox.ids() == []
        assert self._rows == {}

    # --- applications -------------------------------------------------------------------------------

    def _write(self) -> None:
        writer, key = self._dice.choice(self._writers), self._dice.choice(KEYS)
        if self._dice.random() < 0.2:
            writer.reserved.append(ask(writer.connection, "SELECT nextval('outbox_id_seq')"))
            return
        for _ in range(self._dice.choice([1, 1, 4])):
            if writer.reserved:
                number = writer.reserved.pop()
                statement = "INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (%s, 'orders', %s)"
                writer.connection.execute(statement, (number, key))
            else:
                number = self._outbox.write(key, connection=writer.connection)
            writer.rows[number] = key

    def _commit(self, writer: Writer | None = None) -> None:
        writer = writer or self._dice.choice(self._writers)
        writer.connection.commit()
        self.late += sum(number < self._highest for number in writer.rows)
        self._rows |= writer.rows
        self._end(writer)

    def _roll_back(self) -> None:
        writer = self._dice.choice(self._writers)
        writer.connection.rollback()
        self._end(writer)

    def _end(self, writer: Writer) -> None:
        writer.rows, writer.reserved = {}, []

    def _lock(self) -> None:
        if self._locked or not self._rows:
            return
        chosen = self._dice.sample(sorted(self._rows), min(3, len(self._rows)))
        self._doomed = self._dice.random() < 0.3
        how = "DELETE FROM outbox WHERE id = ANY (%s)" if self._doomed else ""
        self._locker.execute(how or "SELECT FROM outbox WHERE id = ANY (%s) FOR UPDATE", (chosen,))
        self._locked = set(chosen)

    def _unlock(self) -> None:
        if self._doomed and self._dice.random() < 0.5:
            self._locker.commit()
            self._rows = {number: key for number, key in self._rows.items() if number not in self._locked}
        self._locker.rollback()
        self._locked, self._doomed = set(), False

    def _truncate(self) -> None:
        if self._dice.random() < 0.7:
            return
        self._unlock()
        for writer in self._writers:
            self._commit(writer)
        self._outbox.admin.execute(f"TRUNCATE outbox {'RESTART IDENTITY' * self._restarts}")
        self._rows = {}
        for lane in self.lanes:
            if self._dice.random() < 0.5:
                lane.pending = []

    # --- operators and leaders ----------------------------------------------------------------------

    def _release(self) -> None:
        parked = self._letters.find(status=DeadLetterStatus.PARKED)
        if parked:
            letter = self._dice.choice(parked)
            assert self._letters.retry([letter.record.id]) == [letter.record.id]
            self._parked.discard(letter.record.key)

    def _take_over(self) -> None:
        """Restarts a lane: what is published is deleted, and what is not is selected again."""
        lane = self._dice.choice(self.lanes)
        former = lane.hand
        fence = former.fence
        table = self._outbox.connect()
        lane.hand = BatchHand(table, table.enter(fence.lane, fence.lanes, fence.token))
        if lane.finished:
            with pytest.raises(LeadershipLost):
                former.advance(self._dice.choice([0, 5]), lane.finished)
        former.table.close()
        lane.pending = []

    # --- the lanes ----------------------------------------------------------------------------------

    def _advance(self) -> None:
        self._select(self._dice.choice(self.lanes), self._dice.choice([0, 1, 5, 20]))

    def _select(self, lane: Lane, limit: int) -> None:
        finished, lane.finished = lane.finished, []
        left_out = {number for batch in [*finished, *lane.pending] for number in batch.ids()}
        wanted = [
            number
            for number, key in sorted(self._rows.items())
            if number not in left_out and key not in self._parked
            if self._lane_of[key] == lane.hand.fence.lane
        ]
        records = lane.hand.advance(limit, finished, lane.pending)
        assert [record.id for record in records] == wanted[:limit]
        assert [record.key for record in records] == [self._rows[record.id] for record in records]
        self._delete(lane, finished)
        if records:
            lane.start_seen |= not self._restarts and lane.hand.start > 1
            kept = [record.id for record in records][: self._dice.choice([2, limit])]
            self._highest = max(self._highest, kept[-1])
            self.selected += len(kept)
            lane.pending.append(Batch.of(kept, lane.hand.latest.newest))

    def _delete(self, lane: Lane, finished: Sequence[Batch]) -> None:
        locked = lane.hand.latest.locked
        ids = {number for batch in finished for number in batch.ids()}
        there = set(self._outbox.ids())
        gone = self._rows.keys() - there
        assert there <= self._rows.keys()
        assert gone <= ids - self._locked
        left = {number for batch in locked for number in batch.ids()}
        assert left <= ids & self._locked & there
        if not self._restarts:
            assert gone | left == ids & self._rows.keys()
        self.deleted += len(gone)
        self.locked_rows += len(left)
        self._rows = {number: self._rows[number] for number in there}
        if locked:
            lane.finished += self._dice.choice([locked, finished])

    def _end_batch(self) -> None:
        lane = self._dice.choice(self.lanes)
        if lane.pending:
            lane.finished.append(lane.pending.pop(0))

    def _abandon(self) -> None:
        lane = self._dice.choice(self.lanes)
        del lane.pending[self._dice.randrange(2) :]

    def _park(self) -> None:
        lane = self._dice.choice(self.lanes)
        heads = {
            self._rows[number] for batch in lane.pending for number in batch.ids() if number in self._rows
        }
        lane.pending = []
        for key in sorted(heads - self._parked)[:1]:
            head = min(number for number, of in self._rows.items() if of == key)
            assert lane.hand.park(head) == 1
            self._parked.add(key)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("restarts", [False, True])
def test_every_selection_is_what_the_model_says(
    outbox: Outbox, make_outbox: MakeOutbox, seed: int, restarts: bool
) -> None:
    # A vacuum may lock the whole table to shorten it, and nobody here waits for long.
    outbox.admin.execute("ALTER TABLE outbox SET (autovacuum_enabled = false)")
    # Where ids are given out anew, only a look at the head finds them at once.
    world = World(make_outbox(lock_timeout=0.02, skip_settled=not restarts), seed, restarts=restarts)
    for _ in range(500):
        world.step()
    world.finish()
    did = (world.selected, world.deleted, world.late, world.locked_rows)
    assert all(done > least for done, least in zip(did, (100, 50, 5, 3), strict=True)), did
    assert all(lane.start_seen for lane in world.lanes) is not restarts
