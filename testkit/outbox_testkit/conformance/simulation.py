"""Random steps of leaders, fenced leaders, writers and operators on the real table, compared with a model.

Checks the invariants that concern the table: the order of ids and of marks within a key (2); that an old
fence marks, purges, resets and parks nothing, and that purge and reset change only rows with the caller's
leader id (4); that an unknown outcome purges nothing (8: the simulation loses replies); and that one live
leader empties the outbox at the end (9). Leader ids are never reused (7).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from outbox_api import Batch, Capability, ColumnIs, LeadershipLost, Stasher
from outbox_api.portable.dead_letters import PortableDeadLetters

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.clustered import COLUMN, OTHER, OWN, created, origin
from outbox_testkit.conformance.model import Model, Row
from outbox_testkit.conformance.under_test import ALL, Box, Hand, plain, texts

KEYS = ("a", "A", "", "ü 🌍")
LANES = (1, 2, 3)
STEPS = 500
ZOMBIES = 4


@dataclass(eq=False)
class Lane:
    """One process's work on a lane; the process may be fenced without knowing it.

    Attributes:
        hand: Its connection.
        in_batches: Whether it selects batches, rather than marking.
        pending: Its batches that are selected and not finished.
    """

    hand: Hand
    in_batches: bool
    pending: list[Batch] = field(default_factory=list)


class World:
    """The outbox, the model, and the processes that work on it."""

    def __init__(self, box: Box, seed: int, clusters: Sequence[int] = ()) -> None:
        self._box = box
        self._clusters = clusters or (1,)
        self._eligible = [ColumnIs(COLUMN, cluster) for cluster in clusters]
        self._stashers = {
            number: Stasher(box.options.table, box.under.driver, cluster=number) for number in clusters
        } or {1: box.stasher}
        self._dice = random.Random(seed)
        self._together = Capability.CONCURRENT_WRITERS in box.dialect.capabilities
        self._model = Model(_homes(box), own=self._clusters[0])
        self._now = 0
        self._stashed = 0
        self._open: list[tuple[Any, list[Row]]] = []
        self._idle = [box.application() for _ in range(3)]
        self._letters: PortableDeadLetters = box.dead_letters()
        self._lanes: list[Lane] = []
        self.trace: list[str] = []
        self.lost = self.marked = self.freed = 0
        self._lead()

    def step(self) -> None:
        """Does one random step, and compares the result with the model."""
        self._now += 1
        acts: list[tuple[int, Callable[[], None]]] = [
            (20, self._stash),
            (12, self._end),
            (3, self._lead),
            (1, self._enter),
            (1, self._reconnect),
            (32, self._mark),
            (2, self._remark),
            (12, self._purge),
            (6, self._reset),
            (6, self._park),
            (10, self._operate),
            (2, self._compare),
        ]
        (act,) = self._dice.choices([act for _, act in acts], [weight for weight, _ in acts])
        act()

    def finish(self) -> None:
        """Ends all processes, and lets one leader empty the outbox."""
        while self._open:
            self._end()
        self._compare()
        self._now += 1
        everything = list(self._model.letters)
        assert self._letters.retry(everything) == self._model.retry(everything)
        assert self._letters.redrive(everything) == self._model.redrive(everything, self._now)
        self._lead(lanes=1)
        hand = self._lanes[-1].hand
        left = len(self._model.rows)
        for source, cluster in enumerate(self._clusters):
            marked = hand.mark(ALL, source=source)
            self._model.mark(hand.fence, hand.leader, ALL, marked, cluster)
            assert hand.purge(*(record.id for record in marked)) == len(marked)
            left -= len(marked)
        assert left == 0
        assert self._box.survey() == []
        assert hand.table.parked().keys == 0

    def _stash(self) -> None:
        if not self._open or (self._idle and self._dice.random() < 0.4):
            self._open.append((self._idle.pop(), []))
        connection, rows = self._dice.choice(self._open)
        began = rows[0].began if rows else self._now
        cluster = self._dice.choice(self._clusters)
        stashed = [
            Row(self._dice.choice(KEYS), "", began, cluster=cluster) for _ in range(self._dice.randint(1, 4))
        ]
        for row in stashed:
            self._stashed += 1
            row.value, row.place = str(self._stashed), self._stashed
        self._stashers[cluster].stash_many(connection, [plain(row.key, row.value) for row in stashed])
        rows += stashed
        self._note(f"stash {[(row.key, row.value) for row in stashed]}")
        if not self._together:
            self._end()

    def _end(self) -> None:
        if not self._open:
            return
        connection, rows = self._open.pop(self._dice.randrange(len(self._open)))
        self._idle.append(connection)
        if self._dice.random() < 0.2:
            connection.rollback()
            self._note(f"roll back {[row.value for row in rows]}")
            return
        connection.commit()
        self._note(f"commit {[row.value for row in rows]}")
        for row in rows:
            row.ended = self._now
        self._model.rows += rows

    def _lead(self, lanes: int | None = None) -> None:
        lanes = lanes or self._dice.choice(LANES)
        hands = self._box.lead_all(lanes, self._eligible)
        self._note(f"lead {lanes} lanes by {hands[0].fence.token}")
        assert hands[0].fence.token > self._model.token
        self._model.token, self._model.lanes = hands[0].fence.token, lanes
        self._model.attempts = {hand.fence.lane: hand.fence.epoch for hand in hands}
        fresh = [Lane(hand, in_batches=self._dice.random() < 0.5) for hand in hands]
        self._lanes = [*self._lanes[-ZOMBIES:], *fresh]

    def _enter(self) -> None:
        lane = self._dice.choice(self._lanes)
        fence = lane.hand.fence
        self._note(f"enter lane {fence.lane} by {fence.token}")
        if (fence.token, fence.lanes) != (self._model.token, self._model.lanes):
            with pytest.raises(LeadershipLost):
                lane.hand.table.enter(fence.lane, fence.lanes, fence.token)
            return
        entered = lane.hand.table.enter(fence.lane, fence.lanes, fence.token)
        assert entered.epoch > self._model.attempts[fence.lane]
        assert entered.identity == fence.identity
        self._model.attempts[fence.lane] = entered.epoch
        self._lanes.append(Lane(Hand(self._box.connect(self._eligible), entered), lane.in_batches))

    def _reconnect(self) -> None:
        """Loses the reply to a mark or a deletion, and the connection."""
        lane = self._dice.choice(self._lanes)
        name, limit = uuid4(), self._dice.randint(1, 5)
        self._note(f"lose a reply of {limit} for lane {lane.hand.fence.lane} by {lane.hand.fence.token}")
        hand = lane.hand
        if lane.in_batches:
            done = lane.pending[:1]
            if self._allowed(lane, lambda: hand.advance(limit, done)):
                hand.advance(limit, done)
                self._model.finish(done)
        elif self._allowed(lane, lambda: hand.mark(limit)):
            marked = hand.table.mark(hand.fence, name, limit)
            self._model.mark(hand.fence, name, limit, marked, self._clusters[0])
        lane.hand.table.close()
        lane.hand = Hand(self._box.connect(self._eligible), lane.hand.fence)

    def _mark(self) -> None:
        lane = self._lane()
        hand, limit = lane.hand, self._dice.randint(1, 8)
        source = self._dice.randrange(len(self._clusters))
        if lane.in_batches:
            self._advance(lane, limit if self._dice.random() < 0.8 else 0, source)
            return
        self._note(f"mark {limit} of source {source} for lane {hand.fence.lane} by {hand.fence.token}")
        if self._allowed(lane, lambda: hand.mark(limit)):
            marked = hand.mark(limit, source=source)
            self._note(f"  → {texts(marked)}")
            self._model.mark(hand.fence, hand.leader, limit, marked, self._clusters[source])
            self.marked += len(marked)

    def _advance(self, lane: Lane, limit: int, source: int) -> None:
        """Finishes some batches, abandons others, and selects the next."""
        hand, pending = lane.hand, lane.pending
        finished = [pending.pop(0) for _ in range(self._dice.randint(0, len(pending)) // 2)]
        if limit and self._dice.random() < 0.3:
            pending.clear()
        self._note(
            f"advance {limit} of source {source} for lane {hand.fence.lane} by {hand.fence.token}, "
            f"{len(finished)} finished, {len(pending)} pending"
        )
        if self._allowed(lane, lambda: hand.advance(limit, finished, pending)):
            selected = hand.advance(limit, finished, pending, source=source)
            self._note(f"  → {texts(selected)}")
            deleted = self._model.finish(finished)
            assert deleted <= hand.purged <= (sum(batch.rows for batch in finished) if limit else deleted)
            self._model.select(hand.fence, limit, pending, selected, self._clusters[source])
            if selected:
                pending.append(hand.last())
            self.marked += len(selected)

    def _remark(self) -> None:
        lane = self._lane()
        if not lane.in_batches:
            self._note(f"remark lane {lane.hand.fence.lane} by {lane.hand.fence.token}")
            lane.hand.remark()

    def _purge(self) -> None:
        self._release(purge=True)

    def _reset(self) -> None:
        self._release(purge=False)

    def _release(self, *, purge: bool) -> None:
        lane = self._lane()
        ids = self._some(lane.hand.leader)
        if purge and len(self._clusters) > 1:
            # Where marks of other clusters come by replication, a purge may go by the ids alone.
            ids = [row.id for row in self._model.claimed(lane.hand.leader) if row.id in ids]
        if lane.in_batches or not ids:
            return
        hand, verb = lane.hand, "purge" if purge else "reset"
        self._note(f"{verb} {ids} for lane {hand.fence.lane} by {hand.fence.token}")
        act = hand.purge if purge else hand.reset
        if self._allowed(lane, lambda: act(*ids)):
            assert act(*ids) == self._model.release(hand.leader, ids, purge=purge)

    def _park(self) -> None:
        """Parks the key of a row that is marked, or in a batch; the batches are abandoned then."""
        lane = self._lane()
        hand, model = lane.hand, self._model
        rows = model.selected(lane.pending) if lane.in_batches else model.claimed(hand.leader)
        if not rows:
            return
        key = self._dice.choice(rows).key
        ids = [row.id for row in rows if row.key == key and row.id is not None]
        self._note(f"park {key!r} at {ids[0]} for lane {hand.fence.lane} by {hand.fence.token}")
        if lane.in_batches:
            if self._allowed(lane, lambda: hand.park_selected(ids[0])):
                lane.pending = []
                assert hand.park_selected(ids[0]) == model.park(None, ids[0])
        elif self._allowed(lane, lambda: hand.park(ids, ids[0])):
            assert hand.park(ids, ids[0]) == model.park(hand.leader, ids[0], ids)

    def _operate(self) -> None:
        ids = [number for number in self._model.letters if self._dice.random() < 0.7]
        verb = self._dice.choice(["retry", "retry", "skip", "redrive"])
        self._note(f"{verb} {ids}")
        more = {"now": self._now} if verb == "redrive" else {}
        wanted = getattr(self._model, verb)(ids, **more)
        assert getattr(self._letters, verb)(ids) == wanted
        self.freed += len(wanted)

    def _compare(self) -> None:
        """Compares what can be read without a change."""
        table = self._lanes[-1].hand.table
        assert table.backlog().records == len(self._model.rows)
        assert table.parked().keys == len(self._model.parked())
        found = {letter.record.id: (letter.record.key, letter.status) for letter in self._letters.find()}
        assert found == {number: (row.key, status) for number, (row, status) in self._model.letters.items()}

    def _allowed(self, lane: Lane, act: Callable[[], object]) -> bool:
        """Returns whether a lane may act; if not, checks that its statement is refused."""
        if self._model.holds(lane.hand.fence):
            return True
        self.lost += 1
        if lane.in_batches:
            lane.pending = []
        with pytest.raises(LeadershipLost):
            act()
        return False

    def _lane(self) -> Lane:
        """Chooses a lane, mostly one that may act."""
        held = [lane for lane in self._lanes if self._model.holds(lane.hand.fence)]
        return self._dice.choice(held if held and self._dice.random() < 0.8 else self._lanes)

    def _some(self, leader: UUID) -> list[int]:
        """Chooses ids, mostly of rows with a leader id."""
        return [
            row.id
            for row in self._model.rows
            if row.id is not None and self._dice.random() < (0.7 if row.leader == leader else 0.1)
        ]

    def _note(self, what: str) -> None:
        self.trace.append(f"{self._now}: {what}")


def _homes(box: Box) -> dict[int, dict[str, int]]:
    """Returns the lane of each key; leaves the outbox empty."""
    box.stash(*(plain(key) for key in KEYS))
    homes = {
        lanes: {record.key: hand.fence.lane for hand in box.lead_all(lanes) for record in hand.mark()}
        for lanes in LANES
    }
    hand = box.lead()
    hand.purge(*hand.ids())
    return homes


class SimulationConformance(Conformance):
    """After random steps in any order, the table equals the model."""

    @pytest.mark.parametrize("seed", range(3))
    def test_the_table_is_what_the_model_says(self, box: Box, seed: int) -> None:
        simulate(World(box, seed))

    @pytest.mark.parametrize("seed", range(2))
    def test_the_table_of_several_clusters_is_what_the_model_says(
        self, box: Box, stack: ExitStack, seed: int
    ) -> None:
        simulate(World(created(box, stack, origin()), seed, clusters=(OWN, OTHER)))


def simulate(world: World) -> None:
    """Does random steps, and empties the outbox at the end."""
    try:
        for _ in range(STEPS):
            world.step()
        world.finish()
    except BaseException as error:
        error.add_note("It had come to this:\n" + "\n".join(world.trace[-40:]))
        raise
    assert min(world.marked, world.lost, world.freed) > 0, "it did not come to what it tests"
