"""A row that somebody else's transaction has locked: its key waits in order, and every other flows."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from outbox_postgres import locked_rows
from outbox_postgres.locked_rows import LOOK_INTERVAL, LockedRows
from outbox_sdk import Batch

from .outbox_hands import MakeOutbox, Outbox
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
    monkeypatch.setattr(locked_rows, "LOOK_INTERVAL", 0.0)
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
        assert len(caplog.records) == 1, "it is said once"
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


@pytest.mark.parametrize("lanes", [1, 2])
def test_batches_leave_it_out_too(box: Outbox, somebody: psycopg.Connection[Any], lanes: int) -> None:
    box.fill(40)
    hands = box.lead_batches(lanes)
    somebody.execute("SELECT FROM outbox WHERE id = 1 FOR UPDATE")
    marked = [hand.advance(6) for hand in hands]
    assert all(marked)
    assert "k1" not in {record.key for records in marked for record in records}
    somebody.rollback()
    batches = [
        Batch(hand.leader, records[0].id, records[-1].id) for hand, records in zip(hands, marked, strict=True)
    ]
    later = [hand.advance(finished=[batch]) for hand, batch in zip(hands, batches, strict=True)]
    found = [record.id for records in later for record in records if record.key == "k1"]
    assert found == [1, 4, 7, 10, 13, 23, 33, 43]
    assert sum(map(len, (*marked, *later))) == 52


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
