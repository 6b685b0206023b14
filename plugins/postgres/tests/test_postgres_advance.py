"""Batches: deleted and marked in one durable transaction, by whoever holds the fence."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_postgres.dead_letters import PostgresDeadLetters
from outbox_sdk import Batch, ColumnIs, DriverError, LeadershipLost, MarkedRecord

from .outbox_hands import BatchHand, MakeOutbox, Outbox, ask, until, waits


def test_deletes_the_finished_batch_and_marks_the_next(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(10)
    first, ids = lane.batch(4)
    assert ids == [1, 2, 3, 4]
    second, ids = lane.batch(4, finished=[first])
    assert ids == [5, 6, 7, 8]
    assert outbox.leaders() == dict.fromkeys(ids, second.leader_id) | {9: None, 10: None}
    assert [record.value for record in lane.advance(4, finished=[second])] == ["v9", "v10"]
    assert list(outbox.leaders()) == [9, 10]


def test_records_come_as_a_mark_would_bring_them(outbox: Outbox, lane: BatchHand) -> None:
    outbox.write("k", None, (["a", "b"], ["1", None]))
    outbox.write("k", "v", (["a"], []))
    sound, faulty = lane.advance()
    assert (sound.topic, sound.key, sound.value) == ("orders", "k", None)
    assert list(sound.headers) == [("a", "1"), ("b", None)]
    assert "1 header names and 0 header values" in (faulty.fault or "")


def test_pending_batches_are_left_out(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(9)
    first, _ = lane.batch(3)
    second, ids = lane.batch(3, pending=[first])
    assert ids == [4, 5, 6]
    third, ids = lane.batch(3, finished=[first], pending=[second])
    assert ids == [7, 8, 9]
    assert lane.ids(3, finished=[second], pending=[third]) == []
    assert set(outbox.leaders().values()) == {third.leader_id}


def test_several_finished_batches_are_deleted_at_once(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(50)
    batches: list[Batch] = []
    for _ in range(9):
        batches.append(lane.batch(5, pending=batches)[0])
    assert lane.ids(5, finished=[*batches[:3], *batches[4:]], pending=[batches[3]]) == [*range(46, 51)]
    assert list(outbox.leaders()) == [*range(16, 21), *range(46, 51)]


def test_only_rows_that_carry_the_batches_leader_id_are_deleted(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(6)
    batch, _ = lane.batch(5)
    other = uuid4()
    outbox.admin.execute("UPDATE outbox SET leader_id = %s WHERE id = 2", (other,))
    outbox.admin.execute("UPDATE outbox SET leader_id = NULL WHERE id = 4")
    lane.advance(0, finished=[batch])
    assert lane.purged == 3
    assert outbox.leaders() == {2: other, 4: None, 6: None}


@pytest.mark.parametrize("limit", [0, 5], ids=["only deletes", "marks too"])
def test_what_is_counted_are_the_rows_that_were_there(outbox: Outbox, lane: BatchHand, limit: int) -> None:
    outbox.fill(20)
    lane.advance(limit)
    assert lane.purged == 0
    first, _ = lane.batch(5)
    second, _ = lane.batch(5, pending=[first])
    outbox.admin.execute("DELETE FROM outbox WHERE id IN (2, 7, 8)")
    lane.advance(limit, finished=[first, second])
    assert lane.purged == 7
    lane.advance(limit, finished=[first, second])
    assert lane.purged == 0


def test_a_limit_of_0_only_deletes(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(6)
    first, _ = lane.batch(2)
    second, _ = lane.batch(2, pending=[first])
    assert lane.advance(0, finished=[first, second]) == []
    assert lane.purged == 4
    assert outbox.leaders() == {5: None, 6: None}
    assert lane.advance(0) == []
    assert lane.ids() == [5, 6]


def test_many_rows(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(30_000)
    first, ids = lane.batch(20_000)
    assert ids == [*range(1, 20_001)]
    assert lane.ids(20_000, finished=[first]) == [*range(20_001, 30_001)]
    assert list(outbox.leaders()) == [*range(20_001, 30_001)]


def test_batches_of_several_lanes_share_ranges_and_not_rows(outbox: Outbox) -> None:
    lanes = outbox.lead_batches(3)
    outbox.fill(300, keys=50)
    taken: dict[int, int] = {}
    finished: dict[int, list[Batch]] = {0: [], 1: [], 2: []}
    while True:
        before = len(taken)
        for number, hand in enumerate(lanes):
            records = hand.advance(10, finished=finished[number])
            taken |= {record.id: hash((number, record.key)) for record in records}
            finished[number] = [Batch(hand.leader, records[0].id, records[-1].id)] if records else []
        if len(taken) == before:
            break
    assert list(outbox.leaders()) == []
    assert sorted(taken) == [*range(1, 301)]
    assert len(set(taken.values())) == 50, "a key belongs to one lane"


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


def test_parked_keys_are_left_out_until_they_are_freed(
    outbox: Outbox, lane: BatchHand, letters: PostgresDeadLetters
) -> None:
    outbox.fill(8, keys=2)
    batch, _ = lane.batch(6)
    assert lane.park([1, 3, 5], 1) == 1
    # The rest of the batch was abandoned with its transaction.
    again, ids = lane.batch(10)
    assert ids == [2, 4, 6, 8]
    assert batch.leader_id not in outbox.leaders().values()
    assert lane.ids(10, finished=[again]) == []
    letters.retry([1])
    assert lane.ids(10) == [1, 3, 5, 7]


def acts(lane: BatchHand, batch: Batch) -> list[Callable[[], list[MarkedRecord]]]:
    return [
        lane.advance,
        lambda: lane.advance(0),
        lambda: lane.advance(10, finished=[batch]),
        lambda: lane.advance(0, finished=[batch]),
    ]


def test_a_zombies_advance_touches_nothing(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(4)
    batch, _ = lane.batch(2)
    before = outbox.leaders()
    outbox.lead_batches()
    for act in acts(lane, batch):
        with pytest.raises(LeadershipLost, match="no longer held by token 1"):
            act()
    assert outbox.leaders() == before


def test_of_two_attempts_at_a_lane_the_earlier_touches_nothing(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(4)
    batch, _ = lane.batch(2)
    before = outbox.leaders()
    later = BatchHand(lane.table, lane.table.enter(0, 1, lane.fence.token))
    for act in acts(lane, batch):
        with pytest.raises(LeadershipLost, match="attempt 1"):
            act()
    assert outbox.leaders() == before
    assert later.ids() == [1, 2, 3, 4], "what the earlier marked is found behind where its marks had come to"


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


def test_repeating_what_may_have_been_done_is_harmless(outbox: Outbox, lane: BatchHand) -> None:
    outbox.fill(6)
    first, _ = lane.batch(2)
    # This reply is lost: nobody knows the new batch, and whether the old one is gone.
    lane.advance(2, finished=[first])
    again = BatchHand(outbox.connect(), lane.fence)
    assert again.advance(0, finished=[first]) == []
    assert again.ids(2, finished=[first]) == [3, 4]
    assert outbox.leaders() == {3: again.leader, 4: again.leader, 5: None, 6: None}


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
