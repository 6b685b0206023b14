"""Pauses: what is noted of them, and what of an outbox counts while they last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from time import monotonic, sleep

import pytest
from outbox_api import MAX_PAUSES, WHOLE, DriverError, Record

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box

_CLOCKS = timedelta(seconds=1)
"""A database may keep fewer digits of one time than of another."""


class PauseConformance(Conformance):
    """``pause``, ``resume``, ``pauses``, and what a view tells of what waits."""

    def test_a_pause_lasts_until_it_is_resumed(self, box: Box) -> None:
        table = box.connect()
        assert table.pauses() == []
        assert table.resume("orders") is None
        made = table.pause("orders", "ann", "partitions: '{ä}%s'")
        assert (made.topic, made.operator, made.reason) == ("orders", "ann", "partitions: '{ä}%s'")
        assert made.until is None
        assert table.now() - _CLOCKS <= made.since <= table.now() + _CLOCKS
        (found,) = box.connect().pauses()
        assert (found.topic, found.since, found.until) == ("orders", made.since, None)
        ended = table.resume("orders")
        assert ended is not None
        assert ended.since == made.since
        assert table.pauses() == []

    def test_a_topic_and_the_whole_outbox_are_paused_apart(self, box: Box) -> None:
        table = box.connect()
        for topic in ("b", WHOLE, "a ' topic", "ä"):
            table.pause(topic, "ann", "")
        assert [each.topic for each in table.pauses()] == [WHOLE, "a ' topic", "b", "ä"]
        table.resume(WHOLE)
        assert [each.topic for each in table.pauses()] == ["a ' topic", "b", "ä"]
        assert table.resume("B") is None
        table.resume("b")
        assert [each.topic for each in table.pauses()] == ["a ' topic", "ä"]

    def test_a_topic_that_no_row_can_have_is_not_paused(self, box: Box) -> None:
        """Every lane would fail, again and again, as it asks for rows of other topics than this."""
        table = box.connect()
        for topic in ("a\0b", "\ud800"):
            with pytest.raises(DriverError, match="cannot hold"):
                table.pause(topic, "ann", "")
        assert table.pauses() == []

    def test_a_pause_ends_by_itself_and_another_one_begins(self, box: Box) -> None:
        table = box.connect()
        first = table.pause("orders", "ann", "", 1.0)
        table.pause("bills", "ann", "", 3600.0)
        assert first.until is not None
        deadline = monotonic() + 30
        while len(table.pauses()) == 2:
            assert monotonic() < deadline
            sleep(0.05)
        assert table.now() >= first.until - _CLOCKS
        assert [each.topic for each in table.pauses()] == ["bills"]
        assert table.resume("orders") is None, "it has ended"
        assert table.pause("orders", "bob", "").since > first.since

    def test_what_is_paused_again_goes_on(self, box: Box) -> None:
        table = box.connect()
        first = table.pause("orders", "ann", "one", 3600.0)
        second = table.pause("orders", "bob", "two")
        assert (second.since, second.until, second.operator) == (first.since, None, "bob")
        (found,) = table.pauses()
        assert (found.since, found.operator, found.reason) == (first.since, "bob", "two")
        assert found.lasted >= 0

    def test_operators_at_once_lose_no_pause(self, box: Box) -> None:
        def pause(number: int) -> None:
            with closing(box.dialect.connect()) as table:
                table.pause(f"topic {number}", "ann", "")
                if number % 2:
                    table.resume(f"topic {number}")

        box.connect().identity()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(pause, range(12)))
        assert {each.topic for each in box.connect().pauses()} == {f"topic {n}" for n in range(0, 12, 2)}

    def test_pauses_are_bounded(self, box: Box) -> None:
        table = box.connect()
        made = table.pause("t0", "n" * 1000, f"zero \0, half \udc80{'x' * 1000}")
        assert (len(made.operator), len(made.reason)) == (200, 200)
        for number in range(1, MAX_PAUSES):
            table.pause(f"t{number}", "ann", "")
        with pytest.raises(DriverError, match=f"{MAX_PAUSES} pauses") as refused:
            table.pause("one more", "ann", "")
        assert not refused.value.retryable
        table.pause("t0", "ann", "again")
        assert len(table.pauses()) == MAX_PAUSES

    def test_pauses_outlive_leaders_and_takeovers(self, box: Box) -> None:
        table = box.connect()
        made = table.pause("orders", "ann", "")
        table.begin_takeover(2, "planned")
        hands = box.lead_all(2)
        table.end_takeover(2)
        assert [each.fence.lane for each in table.lane_statuses()] == [0, 1]
        assert [each.since for each in hands[0].table.pauses()] == [made.since]

    def test_outboxes_have_pauses_of_their_own(self, box: Box) -> None:
        other = box.beside("b")
        box.connect().pause("orders", "ann", "")
        assert other.connect().pauses() == []
        assert other.connect().resume("orders") is None
        assert [each.topic for each in box.connect().pauses()] == ["orders"]

    def test_what_waits_is_counted_by_topic(self, box: Box) -> None:
        with closing(box.dialect.watch()) as view:
            assert view.waiting() == {}
            box.stash(*(Record(topic, "k", "v") for topic in ("a", "b", "a", "A")))
            assert view.waiting() == {"a": 2, "b": 1, "A": 1}

    def test_the_oldest_leaves_out_paused_topics(self, box: Box) -> None:
        table = box.connect()
        box.stash(Record("old", "k", "v"))
        sleep(1.1)
        box.stash(Record("young", "k", "v"))
        began = monotonic()
        before = table.backlog().oldest or 0
        assert before >= 1
        after = table.backlog(["old", "none"])
        assert after.records == 2
        assert after.oldest is not None
        assert after.oldest < before + (monotonic() - began) - 1, "the younger one's"
        assert table.backlog(["old", "young"]).oldest is None
