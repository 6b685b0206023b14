"""Batches: deleted by whoever holds the fence, and selected, in one durable transaction."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from outbox_api import AccessDenied, Batch, ColumnIs, DriverError, LeadershipLost, MarkedRecord

from .outbox_hands import BatchHand, MakeOutbox, Outbox, ask, until, waits

VERSIONS = "SELECT id, ctid::text, xmin::text, xmax::text FROM outbox ORDER BY id"


def test_records_come_as_a_mark_would_bring_them(outbox: Outbox, lane: BatchHand) -> None:
    outbox.write("k", None, (["a", "b"], ["1", None]))
    outbox.write("k", "v", (["a"], []))
    sound, faulty = lane.advance()
    assert (sound.topic, sound.key, sound.value) == ("orders", "k", None)
    assert list(sound.headers) == [("a", "1"), ("b", None)]
    assert "1 header names and 0 header values" in (faulty.fault or "")


def test_only_eligible_rows_are_selected(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ADD COLUMN cluster TEXT, ADD COLUMN zone INT")
    outbox.fill(6)
    outbox.admin.execute("UPDATE outbox SET cluster = 'eu' WHERE id IN (2, 5)")
    outbox.admin.execute("UPDATE outbox SET zone = 7 WHERE id = 3")
    table = outbox.connect(eligible=[ColumnIs("cluster", "eu"), ColumnIs("zone", 7)])
    hand = BatchHand(table, table.enter(0, 1, table.bump(1, "test")))
    first, ids = hand.batch(1)
    assert ids == [2]
    second, ids = hand.batch(2, pending=[first], source=1)
    assert ids == [3]
    assert hand.ids(2, finished=[first, second]) == [5]
    assert outbox.ids() == [1, 4, 5, 6]


def test_rows_that_become_old_enough_during_a_selection_are_all_deleted_or_all_left(outbox: Outbox) -> None:
    """Rows with lower ids and later times than others become eligible one after the other."""
    outbox.admin.execute("ALTER TABLE outbox ADD COLUMN cluster TEXT NOT NULL DEFAULT 'eu'")
    table = outbox.connect(eligible=[ColumnIs("cluster", "eu", 1.0)])
    hand = BatchHand(table, table.enter(0, 1, table.bump(1, "test")))
    outbox.admin.execute(
        "INSERT INTO outbox (create_time, kafka_topic, kafka_key) "
        "SELECT clock_timestamp() - i * interval '100 microseconds', 'orders', 'k' "
        "FROM generate_series(1, 20000) AS i"
    )
    seen: list[int] = []
    while len(seen) < 20_000:
        batch, ids = hand.batch(20_000)
        seen += ids
        hand.delete(batch)
    assert len(seen) == len(set(seen)), "a row was not deleted with its batch"
    assert outbox.ids() == []


def test_a_selection_changes_no_row_and_writes_nothing(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(20)
    before = outbox.admin.execute(VERSIONS).fetchall()
    connection = lane.table._connection
    with connection.transaction():
        first, _ = lane.batch(10)
        lane.ids(10, pending=[first])
        lane.advance(10, max_bytes=50)
        assert [record.id for record in lane.table.rows(first)] == [*range(1, 11)]
        assert ask(connection, "SELECT pg_current_xact_id_if_assigned()") is None
        locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'RowShareLock'"
        assert ask(connection, locks) == 0
    assert outbox.admin.execute(VERSIONS).fetchall() == before


def test_a_batch_is_a_set_of_ids(outbox: Outbox) -> None:
    outbox.fill(300, keys=50)
    one, other = outbox.lead_batches(2)
    first, ids = one.batch(60)
    assert len(first.runs) > 5, "the test did not come to what it tests"
    late = [*range(301, 311)]
    outbox.fill(10)
    assert one.delete(first) == 60
    assert outbox.ids() == [number for number in [*range(1, 301), *late] if number not in ids]
    theirs, _ = other.batch(1000)
    rest, _ = one.batch(1000)
    assert one.delete(rest) + other.delete(theirs) == 250
    assert outbox.ids() == []


def test_rows_between_the_ids_of_a_batch_stay(outbox: Outbox, lane: BatchHand) -> None:
    late = outbox.session()
    outbox.fill(5)
    outbox.write("late", connection=late)
    outbox.fill(5)
    batch, ids = lane.batch()
    assert ids == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    late.commit()
    assert lane.delete(batch) == 10
    assert lane.ids() == [6]


def test_a_batch_of_nothing_deletes_nothing(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(3)
    assert lane.delete(Batch(())) == 0
    assert lane.ids(finished=[Batch(())], pending=[Batch(())]) == [1, 2, 3]


def test_rows_of_a_former_mode_are_selected_whatever_their_leader_id(outbox: Outbox) -> None:
    outbox.fill(4)
    former = outbox.lead()
    former.mark(2)
    (lane,) = outbox.lead_batches()
    batch, ids = lane.batch()
    assert ids == [1, 2, 3, 4]
    assert lane.delete(batch) == 4


def acts(lane: BatchHand, batch: Batch) -> list[Callable[[], list[MarkedRecord]]]:
    return [
        lambda: lane.advance(0),
        lambda: lane.advance(10, finished=[batch]),
        lambda: lane.advance(0, finished=[batch]),
    ]


@pytest.mark.parametrize("number", range(3))
def test_an_advance_blocked_behind_a_bump_deletes_nothing(
    outbox: Outbox, lane: BatchHand, pool: ThreadPoolExecutor, number: int
) -> None:
    outbox.fill(4)
    batch, _ = lane.batch(2)
    blocker = outbox.session()
    # What a bump does, held open.
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    advance: Future[object] = pool.submit(acts(lane, batch)[number])
    until(lambda: waits(outbox, lane.table))
    blocker.commit()
    with pytest.raises(LeadershipLost):
        advance.result(60)
    assert outbox.ids() == [1, 2, 3, 4]


def test_a_fence_that_is_locked_for_too_long_is_a_retryable_error(
    make_outbox: MakeOutbox, outbox: Outbox
) -> None:
    outbox.fill(4)
    (lane,) = make_outbox(lock_timeout=0.1).lead_batches()
    batch, _ = lane.batch(2)
    blocker = outbox.session()
    blocker.execute("UPDATE outbox_fence SET releases = releases")
    for act in acts(lane, batch):
        with pytest.raises(DriverError, match="holds the lock for too long") as caught:
            act()
        assert caught.value.retryable
    assert lane.ids() == [1, 2, 3, 4], "a selection waits for nobody"
    blocker.rollback()
    blocker.execute("LOCK outbox")
    with pytest.raises(DriverError, match="holds the lock for too long") as caught:
        lane.advance()
    assert caught.value.retryable


@pytest.mark.parametrize("limit", [0, 2])
def test_a_bump_waits_for_an_advance_in_progress(
    outbox: Outbox, lane: BatchHand, pool: ThreadPoolExecutor, limit: int
) -> None:
    outbox.fill(5)
    batch, _ = lane.batch(2)
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 2 FOR UPDATE")
    advance = pool.submit(lane.ids, limit, [batch])
    until(lambda: waits(outbox, lane.table))
    other = outbox.connect()
    bump = pool.submit(other.bump, 1, "other")
    until(lambda: waits(outbox, other))
    row.rollback()
    assert advance.result(60) == [3, 4][:limit]
    leader = BatchHand(other, other.enter(0, 1, bump.result(60)))
    assert leader.ids() == [3, 4, 5]


def test_of_an_advance_cut_off_in_its_midst_nothing_stays(
    outbox: Outbox, lane: BatchHand, pool: ThreadPoolExecutor
) -> None:
    outbox.fill(6)
    batch, _ = lane.batch(3)
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 2 FOR UPDATE")
    advance = pool.submit(lane.advance, 3, [batch])
    until(lambda: waits(outbox, lane.table))
    outbox.admin.execute("SELECT pg_terminate_backend(%s)", (lane.table._connection.info.backend_pid,))
    with pytest.raises(DriverError) as caught:
        advance.result(60)
    assert caught.value.retryable
    row.rollback()
    assert outbox.ids() == [1, 2, 3, 4, 5, 6]


def test_deletions_are_durable_even_where_the_server_is_not(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    (lane,) = make_outbox().lead_batches()
    outbox.fill(4)
    outbox.admin.execute(
        "CREATE TABLE seen (what text, how text, transaction text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
        "$$ BEGIN INSERT INTO seen "
        "VALUES (TG_OP, current_setting('synchronous_commit'), pg_current_xact_id()); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER note AFTER UPDATE OR DELETE ON outbox "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
    )
    first, _ = lane.batch(1)
    second, _ = lane.batch(1, finished=[first])
    lane.delete(second)
    noted = outbox.admin.execute("SELECT what, how, transaction FROM seen ORDER BY ctid").fetchall()
    assert [(what, how) for what, how, _ in noted] == [("DELETE", "on")] * 2
    assert ask(lane.table._connection, "SHOW synchronous_commit") == "on"


def test_what_the_user_must_be_allowed_to_do(
    outbox: Outbox, make_outbox: MakeOutbox, user: tuple[str, str]
) -> None:
    """Deletions that leave out locked rows lock the others, which takes the right to update some column."""
    outbox.fill(4)
    name, dsn = user
    outbox.admin.execute(
        f"GRANT SELECT, DELETE, UPDATE (leader_id) ON outbox TO {name}; "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_fence, outbox_fence_notes, outbox_dead_letters"
        f" TO {name}"
    )
    (lane,) = make_outbox(dsn, lock_timeout=0.1).lead_batches()
    first, _ = lane.batch(1)
    second, _ = lane.batch(1, finished=[first])
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = 2 FOR UPDATE")
    assert lane.ids(finished=[second]) == [3, 4]
    assert outbox.ids() == [2, 3, 4]
    outbox.admin.execute(f"REVOKE UPDATE (leader_id) ON outbox FROM {name}")
    with pytest.raises(AccessDenied, match="grant the permission"):
        lane.delete(second)
