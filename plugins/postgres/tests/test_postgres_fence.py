"""The fence: leaders and attempts that are gone touch nothing, whatever the moment."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_api import DriverError, LeadershipLost

from .outbox_hands import MakeOutbox, Outbox, until, waits


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
        mark.result(60)
    assert set(outbox.leaders().values()) == {None}


def test_a_mark_blocked_behind_a_bump_that_fails_goes_on(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    outbox.fill(3)
    hand = outbox.lead()
    blocker = outbox.session()
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    mark = pool.submit(hand.mark)
    until(lambda: waits(outbox, hand.table))
    blocker.rollback()
    assert len(mark.result(60)) == 3


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
    assert len(mark.result(60)) == 3
    token = bump.result(60)
    # The new leader sees what the old one marked, and marks it again.
    assert [record.id for record in other.mark(other.enter(0, 1, token), uuid4(), 10)] == [1, 2, 3]


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
    assert purge.result(60) == 1
    assert [record.id for record in mark.result(60)] == [2, 3]


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
    assert reset.result(60) == 1
    assert [record.id for record in mark.result(60)] == [1, 2, 3]
    assert set(outbox.leaders().values()) == {leader.leader}


def test_a_lock_that_is_never_freed_shows_as_a_retryable_error(
    make_outbox: MakeOutbox, outbox: Outbox
) -> None:
    outbox.fill(1)
    box = make_outbox(lock_timeout=0.2)
    hand = box.lead()
    row = outbox.session()
    row.execute("SELECT FROM outbox_fence FOR UPDATE")
    with pytest.raises(DriverError, match="another transaction holds the lock") as caught:
        hand.mark()
    assert caught.value.retryable
    row.rollback()
    assert len(hand.mark()) == 1


def test_a_process_frozen_inside_a_bump_loses_it(outbox: Outbox) -> None:
    connection = outbox.connect()._connection
    assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10s",)


def test_however_the_table_is_written_the_fence_is_the_same(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    hand = outbox.lead()
    make_outbox(table='PUBLIC."outbox"').connect().bump(1, "x")
    with pytest.raises(LeadershipLost):
        hand.mark()


def test_a_lease_that_was_released_is_free_though_the_clock_has_gone_back(outbox: Outbox) -> None:
    lease = outbox.dialect.lease()
    lease.take("one", 60)
    lease.release("one")
    outbox.admin.execute("UPDATE outbox_fence SET since = now() + interval '1 hour'")
    assert lease.take("other", 60) is not None
    assert lease.take("one", 60) is None
    lease.close()
