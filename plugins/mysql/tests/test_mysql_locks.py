"""Writers, marks and leaders do not wait for each other longer than they must."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest
from outbox_api import UNBOUNDED, Batch, ColumnIs, DriverError
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.clustered import OWN, created, led, origin
from outbox_testkit.conformance.under_test import Box, plain, texts
from pymysql.constants import COMMAND

pytestmark = pytest.mark.slow


@pytest.fixture
def under(under_alone: OutboxUnderTest) -> OutboxUnderTest:
    return under_alone


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def box(under: OutboxUnderTest, stack: ExitStack) -> Box:
    """An outbox where whoever waits for a lock is told soon."""
    short = {"lock_timeout": 1.0, "idle_timeout": 1.0}
    box = Box(replace(under, options={**under.options, **short}), stack)
    box.dialect.create()
    return box


def writer(box: Box, isolation: str) -> Any:
    connection = box.application()
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        cursor.execute(f"SELECT COUNT(*) FROM {box.options.table}")  # takes a snapshot
    return connection


@pytest.mark.parametrize("clusters", [False, True], ids=["one cluster", "clusters"])
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_nothing_waits_for_a_writer_and_no_writer_waits(
    box: Box, stack: ExitStack, isolation: str, clusters: bool
) -> None:
    if clusters:
        box = created(box, stack, origin())
    late, early = writer(box, isolation), writer(box, isolation)
    hand = led(box, *[ColumnIs("cluster_id", OWN)] * clusters)
    stasher = box.stasher
    for value in ("v1", "v2"):
        stasher.stash(early, plain("k", value))
    stasher.stash(late, plain("k", "late"))
    for value in ("v3", "v4"):
        stasher.stash(early, plain("k", value))
    early.commit()
    marked = hand.mark()
    assert texts(marked) == ["v1", "v2", "v3", "v4"]
    ids = [record.id for record in marked]
    assert hand.reset(*ids[2:]) == 2
    assert hand.purge(*ids[:2]) == 2
    batch, found = hand.batch()
    assert found == ["v3", "v4"]
    assert hand.ids() == ids[2:]
    assert hand.purge(ids[2]) == 1
    table: Any = hand.table
    with table._session.transaction("mark, and do not commit"):
        table._hold(hand.fence)
        table._marking.mark(hand.fence, hand.leader, 1000, UNBOUNDED, (), 0)
        stasher.stash(late, plain("k", "later"))
        stasher.stash(early, plain("k", "v5"))
        early.commit()
    late.commit()
    again, found = hand.batch(finished=[batch])
    assert hand.purged == 1
    assert found == ["late", "later", "v5"]
    hand.advance(0, finished=[again])
    assert box.survey() == []


def between(box: Box, isolation: str, count: int, behind: int) -> tuple[list[str], list[str], list[Any]]:
    """Fills an outbox beside rows that are not committed.

    Returns:
        The values of ``count`` rows between two of those, and of ``behind`` rows after them; the connections.
    """
    before, after = writer(box, isolation), writer(box, isolation)
    box.stasher.stash(before, plain("k", "before"))
    values = box.fill(count)
    box.stasher.stash(after, plain("k", "after"))
    more = box.fill(behind)
    with box.application().cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {box.options.table}")
    return values, more, [before, after]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("count", [1, 2, 30, 300, 1_000])
@pytest.mark.parametrize("behind", [0, 5])
@pytest.mark.parametrize("timed", [True, False])
def test_a_batch_is_deleted_beside_rows_that_are_not_committed(
    box: Box, isolation: str, count: int, behind: int, timed: bool
) -> None:
    hand = box.lead()
    values, more, writers = between(box, isolation, count, behind)
    batch, found = hand.batch(count)
    assert found == values
    assert len(batch.runs) == 1
    batch = batch if timed else Batch(batch.runs)
    # A server that read one row more than these would wait here, and give up.
    assert texts(hand.advance(finished=[batch])) == more
    assert (hand.purged, hand.advanced.locked) == (count, [])
    for each in writers:
        each.commit()
    assert box.survey() == ["before", "after", *more]


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("count", [1, 8, 300, 1_000])
@pytest.mark.parametrize("behind", [0, 5])
def test_rows_are_marked_reset_and_purged_beside_rows_that_are_not_committed(
    box: Box, isolation: str, count: int, behind: int
) -> None:
    hand = box.lead()
    values, more, writers = between(box, isolation, count, behind)
    # A server that read one row more than these would wait here, and give up.
    marked = hand.mark(count)
    assert texts(marked) == values
    ids = [record.id for record in marked]
    assert hand.reset(*ids) == count
    assert texts(hand.mark(count)) == values
    assert hand.purge(*reversed(ids)) == count
    for each in writers:
        each.commit()
    assert box.survey() == ["before", "after", *more]


@pytest.mark.parametrize("step", [3, 40])
def test_a_batch_of_many_runs_is_deleted_around_rows_that_are_not_committed(box: Box, step: int) -> None:
    late, hand = writer(box, "READ COMMITTED"), box.lead()
    values: list[str] = []
    for number in range(40):
        values += box.fill(step)
        box.stasher.stash(late, plain("k", f"late {number}"))
    batch, found = hand.batch(10_000)
    assert (found, len(batch.runs)) == (values, 40)
    assert hand.advance(finished=[batch]) == []
    assert hand.purged == len(values)
    late.commit()
    assert box.survey() == [f"late {number}" for number in range(40)]


def test_a_batch_whose_last_row_is_gone_is_deleted_beside_one_that_is_not_committed(box: Box) -> None:
    """The server looks at the row behind then; after the lock time-out the rest is deleted by its ids."""
    hand, late = box.lead(), writer(box, "READ COMMITTED")
    box.fill(20)
    batch, _ = hand.batch()
    box.stasher.stash(late, plain("k", "late"))
    hand.advance(0, finished=[Batch(((batch.ids()[-1],) * 2,))])
    assert hand.advance(finished=[batch]) == []
    assert (hand.purged, hand.advanced.locked) == (19, [])
    late.commit()
    assert box.survey() == ["late"]


@pytest.mark.parametrize("count", [1, 2, 3, 30, 300])
def test_all_rows_that_are_committed_are_changed_around_one_that_is_not(box: Box, count: int) -> None:
    late, hand = writer(box, "READ COMMITTED"), box.lead()
    box.stasher.stash(late, plain("k", "late"))
    box.fill(count)
    ids = hand.ids()
    assert hand.reset(*ids) == count
    assert hand.ids() == ids
    with box.application().cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {box.options.table}")  # now the server knows that these are all
    assert hand.reset(*ids[1:]) == count - 1
    assert hand.ids() == ids[1:]
    assert hand.purge(*ids) == count
    late.commit()
    assert box.survey() == ["late"]


def test_the_server_ends_a_leader_that_falls_silent_with_the_fence_in_its_hand(box: Box) -> None:
    frozen = box.lead()
    table: Any = frozen.table

    def hold() -> None:
        with table._session.transaction("mark"):
            table._hold(frozen.fence)
            assert bump_in_the_end(box) > frozen.fence.token
            table._session.fetch("SELECT 1")

    with pytest.raises(DriverError) as caught:
        hold()
    assert caught.value.retryable


def bump_in_the_end(box: Box) -> int:
    table = box.connect()
    for _ in range(20):
        with suppress(DriverError):
            return table.bump(1, "successor")
    raise AssertionError("the fence was never let go")


def test_what_takes_too_long_is_ended_on_the_server_with_all_that_it_holds(box: Box) -> None:
    stuck = box.lead()
    table: Any = stuck.table
    # As when a server does not come to an end with a statement that it does not measure itself.
    table._session.connection._read_timeout = 1.0

    def hold() -> None:
        with table._session.transaction("mark"):
            table._hold(stuck.fence)
            table._session.execute("DO SLEEP(600)")

    with pytest.raises(DriverError, match="timed out") as caught:
        hold()
    assert caught.value.retryable
    assert bump_in_the_end(box) > stuck.fence.token


@pytest.mark.parametrize("bounded", [False, True])
def test_a_row_that_somebody_has_locked_keeps_back_its_key_alone(box: Box, bounded: bool) -> None:
    bound = 1 << 20 if bounded else UNBOUNDED
    values = box.fill(12, keys=4)
    hand, somebody = box.lead(), box.application()
    with somebody.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {box.options.table} WHERE id IN (5, 2) FOR UPDATE")  # of k1 and k2
    assert hand.values(3, max_bytes=bound) == [values[n] for n in (0, 2, 3)]
    assert hand.values(max_bytes=bound) == [values[n] for n in (6, 7, 10, 11)]
    assert hand.mark(max_bytes=bound) == []
    assert texts(box.lead().advance(max_bytes=bound)) == values, "a selection locks nothing"
    somebody.commit()
    assert hand.table.backlog().records == 12
    assert box.survey() == values


def test_a_leader_that_is_frozen_while_it_receives_rows_is_ended_by_the_server(box: Box) -> None:
    frozen = box.lead()
    box.stash(*(plain("k", "v" * 20_000) for _ in range(1_000)))
    table: Any = frozen.table
    connection = table._session.connection

    def receive() -> None:
        with table._session.transaction("mark"):
            table._hold(frozen.fence)
            # As a mark does; but nobody reads what comes, and the network holds only so much.
            connection._execute_command(COMMAND.COM_QUERY, f"SELECT * FROM {box.options.table}")
            assert bump_in_the_end(box) > frozen.fence.token
            connection._read_query_result()

    with pytest.raises(DriverError) as caught:
        receive()
    assert caught.value.retryable


def test_a_commit_that_hangs_is_ended_with_all_that_it_holds(box: Box) -> None:
    stuck, operator = box.lead(), box.application()
    table: Any = stuck.table
    number = table._session.connection.thread_id()
    table._session.connection._read_timeout = 0.5

    def hold() -> None:
        with table._session.transaction("mark"):
            table._hold(stuck.fence)
            table._session.execute(f"UPDATE {box.options.fence_table} SET metrics = '1'")
            table._session.execute("SET SESSION lock_wait_timeout = 600")
            operator.cursor().execute("FLUSH TABLES WITH READ LOCK")

    with pytest.raises(DriverError, match="timed out") as caught:
        hold()
    assert caught.value.retryable
    with operator.cursor() as cursor:
        # The lock is still there: without help the session would wait for it, whoever listens.
        for _ in range(600):
            cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE id = %s", [number])
            if cursor.fetchall() == ((0,),):
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the session was not ended")
        cursor.execute("UNLOCK TABLES")
    assert bump_in_the_end(box) > stuck.fence.token


def test_a_strangers_session_is_not_ended_though_it_has_the_number_of_ours(box: Box) -> None:
    stuck, stranger = box.lead(), box.application()
    table: Any = stuck.table
    connection = table._session.connection
    connection._read_timeout = 0.5
    # As after a failover behind the same address.
    connection.server_thread_id = stranger.server_thread_id
    connection._nonce = "of a session that is no more"
    with pytest.raises(DriverError, match="timed out"), table._session.transaction("wait"):
        table._session.execute("DO SLEEP(600)")
    with stranger.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)


def test_a_session_that_was_silent_for_long_goes_on(box: Box) -> None:
    hand = box.lead()
    [value] = box.fill(1)
    time.sleep(2.5)
    assert hand.values() == [value]


def test_a_session_that_is_killed_can_be_tried_again(box: Box) -> None:
    hand = box.lead()
    table: Any = hand.table
    with box.application().cursor() as cursor:
        cursor.execute(f"KILL {table._session.connection.thread_id()}")
    with pytest.raises(DriverError) as caught:
        hand.mark()
    assert caught.value.retryable
