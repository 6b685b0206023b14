"""Keys freed while a leader harvests: each is marked from its head on, wherever marks have come to."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from outbox_postgres.rows import PostgresDeadLetters
from outbox_postgres.settled import FIRST

from .outbox_hands import Hand, Outbox, until, waits


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
    settled = hand.table._starts.settled
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
    assert retry.result(60) == [1]
    assert mark.result(60) == list(range(82, 101, 2))
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
    assert mark.result(60) == [2, 4]
    assert retry.result(60) == [1]
    assert hand.ids() == [1, 3]
