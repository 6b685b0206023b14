"""Batches: deleted and marked in one durable transaction, by whoever holds the fence."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from outbox_sdk import Batch, ColumnIs, DriverError, LeadershipLost, MarkedRecord

from .outbox_hands import BatchHand, MakeOutbox, Outbox, ask, until, waits


def test_records_come_as_a_mark_would_bring_them(outbox: Outbox, lane: BatchHand) -> None:
    outbox.write("k", None, (["a", "b"], ["1", None]))
    outbox.write("k", "v", (["a"], []))
    sound, faulty = lane.advance()
    assert (sound.topic, sound.key, sound.value) == ("orders", "k", None)
    assert list(sound.headers) == [("a", "1"), ("b", None)]
    assert "1 header names and 0 header values" in (faulty.fault or "")


def test_only_eligible_rows_are_marked(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ADD COLUMN cluster TEXT, ADD COLUMN zone INT")
    outbox.fill(6)
    outbox.admin.execute("UPDATE outbox SET cluster = 'eu' WHERE id IN (2, 5)")
    outbox.admin.execute("UPDATE outbox SET zone = 7 WHERE id = 3")
    table = outbox.connect(eligible=[ColumnIs("cluster", "eu"), ColumnIs("zone", 7)])
    hand = BatchHand(table, table.enter(0, 1, table.bump(1, "test")))
    first, ids = hand.batch(2)
    assert ids == [2, 3]
    assert hand.ids(2, finished=[first]) == [5]
    assert list(outbox.leaders()) == [1, 4, 5, 6]


def acts(lane: BatchHand, batch: Batch) -> list[Callable[[], list[MarkedRecord]]]:
    return [
        lane.advance,
        lambda: lane.advance(0),
        lambda: lane.advance(10, finished=[batch]),
        lambda: lane.advance(0, finished=[batch]),
    ]


@pytest.mark.parametrize("number", range(4))
def test_an_advance_blocked_behind_a_bump_touches_nothing(
    outbox: Outbox, lane: BatchHand, pool: ThreadPoolExecutor, number: int
) -> None:
    outbox.fill(4)
    batch, _ = lane.batch(2)
    before = outbox.leaders()
    blocker = outbox.session()
    # What a bump does, held open.
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    advance: Future[object] = pool.submit(acts(lane, batch)[number])
    until(lambda: waits(outbox, lane.table))
    blocker.commit()
    with pytest.raises(LeadershipLost):
        advance.result(10)
    assert outbox.leaders() == before


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
    assert advance.result(10) == [3, 4][:limit]
    leader = BatchHand(other, other.enter(0, 1, bump.result(10)))
    assert leader.ids() == [3, 4, 5]


@pytest.mark.parametrize("at", [2, 4], ids=["while it deletes", "while it marks"])
def test_of_an_advance_cut_off_in_its_midst_nothing_stays(
    outbox: Outbox, lane: BatchHand, pool: ThreadPoolExecutor, at: int
) -> None:
    outbox.fill(6)
    batch, _ = lane.batch(3)
    before = outbox.leaders()
    row = outbox.session()
    row.execute("SELECT FROM outbox WHERE id = %s FOR UPDATE", (at,))
    advance = pool.submit(lane.advance, 3, [batch])
    until(lambda: waits(outbox, lane.table))
    outbox.admin.execute("SELECT pg_terminate_backend(%s)", (lane.table._connection.info.backend_pid,))
    with pytest.raises(DriverError) as caught:
        advance.result(10)
    assert caught.value.retryable
    row.rollback()
    assert outbox.leaders() == before


def test_advances_are_durable_even_where_the_server_is_not(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    (lane,) = make_outbox().lead_batches()
    outbox.fill(4)
    outbox.admin.execute(
        "CREATE TABLE seen (what text, how text, transaction text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen "
        "VALUES (TG_OP, current_setting('synchronous_commit'), pg_current_xact_id()); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER note AFTER UPDATE OR DELETE ON outbox "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
    )
    first, _ = lane.batch(1)
    second, _ = lane.batch(1, finished=[first])
    lane.advance(0, finished=[second])
    noted = outbox.admin.execute("SELECT what, how, transaction FROM seen ORDER BY ctid").fetchall()
    assert sorted(what for what, _, _ in noted) == ["DELETE", "DELETE", "UPDATE", "UPDATE"]
    assert {how for _, how, _ in noted} == {"on"}
    assert len({transaction for _, _, transaction in noted}) == 3
    assert ask(lane.table._connection, "SHOW synchronous_commit") == "on"
