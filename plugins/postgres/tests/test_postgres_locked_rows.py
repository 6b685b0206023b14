"""A row that somebody else's transaction has locked: its key waits in order, and every other flows."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from outbox_api import DriverError, LeadershipLost
from outbox_postgres import session
from outbox_postgres.session import LOOK_INTERVAL, LockedRows

from .outbox_hands import BatchHand, MakeOutbox, Outbox, said, until, waits
from .test_postgres_settled import Clock


def test_keys_are_left_out_until_none_of_their_rows_is_locked() -> None:
    clock = Clock()
    rows = LockedRows(clock)
    assert not rows.due()
    rows.found({1: "a", 2: "b"})
    rows.found({3: "a"})
    assert rows.keys == {"a", "b"}
    assert sorted(rows.ids) == [1, 2, 3]
    assert not rows.due()
    clock.now += LOOK_INTERVAL
    assert rows.due()
    rows.looked([3])
    assert rows.keys == {"a"}
    assert rows.ids == [3]
    assert not rows.due()
    clock.now += LOOK_INTERVAL
    rows.looked([])
    assert not rows.keys
    assert not rows.due()


@pytest.fixture
def box(make_outbox: MakeOutbox, outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    """An outbox whose marks wait for a moment only."""
    monkeypatch.setattr(session, "LOOK_INTERVAL", 0.0)
    outbox.fill(12, keys=3)
    return make_outbox(lock_timeout=0.3)


@pytest.fixture
def somebody(outbox: Outbox) -> psycopg.Connection[Any]:
    return outbox.session(application_name="report")


HOW = [
    "SELECT FROM outbox WHERE id = 4 FOR UPDATE",
    "SELECT FROM outbox WHERE id = 4 FOR SHARE",
    "UPDATE outbox SET kafka_value = 'changed' WHERE id = 4",
    "DELETE FROM outbox WHERE id = 4",
]


@pytest.mark.parametrize("how", HOW)
def test_marks_leave_out_a_locked_row_with_its_key_and_say_who_has_locked_it(
    box: Outbox, somebody: psycopg.Connection[Any], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    hand = box.lead()
    somebody.execute(how)
    with caplog.at_level(logging.INFO, "outbox.postgres"):
        assert hand.ids(5) == [2, 3, 5, 6, 8]
        assert hand.ids(5) == [9, 11, 12]
        assert hand.ids(5) == []
        assert "public.outbox: others have locked row 4; their keys wait" in caplog.text
        assert f"locked by server process {somebody.info.backend_pid} (report, user " in caplog.text
        assert len(said(caplog)) == 1, "it is said once"
        somebody.rollback()
        assert hand.ids() == [1, 4, 7, 10]
        assert "no row is locked any more" in caplog.text


def test_what_is_locked_and_then_deleted_holds_nothing_up(
    box: Outbox, somebody: psycopg.Connection[Any]
) -> None:
    hand = box.lead()
    somebody.execute("DELETE FROM outbox WHERE id = 1")
    assert hand.ids(2) == [2, 3]
    somebody.commit()
    assert hand.ids() == [4, 5, 6, 7, 8, 9, 10, 11, 12]


def waits_no_more(lane: BatchHand) -> None:
    """Takes the statements away that wait for locked rows."""
    del lane.table._batches.sql.finish
    del lane.table._batches.sql.advance


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("limit", [0, 3])
def test_batches_are_deleted_but_for_locked_rows_which_are_deleted_when_they_are_free(
    box: Outbox, somebody: psycopg.Connection[Any], how: str, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    (lane,) = box.lead_batches()
    somebody.execute(how)
    first, ids = lane.batch(3)
    second, more = lane.batch(3, pending=[first])
    assert (ids, more) == ([1, 2, 3], [4, 5, 6]), "they are selected as they were committed"
    assert lane.ids(limit, finished=[first, second]) == [7, 8, 9][:limit]
    locked = lane.latest.locked
    assert [batch.ids() for batch in locked] == [[4]]
    assert lane.latest.purged == 5
    assert box.ids() == [4, 7, 8, 9, 10, 11, 12]
    assert "public.outbox: others have locked 1 rows that are published" in caplog.text
    assert lane.ids(2, pending=locked) == [7, 8]
    waits_no_more(lane)
    for again in [first, second], [first, second], locked, locked:
        assert lane.ids(limit, finished=again) == [7, 8, 9][:limit]
        assert [batch.ids() for batch in lane.latest.locked] == [[4]]
    assert len(said(caplog)) == 1, "it is said once"
    somebody.commit()
    assert lane.ids(limit, finished=locked) == [7, 8, 9][:limit]
    assert lane.latest.locked == []
    assert box.ids() == [7, 8, 9, 10, 11, 12]
    assert lane.table._batches._locked == []


def test_a_lock_that_ends_in_time_delays_a_deletion_and_splits_nothing(
    box: Outbox, outbox: Outbox, somebody: psycopg.Connection[Any], pool: ThreadPoolExecutor
) -> None:
    (lane,) = outbox.lead_batches()
    batch, _ = lane.batch(3)
    somebody.execute(HOW[0].replace("4", "2"))
    advance = pool.submit(lane.ids, 3, [batch])
    until(lambda: waits(box, lane.table))
    somebody.rollback()
    assert advance.result(60) == [4, 5, 6]
    assert lane.latest.locked == []
    assert box.ids() == [*range(4, 13)]


def test_batches_that_are_deleted_with_locked_ones_wait_for_nobody(
    box: Outbox, outbox: Outbox, somebody: psycopg.Connection[Any]
) -> None:
    (lane,) = box.lead_batches()
    first, _ = lane.batch(3)
    second, _ = lane.batch(3, pending=[first])
    somebody.execute(HOW[0].replace("4", "2"))
    lane.delete(first)
    other = outbox.session()
    other.execute("SELECT FROM outbox WHERE id = 5 FOR UPDATE")
    waits_no_more(lane)
    assert lane.delete(*lane.latest.locked, second) == 2
    locked = lane.latest.locked
    assert [batch.ids() for batch in locked] == [[2], [5]]
    assert [batch.newest for batch in locked] == [first.newest, second.newest]
    other.rollback()
    assert lane.delete(*locked) == 1
    somebody.rollback()
    assert lane.delete(*lane.latest.locked) == 1
    assert box.ids() == [*range(7, 13)]


def test_a_locked_row_that_its_owner_deletes_is_no_longer_of_the_batch(
    box: Outbox, somebody: psycopg.Connection[Any]
) -> None:
    (lane,) = box.lead_batches()
    batch, _ = lane.batch(3)
    somebody.execute("DELETE FROM outbox WHERE id = 2")
    lane.delete(batch)
    somebody.commit()
    assert lane.delete(*lane.latest.locked) == 0
    assert lane.latest.locked == []


def test_who_lost_the_fence_deletes_no_free_row_either(
    box: Outbox, somebody: psycopg.Connection[Any]
) -> None:
    (zombie,) = box.lead_batches()
    batch, _ = zombie.batch(3)
    somebody.execute(HOW[0].replace("4", "2"))
    zombie.delete(batch)
    box.lead_batches()
    somebody.rollback()
    for limit in 0, 5:
        with pytest.raises(LeadershipLost):
            zombie.advance(limit, zombie.latest.locked)
    assert box.ids() == [2, *range(4, 13)]


def test_a_row_that_is_locked_meanwhile_is_left_out_as_well(
    box: Outbox, outbox: Outbox, somebody: psycopg.Connection[Any]
) -> None:
    hand, other = box.lead(), outbox.session()
    somebody.execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
    assert hand.ids(1) == [2]
    other.execute("SELECT FROM outbox WHERE id = 5 FOR UPDATE")
    assert hand.ids(2) == [3, 6]
    somebody.rollback()
    assert hand.ids(3) == [1, 4, 7]
    other.rollback()
    assert hand.ids() == [5, 8, 9, 10, 11, 12]


def test_a_row_that_a_trigger_keeps_is_told_of_and_not_counted(box: Outbox) -> None:
    hand = box.lead()
    marked = hand.ids()
    box.admin.execute(
        "CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN IF OLD.id IN (2, 5) THEN RETURN NULL; END IF; RETURN OLD; END$$"
    )
    box.admin.execute("CREATE TRIGGER keeps BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION keeps()")
    assert hand.purge(*marked) == len(marked) - 2
    assert list(hand.changed.kept) == [2, 5]
    assert not hand.changed.locked
    assert box.ids() == [2, 5]


def test_what_a_lane_has_marked_and_others_have_locked_is_said_once_with_who_has(
    box: Outbox, somebody: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    hand = box.lead()
    marked = hand.ids()
    somebody.execute("SELECT FROM outbox WHERE id = 4 FOR SHARE")
    with caplog.at_level(logging.INFO, "outbox.postgres"):
        for ids in (marked[:5], [4], marked[5:], [4]):
            assert hand.purge(*ids) == len([number for number in ids if number != 4])
        assert "public.outbox: others have locked row 4 after a mark" in caplog.text
        assert f"server process {somebody.info.backend_pid} (report, user " in caplog.text
        assert len(said(caplog)) == 1
        somebody.rollback()
        assert hand.purge(4) == 1
        assert "no marked row is locked any more" in caplog.text


@pytest.mark.parametrize("result", ["NULL", "OLD"])
def test_an_outbox_whose_rows_a_trigger_keeps_is_not_harvested(box: Outbox, result: str) -> None:
    box.admin.execute(
        f"CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN {result}; END$$"
    )
    box.admin.execute("CREATE TRIGGER keeps BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION keeps()")
    if result == "OLD":
        box.lead()
        return
    with pytest.raises(DriverError, match="trigger keeps may keep rows from being deleted"):
        box.lead()
