"""The fence: leaders and attempts that are gone touch nothing, whatever the moment."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_sdk import DriverError, LeadershipLost

from .outbox_hands import MakeOutbox, Outbox, until, waits


def test_tokens_rise_and_attempts_start_anew(outbox: Outbox) -> None:
    table = outbox.connect()
    assert table.holdings() == []
    assert table.bump(2, "one") == 1
    first = table.enter(1, 2, 1)
    second = table.enter(1, 2, 1)
    assert (first.attempt, second.attempt) == (1, 2)
    assert table.bump(2, "two") == 2
    assert table.enter(1, 2, 2).attempt == 1
    assert [(h.fence.lane, h.fence.lanes, h.fence.token, h.holder) for h in table.holdings()] == [
        (0, 2, 2, "two"),
        (1, 2, 2, "two"),
    ]


def test_a_lane_keeps_an_identity_that_no_other_has(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    table = outbox.connect()
    second = make_outbox(table="second")
    second.dialect.create()
    other = second.connect()
    identities = {
        taken.enter(lane, 50, token).identity
        for taken in (table, other)
        for token in (taken.bump(50, "test"),)
        for lane in range(50)
    }
    assert len(identities) == 100
    assert all(identity.isalnum() for identity in identities)
    lane = table.enter(49, 2, table.bump(2, "another"))
    assert lane.identity in identities


def test_a_leader_with_another_number_of_lanes_fences_every_lane(outbox: Outbox) -> None:
    table = outbox.connect()
    wide = [table.enter(lane, 4, table.bump(4, "wide") if lane == 0 else 1) for lane in range(4)]
    assert table.bump(2, "narrow") == 2
    assert [holding.fence.lanes for holding in table.holdings()] == [2, 2]
    for fence in wide:
        with pytest.raises(LeadershipLost):
            table.mark(fence, uuid4(), 1)
    assert table.bump(8, "wide again") == 3
    assert {(h.fence.token, h.fence.lanes) for h in table.holdings()} == {(3, 8)}
    assert len(table.holdings()) == 8


def test_a_zombie_touches_nothing(outbox: Outbox) -> None:
    outbox.fill(3)
    zombie = outbox.lead()
    ids = [record.id for record in zombie.mark(2)]
    before = outbox.leaders()
    outbox.connect().bump(1, "other")
    for act in (zombie.mark, lambda: zombie.purge(*ids), lambda: zombie.reset(*ids)):
        with pytest.raises(LeadershipLost, match="no longer held by token 1"):
            act()
    with pytest.raises(LeadershipLost):
        zombie.table.beat(zombie.fence, {})
    with pytest.raises(LeadershipLost):
        zombie.table.enter(0, 1, 1)
    assert outbox.leaders() == before


def test_of_two_attempts_at_a_lane_the_earlier_touches_nothing(outbox: Outbox) -> None:
    outbox.fill(3)
    earlier = outbox.lead()
    ids = [record.id for record in earlier.mark(2)]
    table = outbox.connect()
    later = table.enter(0, 1, earlier.fence.token)
    for act in (earlier.mark, lambda: earlier.purge(*ids), lambda: earlier.reset(*ids)):
        with pytest.raises(LeadershipLost, match="attempt 1"):
            act()
    assert len(table.mark(later, uuid4(), 10)) == 3


def test_a_mark_blocked_behind_a_bump_marks_nothing(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    outbox.fill(3)
    zombie = outbox.lead()
    blocker = outbox.session()
    # What a bump does, held open.
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    mark: Future[object] = pool.submit(zombie.mark)
    until(lambda: waits(outbox, zombie.table))
    blocker.commit()
    with pytest.raises(LeadershipLost):
        mark.result(10)
    assert set(outbox.leaders().values()) == {None}


def test_a_mark_blocked_behind_a_bump_that_fails_goes_on(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    outbox.fill(3)
    hand = outbox.lead()
    blocker = outbox.session()
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    mark = pool.submit(hand.mark)
    until(lambda: waits(outbox, hand.table))
    blocker.rollback()
    assert len(mark.result(10)) == 3


def test_a_bump_waits_for_marks_in_progress(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    outbox.fill(3)
    hand = outbox.lead()
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 2 FOR UPDATE")
    mark = pool.submit(hand.mark)
    until(lambda: waits(outbox, hand.table))
    other = outbox.connect()
    bump = pool.submit(other.bump, 1, "other")
    until(lambda: waits(outbox, other))
    row.rollback()
    assert len(mark.result(10)) == 3
    assert bump.result(10) == 2
    # The new leader sees what the old one marked, and marks it again.
    assert [record.id for record in other.mark(other.enter(0, 1, 2), uuid4(), 10)] == [1, 2, 3]


def test_concurrent_bumps_give_different_tokens_even_the_first_ones(
    outbox: Outbox, pool: ThreadPoolExecutor
) -> None:
    tables = [outbox.connect() for _ in range(8)]
    barrier = threading.Barrier(8, timeout=30)

    def bump(number: int) -> int:
        barrier.wait()
        return tables[number].bump(number % 3 + 1, f"process {number}")

    tokens = list(pool.map(bump, range(8)))
    assert sorted(tokens) == list(range(1, 9))
    holdings = tables[0].holdings()
    assert {holding.fence.token for holding in holdings} == {8}
    assert len(holdings) == holdings[0].fence.lanes
    rows = outbox.admin.execute("SELECT count(*), count(DISTINCT token) FROM outbox_fence").fetchone()
    assert rows == (3, 1), "lanes beyond the leader's number carry its token too"


def test_the_purge_of_a_zombie_that_began_before_the_bump_leaves_no_hole(
    outbox: Outbox, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(3)
    zombie = outbox.lead()
    zombie.mark()
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
    purge = pool.submit(zombie.purge, 1)
    until(lambda: waits(outbox, zombie.table))
    leader = outbox.lead()
    mark = pool.submit(leader.mark)
    until(lambda: waits(outbox, leader.table))
    row.rollback()
    assert purge.result(10) == 1
    assert [record.id for record in mark.result(10)] == [2, 3]


def test_the_reset_of_a_zombie_that_began_before_the_bump_leaves_no_hole(
    outbox: Outbox, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(3)
    zombie = outbox.lead()
    zombie.mark()
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
    reset = pool.submit(zombie.reset, 1)
    until(lambda: waits(outbox, zombie.table))
    leader = outbox.lead()
    mark = pool.submit(leader.mark)
    until(lambda: waits(outbox, leader.table))
    row.rollback()
    assert reset.result(10) == 1
    assert [record.id for record in mark.result(10)] == [1, 2, 3]
    assert set(outbox.leaders().values()) == {leader.leader}


def test_a_lock_that_is_never_freed_shows_as_a_retryable_error(
    make_outbox: MakeOutbox, outbox: Outbox
) -> None:
    outbox.fill(1)
    box = make_outbox(lock_timeout=0.2)
    hand = box.lead()
    row = outbox.session()
    row.execute("SELECT FROM outbox FOR UPDATE")
    with pytest.raises(DriverError, match="another transaction holds the lock") as caught:
        hand.mark()
    assert caught.value.retryable
    row.rollback()
    assert len(hand.mark()) == 1


def test_a_process_frozen_inside_a_bump_loses_it(outbox: Outbox) -> None:
    connection = outbox.connect()._connection
    assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10s",)


def test_the_beat_is_shown_with_its_age(outbox: Outbox) -> None:
    hand = outbox.lead()
    (before,) = hand.table.holdings()
    assert (before.beat, before.age, before.reading) == (None, None, {})
    hand.table.beat(hand.fence, {"rate": 1.5, "marked": 3.0})
    (after,) = hand.table.holdings()
    assert after.reading == {"rate": 1.5, "marked": 3.0}
    assert after.beat is not None
    assert 0 <= (after.age if after.age is not None else -1) < 10
    assert after.beat >= after.since
    reading = {"batches": [{"name": "ä", "rows": 5}, None], "draining": True}
    hand.table.beat(hand.fence, reading)
    assert hand.table.holdings()[0].reading == reading


def test_tables_of_one_schema_share_a_fence_and_not_their_tokens(
    make_outbox: MakeOutbox, outbox: Outbox
) -> None:
    other = make_outbox(table="second")
    assert other.dialect.create() == ["second"]
    hand = outbox.lead()
    assert other.connect().bump(1, "x") == 1
    assert other.connect().bump(1, "x") == 2
    assert hand.mark() == []


def test_however_the_table_is_written_the_fence_is_the_same(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    hand = outbox.lead()
    make_outbox(table='PUBLIC."outbox"').connect().bump(1, "x")
    with pytest.raises(LeadershipLost):
        hand.mark()
