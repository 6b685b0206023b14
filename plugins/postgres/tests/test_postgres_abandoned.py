"""Batches whose transaction was aborted: their rows come again, at once and in order."""

from __future__ import annotations

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
from outbox_api import Batch, MarkedRecord
from outbox_postgres.rows import PostgresDeadLetters
from outbox_postgres.settled import FIRST, Settled

from .outbox_hands import BatchHand, Outbox, until, waits
from .test_postgres_settled import Clock, Writers, assert_causes_come_first

A, B, C = Batch(((1, 10),)), Batch(((11, 20),)), Batch(((31, 40),))


@pytest.fixture
def marks() -> Settled:
    """Batch A is behind the start, and nothing else."""
    marks = Settled(Clock())
    marks.listed(100, [], prepared=False)
    marks.begin("me")
    marks.marked(10, (1, 10), [A])
    return marks


def test_starts_behind_batches_that_are_left_out(marks: Settled) -> None:
    assert marks.begin("me", [A]) == 11
    marks.marked(10, (11, 20), [A, B])
    assert marks.begin("me", [B, A, C]) == 21


@pytest.mark.parametrize(("left_out", "start"), [([], 1), ([A], 11), ([B], 1), ([C], 1)])
def test_starts_at_the_first_row_of_a_batch_behind_that_is_not_left_out(
    marks: Settled, left_out: list[Batch], start: int
) -> None:
    marks.begin("me", [A])
    marks.marked(10, (11, 20), [A, B])
    assert marks.begin("me", left_out) == start


def test_starts_at_the_first_row_of_a_batch_that_was_cut(marks: Settled) -> None:
    assert marks.begin("me", [Batch(((1, 5),))]) == 1


def test_a_selection_that_failed_forgets_no_batch(marks: Settled) -> None:
    for _ in range(2):
        assert marks.begin("me", []) == 1


def test_another_fence_starts_at_the_head(marks: Settled) -> None:
    assert marks.begin("another", [A]) == FIRST


def test_a_batch_of_somebody_else_that_was_left_out_is_behind_too(marks: Settled) -> None:
    theirs = Batch(((-5, -3),))
    marks.begin("me", [A, theirs])
    marks.marked(10, (11, 20), [theirs, B])
    assert marks.begin("me", [A, B]) == -5


def test_deleted_batches_are_behind_no_more(marks: Settled) -> None:
    marks.finished([A, C])
    assert marks.begin("me") == 11


def test_abandoned_rows_that_come_again_are_no_reason_for_distrust(marks: Settled) -> None:
    marks.begin("me")
    marks.marked(10, (1, 10), [A])
    assert marks.begin("me", [A]) == 11


