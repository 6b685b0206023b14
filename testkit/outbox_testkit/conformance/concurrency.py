"""Concurrency: writers with late commits, leaders that do not know of each other, operators."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep

import pytest
from outbox_api import Capability, DriverError, LeadershipLost

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.crowd import (
    PATIENCE,
    Harvester,
    Insistent,
    Operator,
    Writers,
    assert_causes_come_first,
    assert_same_values,
    may_pass,
    persist,
    together,
)
from outbox_testkit.conformance.under_test import ALL, Box, Hand, texts


class ConcurrencyConformance(Conformance):
    """What must hold with concurrent writers, leaders and operators."""

    @pytest.fixture
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        """A pool of threads for a test."""
        with ThreadPoolExecutor(8) as threads:
            yield threads

    def test_leaders_that_bump_at_once_get_different_tokens(self, box: Box, pool: ThreadPoolExecutor) -> None:
        barrier = threading.Barrier(8, timeout=PATIENCE)

        def race(number: int) -> list[int]:
            barrier.wait()
            return [persist(lambda: box.connect().bump(number % 3 + 1, "racer")) for _ in range(3)]

        raced = list(pool.map(race, range(8)))
        tokens = [token for mine in raced for token in mine]
        assert len(set(tokens)) == len(tokens) == 24
        assert all(mine == sorted(mine) for mine in raced)
        lane_statuses = box.connect().lane_statuses()
        assert {lane_status.fence.token for lane_status in lane_statuses} == {max(tokens)}
        assert len(lane_statuses) == lane_statuses[0].fence.lanes

    def test_of_all_who_expect_the_same_token_one_raises_it(self, box: Box, pool: ThreadPoolExecutor) -> None:
        barrier = threading.Barrier(8, timeout=PATIENCE)
        held = box.connect().bump(2, "leader")

        def race(_: int) -> int | None:
            table = box.connect()
            barrier.wait()
            try:
                return persist(lambda: table.bump(2, "racer", held))
            except LeadershipLost:
                return None

        (token,) = [token for token in pool.map(race, range(8)) if token is not None]
        assert {each.fence.token for each in box.connect().lane_statuses()} == {token}

    @needs(Capability.CONCURRENT_WRITERS)
    def test_a_row_that_is_deleted_under_a_mark_is_not_marked(
        self, box: Box, pool: ThreadPoolExecutor
    ) -> None:
        values, hand = box.fill(3), box.lead()
        connection = box.application()
        connection.cursor().execute(f"DELETE FROM {box.options.table} WHERE kafka_key = 'k2'")
        marked = pool.submit(hand.values)
        sleep(0.2)  # It waits for the row; if it starts too late for that, it must not find the row either.
        connection.commit()
        assert marked.result(PATIENCE) == [values[0], values[2]]

    def test_no_mark_of_an_old_leader_lands_behind_its_successors(
        self, box: Box, pool: ThreadPoolExecutor
    ) -> None:
        dice = random.Random(0)
        rows = len(box.fill(60))
        leader = Insistent(box)
        leader.lead()
        for _ in range(12):
            marked = threading.Event()
            old = pool.submit(act_until_fenced, box, Hand(leader.table, leader.fence), marked, _mark)
            assert marked.wait(PATIENCE)
            leader = Insistent(box)
            sleep(dice.choice([0, 0.001, 0.003]))
            leader.lead()
            ids = leader.ids(ALL)
            assert len(ids) == rows
            assert old.result(PATIENCE), "somebody else leads, and it still marked"
            assert leader.reset(*ids) == rows, "rows that the new leader marked carry the old one's id"

    def test_an_old_leader_deletes_no_batch_once_its_successor_has_started(
        self, box: Box, pool: ThreadPoolExecutor
    ) -> None:
        dice = random.Random(1)
        leader = Insistent(box)
        leader.lead()
        for _ in range(12):
            box.fill(200)
            deleted = threading.Event()
            old = pool.submit(act_until_fenced, box, Hand(leader.table, leader.fence), deleted, _delete)
            assert deleted.wait(PATIENCE)
            leader = Insistent(box)
            sleep(dice.choice([0, 0.001, 0.003]))
            leader.lead()
            ids = leader.ids(ALL)
            assert old.result(PATIENCE), "somebody else leads, and it still deleted"
            assert leader.reset(*ids) == len(ids), "rows that the new leader had seen were deleted"

    @pytest.mark.parametrize("lanes", [1, 3])
    @pytest.mark.parametrize("batches", [False, True], ids=["marks", "batches"])
    def test_while_applications_write_everything_comes_once_and_in_order(
        self, box: Box, pool: ThreadPoolExecutor, lanes: int, batches: bool
    ) -> None:
        harvesters = [Harvester(box, hand, batches=batches) for hand in box.lead_all(lanes)]
        writers = Writers(box)
        running = [pool.submit(harvester.run) for harvester in harvesters]
        try:
            writers.wait()
        finally:
            for harvester in harvesters:
                harvester.stop.set()
        together(*running)
        for harvester in harvesters:
            for segment in harvester.sent:
                assert_causes_come_first(writers.committed, texts(segment))
        sent = [value for harvester in harvesters for segment in harvester.sent for value in texts(segment)]
        if all(len(harvester.sent) == 1 for harvester in harvesters):
            assert_same_values(sent, writers.committed)
        assert set(sent) == set(writers.committed), "after an unknown outcome, too, nothing is lost"
        assert box.survey() == []

    def test_takeovers_lose_nothing_and_keep_the_order(self, box: Box, pool: ThreadPoolExecutor) -> None:
        writers = Writers(box)
        leaders: list[Harvester] = []
        running: list[Future[None]] = []
        try:
            while writers.busy or not leaders:
                leaders.append(Harvester(box, persist(box.lead)))
                running.append(pool.submit(leaders[-1].run))
                sleep(0.05)
            writers.wait()
        finally:
            for leader in leaders:
                leader.stop.set()
        together(*running)
        for leader in leaders:
            for segment in leader.sent:
                assert len({record.id for record in segment}) == len(segment)
                assert_causes_come_first(writers.committed, texts(segment))
        purged = [value for leader in leaders for value in leader.purged]
        assert len(purged) == len(set(purged)), "a row is purged once, whoever has marked it"
        sent = {value for leader in leaders for segment in leader.sent for value in texts(segment)}
        assert sent == set(writers.committed)
        assert box.survey() == []

    def test_while_operators_free_keys_no_key_is_marked_out_of_order(
        self, box: Box, pool: ThreadPoolExecutor
    ) -> None:
        writers, operator, dice = Writers(box, transactions=80), Operator(box), random.Random(3)
        running = pool.submit(operator.run)
        hand, purged, parked = Insistent(box), [], 0
        hand.lead()
        try:
            while writers.busy:
                marked: dict[str, list[int]] = defaultdict(list)
                records = hand.mark(20)
                for record in records:
                    marked[record.key].append(record.id)
                aside = {key for key in marked if dice.random() < 0.15}
                for key in aside:
                    parked += hand.park(marked[key], marked[key][0])
                hand.purge(*(record.id for record in records if record.key not in aside))
                purged += texts([record for record in records if record.key not in aside])
        finally:
            operator.stop.set()
        writers.wait()
        together(running)
        assert parked, "it did not come to what it tests"
        assert sum(operator.done.values())
        letters = box.dead_letters()
        letters.retry([letter.record.id for letter in letters.find()])
        letters.redrive([letter.record.id for letter in letters.find()])
        rest = hand.mark(ALL)
        assert_same_values(purged + texts(rest), writers.committed)
        in_place = [value for value in purged + texts(rest) if value not in operator.skipped]
        assert_causes_come_first(writers.committed, in_place)


def act_until_fenced(box: Box, hand: Hand, began: threading.Event, act: Callable[[Hand], None]) -> bool:
    """Acts repeatedly; returns whether it was fenced in time."""
    dice, deadline = random.Random(5), monotonic() + PATIENCE / 4
    while monotonic() < deadline:
        try:
            act(hand)
        except LeadershipLost:
            return True
        except DriverError as error:
            may_pass(error)
            hand = Hand(box.connect(), hand.fence)
        began.set()
        # Gives others a turn, if the database's locks are unfair.
        sleep(dice.choice([0, 0.0005, 0.003]))
    return False


def _mark(hand: Hand) -> None:
    hand.remark()
    hand.mark(50)


def _delete(hand: Hand) -> None:
    hand.advance(1, finished=[hand.last()])
