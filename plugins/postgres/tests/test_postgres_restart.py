"""Ids that begin anew under a running harvester: nothing is missed, and each key stays in order."""

from __future__ import annotations

from typing import Any

import pytest
from outbox_sdk import DriverError

from .outbox_hands import BatchHand, Hand, MakeOutbox, Outbox

RESTARTS = [
    "TRUNCATE outbox RESTART IDENTITY",
    "DELETE FROM outbox; ALTER SEQUENCE outbox_id_seq RESTART",
]

pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture(params=["marks", "batches"])
def taker(outbox: Outbox, request: pytest.FixtureRequest) -> Hand | BatchHand:
    return outbox.lead() if request.param == "marks" else outbox.lead_batches()[0]


def harvest(outbox: Outbox, taker: Any) -> list[int]:
    """Takes and deletes all rows; connects again after an error, with the next epoch, as a lane does."""
    try:
        ids = taker.ids()
    except DriverError:
        fence = taker.fence
        taker.table = outbox.connect()
        taker.fence = taker.table.enter(fence.lane, fence.lanes, fence.token)
        ids = taker.ids()
    outbox.admin.execute("DELETE FROM outbox WHERE id = ANY (%s)", (ids,))
    return list(ids)


@pytest.mark.parametrize("restart", RESTARTS)
def test_rows_are_taken_in_order_though_their_ids_begin_anew_and_pass_where_they_were(
    outbox: Outbox, taker: Hand | BatchHand, restart: str
) -> None:
    for _ in range(2):
        outbox.fill(10)
        assert len(harvest(outbox, taker)) == 10
    assert harvest(outbox, taker) == []
    outbox.admin.execute(restart)
    outbox.fill(30)
    assert harvest(outbox, taker) == list(range(1, 31))
    outbox.fill(5)
    assert taker.ids() == list(range(31, 36))


def test_a_low_id_that_is_committed_late_is_found_behind_a_restart(
    outbox: Outbox, taker: Hand | BatchHand
) -> None:
    outbox.fill(100)
    assert len(harvest(outbox, taker)) == 100
    assert harvest(outbox, taker) == []
    outbox.admin.execute(RESTARTS[0])
    late = outbox.session()
    outbox.write(connection=late)
    outbox.write()
    assert harvest(outbox, taker) == [2]
    assert harvest(outbox, taker) == []
    late.commit()
    outbox.write()
    assert harvest(outbox, taker) == [1, 3]


def test_what_is_marked_before_a_restart_and_after_it_is_never_taken_for_each_other(
    outbox: Outbox, hand: Hand
) -> None:
    outbox.fill(10)
    before = hand.ids()
    outbox.admin.execute(RESTARTS[0])
    outbox.fill(10)
    with pytest.raises(DriverError, match="begin anew") as caught:
        hand.mark()
    assert caught.value.retryable
    assert set(outbox.leaders().values()) == {None}, "the leader id is in use for rows of before"
    assert hand.purge(*before) == 0
    assert len(outbox.ids()) == 10


def test_nothing_is_selected_beside_a_batch_of_before_and_that_deletes_no_new_row(
    outbox: Outbox, lane: BatchHand
) -> None:
    outbox.fill(10)
    before, _ = lane.batch()
    outbox.admin.execute(RESTARTS[0])
    outbox.fill(20)
    with pytest.raises(DriverError, match="begin anew") as caught:
        lane.advance(pending=[before])
    assert caught.value.retryable
    assert lane.delete(before) == 0
    assert len(outbox.ids()) == 20


def test_an_outbox_whose_ids_come_from_no_sequence_knows_nothing_of_it(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    outbox.dialect.create()
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq CACHE 2")
    hand = outbox.lead()
    outbox.fill(10)
    assert harvest(outbox, hand) == list(range(1, 11))
    outbox.admin.execute(RESTARTS[0])
    outbox.fill(10)
    assert hand.ids() == list(range(1, 11))
