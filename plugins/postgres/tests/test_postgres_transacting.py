"""The note of who publishes in transactions: on the lane's own row, kept until the lane takes it back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from outbox_sdk import LeadershipLost

from .outbox_hands import MakeOutbox, Outbox, until, waits


def test_each_lane_notes_for_itself_as_one_of_how_many(outbox: Outbox) -> None:
    table = outbox.connect()
    assert table.transacting() == {}
    token = table.bump(3, "test")
    assert table.transacting() == {}
    lanes = [table.enter(lane, 3, token) for lane in range(3)]
    for fence in (lanes[2], lanes[0], lanes[0]):
        table.transact(fence, begun=True)
    assert list(table.transacting().items()) == [(0, 3), (2, 3)]
    for _ in range(2):
        table.transact(lanes[0], begun=False)
    assert table.transacting() == {2: 3}
    assert outbox.connect().transacting() == {2: 3}


def test_a_note_outlives_bumps_and_attempts_and_is_taken_back_by_a_leader_with_fewer_lanes(
    outbox: Outbox,
) -> None:
    table = outbox.connect()
    token = table.bump(4, "wide")
    for lane in (0, 3):
        table.transact(table.enter(lane, 4, token), begun=True)
    token = table.bump(2, "narrow")
    assert table.transacting() == {0: 4, 3: 4}
    fence = table.enter(3, 2, token)
    table.beat(fence, {"rate": 1})
    assert table.transacting() == {0: 4, 3: 4}
    # A lane that is no more is entered all the same, for what it left to be settled.
    table.advance(fence, [], uuid4(), 0, [])
    table.transact(fence, begun=False)
    assert table.transacting() == {0: 4}
    table.transact(table.enter(0, 2, token), begun=True)
    assert table.transacting() == {0: 2}


@pytest.mark.parametrize("begun", [True, False])
def test_nobody_notes_under_an_old_fence(outbox: Outbox, begun: bool) -> None:
    lane = outbox.lead_batches()[0]
    lane.table.transact(lane.fence, begun=not begun)
    before = lane.table.transacting()
    later = lane.table.enter(0, 1, lane.fence.token)
    with pytest.raises(LeadershipLost, match="attempt 1"):
        lane.table.transact(lane.fence, begun=begun)
    outbox.connect().bump(1, "another")
    with pytest.raises(LeadershipLost, match="attempt 2"):
        lane.table.transact(later, begun=begun)
    assert lane.table.transacting() == before


def test_a_note_that_waited_for_a_bump_is_not_made(outbox: Outbox, pool: ThreadPoolExecutor) -> None:
    lane = outbox.lead_batches()[0]
    blocker = outbox.session()
    blocker.execute("UPDATE outbox_fence SET token = token + 1")
    note = pool.submit(lane.table.transact, lane.fence, begun=True)
    until(lambda: waits(outbox, lane.table))
    blocker.commit()
    with pytest.raises(LeadershipLost):
        note.result(10)
    assert lane.table.transacting() == {}


def test_tables_of_one_schema_do_not_share_their_notes(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    other = make_outbox(table="second")
    other.dialect.create()
    (lane,) = outbox.lead_batches()
    (beside,) = other.lead_batches()
    lane.table.transact(lane.fence, begun=True)
    assert beside.table.transacting() == {}


def test_notes_are_durable_even_where_the_server_is_not(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    (lane,) = make_outbox().lead_batches()
    outbox.admin.execute(
        "CREATE TABLE seen (how text);"
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen "
        "VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER see AFTER UPDATE ON outbox_fence "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()"
    )
    lane.table.mark(lane.fence, lane.leader, 1)
    lane.table.transact(lane.fence, begun=True)
    lane.table.transact(lane.fence, begun=False)
    assert outbox.admin.execute("SELECT how FROM seen").fetchall() == [("on",), ("on",)]
