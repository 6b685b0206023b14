"""Keys freed while a leader harvests: each is marked from its head on, wherever marks have come to."""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
from outbox_postgres.dead_letters import PostgresDeadLetters
from outbox_postgres.settled import FIRST

from .outbox_hands import Hand, Outbox, until, waits

BATCH = 20


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_the_next_mark_behind_a_release_starts_at_the_head(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters, verb: str
) -> None:
    outbox.fill(200, keys=2)
    outbox.park(hand, "k1")
    hand.ids(60)
    while marked := hand.ids(60):
        hand.purge(*marked)
    later = outbox.write("k1")
    settled = hand.table._settled
    assert settled
    hand.mark(1)
    assert settled._start > FIRST, "the test did not come to what it tests"
    getattr(letters, verb)([1])
    wanted = [*range(1, 200, 2), later][verb == "skip" :]
    assert hand.ids(10) == wanted[:10]
    assert settled._horizon > FIRST, "a row that a release brings is no reason for distrust"
    assert hand.ids(30) == wanted[10:40]
    assert hand.ids() == wanted[40:]
    assert settled._start > FIRST


@pytest.mark.usefixtures("eager")
def test_a_mark_that_waited_for_a_release_takes_nothing_of_the_key_and_the_next_one_its_head(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(100, keys=2)
    outbox.park(hand, "k1")
    hand.ids(20)
    hand.ids(20)
    row = outbox.session()
    row.execute("SELECT FROM outbox_dead_letters WHERE id = 1 FOR UPDATE")
    retry = pool.submit(letters.retry, [1])
    until(lambda: waits(outbox, letters))
    # Behind where marks have come to: only the look at the head keeps the head before it.
    later = outbox.write("k1")
    mark = pool.submit(hand.ids, 20)
    until(lambda: waits(outbox, hand.table))
    row.rollback()
    assert retry.result(10) == [1]
    assert mark.result(10) == list(range(82, 101, 2))
    assert hand.ids() == [*range(1, 100, 2), later]


def test_a_release_waits_for_marks_in_progress(
    outbox: Outbox, hand: Hand, letters: PostgresDeadLetters, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(4, keys=2)
    outbox.park(hand, "k1")
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 2 FOR UPDATE")
    mark = pool.submit(hand.ids)
    until(lambda: waits(outbox, hand.table))
    retry = pool.submit(letters.retry, [1])
    until(lambda: waits(outbox, letters))
    row.rollback()
    assert mark.result(10) == [2, 4]
    assert retry.result(10) == [1]
    assert hand.ids() == [1, 3]


class Operator:
    """Retries, skips and redrives whatever there is, until told to stop."""

    def __init__(self, outbox: Outbox, seed: int) -> None:
        self.done: dict[str, int] = {"retry": 0, "skip": 0, "redrive": 0}
        self._letters = outbox.letters()
        self._dice = random.Random(seed)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.003):
            chosen = [letter for letter in self._letters.letters() if self._dice.random() < 0.5]
            verb = self._dice.choice(["retry", "retry", "skip", "redrive"])
            changed = getattr(self._letters, verb)([letter.record.id for letter in chosen])
            self.done[verb] += len(changed)


class Harvester:
    """Marks, and purges or parks what it marked, noting in which order."""

    def __init__(self, outbox: Outbox, lanes: int) -> None:
        self.purged: dict[str, list[int]] = defaultdict(list)
        self.parked = self.ahead = 0
        table = outbox.connect()
        token = table.bump(lanes, "test")
        self.hands = [Hand(outbox.connect(), table.enter(lane, lanes, token)) for lane in range(lanes)]
        self._dice = random.Random(lanes)

    def step(self) -> None:
        hand = self._dice.choice(self.hands)
        by_key: dict[str, list[int]] = defaultdict(list)
        for record in hand.mark(BATCH):
            by_key[record.key].append(record.id)
        for key, numbers in by_key.items():
            if self._dice.random() < 0.1:
                self.parked += hand.park(numbers, numbers[0])
            else:
                hand.purge(*numbers)
                self.purged[key] += numbers
        self.ahead += bool(hand.table._settled and hand.table._settled._start > FIRST)


def write(outbox: Outbox, written: set[int], stop: threading.Event) -> None:
    connection = outbox.session(autocommit=True)
    for number in itertools.count():
        if stop.is_set():
            return
        written.add(outbox.write(f"k{number % 7}", str(number), connection=connection))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lanes", [1, 2])
def test_while_operators_free_keys_no_key_is_ever_marked_out_of_order(
    outbox: Outbox, pool: ThreadPoolExecutor, lanes: int
) -> None:
    stop = threading.Event()
    harvester = Harvester(outbox, lanes)
    operators = [Operator(outbox, seed) for seed in range(2)]
    written: set[int] = set()
    running = [pool.submit(write, outbox, written, stop), *(pool.submit(one.run, stop) for one in operators)]
    deadline = monotonic() + 4
    latest = deadline + 30  # a busy machine comes to less in the same time
    try:
        while monotonic() < deadline or (
            min(harvester.parked, harvester.ahead) <= 20 and monotonic() < latest
        ):
            harvester.step()
    finally:
        stop.set()
    for task in running:
        task.result(10)
    # What is redriven is stashed beside the writer, and may commit behind what has a later id.
    for purged in harvester.purged.values():
        numbers = [number for number in purged if number in written]
        assert numbers == sorted(numbers)
    assert harvester.parked > 20
    assert harvester.ahead > 20, "the test did not come to what it tests"
    assert all(sum(one.done[verb] for one in operators) for verb in ("retry", "skip", "redrive"))
    letters = outbox.letters()
    letters.retry([letter.record.id for letter in letters.letters()])
    rest = set(outbox.leaders())
    assert {number for hand in harvester.hands for number in hand.ids(1_000_000)} == rest