@pytest.mark.usefixtures("eager")
def test_selections_go_on_behind_finished_and_pending_batches(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(40)
    first, _ = lane.batch(10)
    second, ids = lane.batch(10, pending=[first])
    assert ids == [*range(11, 21)]
    third, ids = lane.batch(10, finished=[first], pending=[second])
    assert ids == [*range(21, 31)]
    outbox.admin.execute("INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (5, 'orders', 'k')")
    lane.delete(second)
    assert lane.start == 31
    fourth, ids = lane.batch(10, finished=[third])
    assert ids == [*range(31, 41)], "a row that nobody may write shows that selections do not look there"
    lane.delete(fourth)
    assert outbox.lead_batches()[0].ids() == [5]


@pytest.mark.usefixtures("eager")
def test_idle_selections_do_not_look_at_the_head(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(10)
    batch, _ = lane.batch(10)
    for _ in range(3):
        assert lane.ids(10, pending=[batch]) == []
    assert lane.start == 11
    outbox.admin.execute("INSERT INTO outbox (id, kafka_topic, kafka_key) VALUES (0, 'orders', 'k')")
    assert lane.ids(10, pending=[batch]) == []


@pytest.mark.usefixtures("eager")
def test_an_abandoned_batch_comes_again_at_once_and_in_order(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(50)
    first, _ = lane.batch(10)
    second, ids = lane.batch(10, finished=[first])
    lane.batch(10, pending=[second])
    assert lane.start == 31, "the test did not come to what it tests"
    again, ids = lane.batch(5)
    assert ids == [*range(11, 16)]
    again, ids = lane.batch(10, finished=[again])
    assert ids == [*range(16, 26)]
    last, ids = lane.batch(100, finished=[again])
    assert ids == [*range(26, 51)]
    assert lane.ids(finished=[last]) == []
    assert lane.start == 51


@pytest.mark.usefixtures("eager")
def test_only_the_later_of_two_batches_is_abandoned(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(30)
    first, _ = lane.batch(10)
    lane.batch(10, pending=[first])
    again, ids = lane.batch(20, pending=[first])
    assert ids == [*range(11, 31)]
    assert lane.ids(20, finished=[first], pending=[again]) == []


@pytest.mark.usefixtures("eager")
def test_a_deletion_alone_abandons_nothing_and_hides_nothing(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(40)
    first, _ = lane.batch(10)
    second, _ = lane.batch(10, pending=[first])
    # Only deletes: which batches are pending does not matter.
    lane.delete(first)
    assert lane.start == 21
    third, ids = lane.batch(10, pending=[second])
    assert ids == [*range(21, 31)]
    assert lane.ids(10, pending=[third]) == [*range(11, 21)]


@pytest.mark.usefixtures("eager")
def test_a_batch_of_the_leader_before_is_left_out_while_pending_and_found_when_abandoned(
    outbox: Outbox, lane: BatchHand
) -> None:
    outbox.fill(30)
    theirs, _ = lane.batch(10)
    (later,) = outbox.lead_batches()
    ours, ids = later.batch(10, pending=[theirs])
    assert ids == [*range(11, 21)]
    assert later.start == 21
    assert later.ids(15, pending=[ours]) == [*range(1, 11), *range(21, 26)]


@pytest.mark.usefixtures("eager")
def test_what_was_abandoned_comes_before_a_key_that_is_parked(
    outbox: Outbox, lane: BatchHand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(40, keys=2)
    first, _ = lane.batch(10)
    lane.batch(10, finished=[first])
    assert lane.park(11) == 1
    second, ids = lane.batch(8)
    assert ids == [*range(12, 28, 2)]
    third, _ = lane.batch(3, finished=[second])
    letters.retry([11])
    fourth, ids = lane.batch(10, finished=[third])
    assert ids == [*range(11, 31, 2)]
    assert lane.ids(finished=[fourth]) == [*range(31, 34, 2), 34, 35, 36, 37, 38, 39, 40]


@pytest.mark.usefixtures("eager")
def test_a_key_freed_while_an_advance_waits_is_selected_from_its_head_by_the_next(
    outbox: Outbox, lane: BatchHand, letters: PostgresDeadLetters, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(40, keys=2)
    lane.batch(10)
    lane.park(1)
    first, _ = lane.batch(10)
    row = outbox.session()
    row.execute("SELECT FROM outbox_dead_letters WHERE id = 1 FOR UPDATE")
    retry = pool.submit(letters.retry, [1])
    until(lambda: waits(outbox, letters))
    assert lane.ids(5, pending=[first]) == [22, 24, 26, 28, 30], "it waits for nobody in order to select"
    advance = pool.submit(lane.batch, 5, [first])
    until(lambda: waits(outbox, lane.table))
    row.rollback()
    assert retry.result(60) == [1]
    second, ids = advance.result(60)
    assert ids == [22, 24, 26, 28, 30]
    assert lane.ids(5, finished=[second]) == [1, 3, 5, 7, 9]


@pytest.mark.usefixtures("eager")
def test_a_late_commit_is_found_at_once(outbox: Outbox, lane: BatchHand) -> None:
    late = outbox.session()
    outbox.write("late", connection=late)
    outbox.fill(20)
    finished: list[Batch] = []
    for _ in range(3):
        finished = [lane.batch(5, finished=finished)[0]]
    late.commit()
    assert [record.key for record in lane.advance(1, finished=finished)] == ["late"]


class Sender:
    """Selects ahead, and delivers or abandons batches by the dice, noting what was delivered."""

    def __init__(self, hand: BatchHand) -> None:
        self.sent: dict[str, list[int]] = defaultdict(list)
        self.abandoned = self.ahead = 0
        self._hand = hand
        self._dice = random.Random(hand.fence.lane)
        self._finished: list[Batch] = []
        self._selected: list[tuple[Batch, list[MarkedRecord]]] = []

    def step(self, limit: int) -> bool:
        """Advances once; tells whether nothing is left."""
        pending = [batch for batch, _ in self._selected]
        only_delete = self._dice.random() < 0.2
        records = self._hand.advance(0 if only_delete else limit, self._finished, pending)
        self._finished = []
        self.ahead += self._hand.start > FIRST
        if records:
            # A batch may be cut, as where its ids do not fit into a checkpoint.
            records = records[: self._dice.choice([3, limit])]
            ids = [record.id for record in records]
            self._selected.append((Batch.of(ids, self._hand.latest.newest), records))
        idle = not (records or self._selected or only_delete)
        if self._selected and (len(self._selected) > 2 or self._dice.random() < 0.5):
            self._end()
        return idle

    def _end(self) -> None:
        if self._dice.random() < 0.2:
            self._selected.clear()  # with the batch that was aborted, those behind it
            self.abandoned += 1
            return
        batch, records = self._selected.pop(0)
        self._finished.append(batch)
        for record in records:
            self.sent[record.key].append(record.id)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lanes", [1, 3])
def test_under_busy_writers_every_row_is_sent_once_and_causes_before_effects(
    outbox: Outbox, lanes: int
) -> None:
    senders = [Sender(hand) for hand in outbox.lead_batches(lanes)]
    writers = Writers(outbox, 6)
    enough = monotonic() + 2
    while monotonic() < enough or not all(each.ahead and each.abandoned for each in senders):
        for sender in senders:
            sender.step(7)
    writers.stop()
    for sender in senders:
        while not sender.step(100):
            pass
    sent = {key: numbers for sender in senders for key, numbers in sender.sent.items()}
    every = [number for numbers in sent.values() for number in numbers]
    assert len(every) == len(set(every))
    assert set(every) == set(writers.log)
    assert outbox.ids() == []
    assert_causes_come_first(writers.log, every)
