"""Marks: the earliest rows, in order, of their lane, once for each leader id."""

from __future__ import annotations

import time as clock
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep, time
from uuid import uuid4

import pytest
from outbox_api import UNBOUNDED, Capability

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.stashing import TEXTS
from outbox_testkit.conformance.under_test import ALL, Box, Hand, plain, texts

TOLERANCE = 60.0
"""Seconds by which clocks may differ, and which a busy machine may need; no zone is as near to another."""


@contextmanager
def elsewhere() -> Iterator[None]:
    """Has this process live in another time zone, where the system can do that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        getattr(clock, "tzset", int)()
        try:
            yield
        finally:
            patch.undo()
            getattr(clock, "tzset", int)()


class MarkConformance(Conformance):
    """One lane's marks, and how lanes share the rows."""

    def test_marks_the_earliest_rows_in_order(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(10)
        assert hand.values(4) == values[:4]
        assert hand.values(1) == values[4:5]
        assert hand.values(100) == values[5:]
        assert hand.mark() == []

    def test_marks_nothing_where_nothing_is(self, box: Box) -> None:
        hand = box.lead()
        assert hand.mark() == []
        values = box.fill(1)
        assert hand.values() == values
        hand.purge(*hand.ids())
        assert hand.mark() == []

    def test_ids_rise_and_stay(self, box: Box) -> None:
        hand = box.lead()
        box.fill(200)
        ids = hand.ids()
        assert ids == sorted(set(ids))
        hand.remark()
        assert hand.ids() == ids

    def test_a_leader_id_claims_a_row_once_and_a_new_one_claims_it_anew(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6)
        assert hand.values(4) == values[:4]
        hand.remark()
        assert hand.values(2) == values[:2]
        assert hand.values(10) == values[2:]
        assert hand.mark() == []
        assert box.lead().values() == values

    def test_what_is_stashed_later_is_marked_later(self, box: Box) -> None:
        hand = box.lead()
        for _ in range(5):
            values = box.fill(3)
            assert hand.values() == values

    def test_many_rows_are_marked_at_once(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(10_000)
        assert hand.values(9_000) == values[:9_000]
        assert hand.values(9_000) == values[9_000:]

    def test_a_purged_row_leaves_a_gap_and_the_order(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(9)
        hand.purge(*hand.ids()[1::2])
        hand.remark()
        assert hand.values() == values[::2]

    def test_rows_tell_when_they_were_created(self, box: Box) -> None:
        hand = box.lead()
        box.stash(plain("old"))
        sleep(1.1)
        box.stash(plain("young"), plain("large", "v" * 5_000))
        with elsewhere():
            for found in (hand.mark(), hand.advance(), box.lead().mark(max_bytes=10_000)):
                old, young, large = (record.created or 0 for record in found)
                assert 1 <= young - old < TOLERANCE
                assert abs(large - young) < TOLERANCE
                assert abs(young - time()) < TOLERANCE, "whatever the zone of this process is"

    def test_of_many_rows_some_tell_when_they_were_created(self, box: Box) -> None:
        hand = box.lead()
        box.fill(1_000)
        for found in (hand.mark(500), hand.mark(500), hand.advance(500), hand.advance(500)):
            told = [record.created for record in found if record.created is not None]
            assert told, "one of 64 does"
            assert all(abs(each - time()) < TOLERANCE for each in told)

    def test_all_selected_rows_tell_when_they_were_created_if_they_are_asked(self, box: Box) -> None:
        hand = box.lead()
        box.fill(500)
        for max_bytes in (UNBOUNDED, 100_000):
            hand.advance(500)  # a choice may sample where the last one was large
            found = hand.table.advance(hand.fence, [], [], 500, max_bytes, dated=True).records
            assert len(found) == 500
            assert all(abs((each.created or 0) - time()) < TOLERANCE for each in found)

    @needs(Capability.CONCURRENT_WRITERS)
    def test_nothing_is_marked_before_its_commit(self, box: Box) -> None:
        hand, application = box.lead(), box.application()
        box.stasher.stash(application, plain(value="v"))
        assert hand.mark() == []
        application.commit()
        assert hand.values() == ["v"]

    @needs(Capability.CONCURRENT_WRITERS)
    def test_late_commits_are_found_at_the_head_and_rollbacks_never(self, box: Box) -> None:
        hand = box.lead()
        late, later, gone = (box.application() for _ in range(3))
        for application, value in ((late, "late"), (gone, "gone"), (later, "later")):
            box.stasher.stash(application, plain(value, value))
        values = box.fill(5)
        marked = hand.mark(3)
        assert texts(marked) == values[:3]
        gone.rollback()
        later.commit()
        assert hand.values(1) == ["later"]
        hand.purge(*(record.id for record in marked))
        late.commit()
        (first,) = hand.mark(1)
        assert texts([first]) == ["late"]
        assert first.id < marked[0].id
        assert hand.values() == values[3:]

    @pytest.mark.parametrize("lanes", [1, 2, 3, 7])
    def test_each_key_belongs_to_one_lane_and_stays_there(self, box: Box, lanes: int) -> None:
        keys = ["", *TEXTS, *(f"order-{number}" for number in range(150)), *"ABCabc"]
        for round_ in range(2):
            box.stash(*(plain(key, f"{round_} {key}") for key in keys))
        homes: dict[str, set[int]] = defaultdict(set)
        for _ in range(2):
            seen = []
            for lane, hand in enumerate(box.lead_all(lanes)):
                marked = hand.mark(ALL)
                assert marked, f"no key of {len(keys)} belongs to lane {lane}"
                ids = [record.id for record in marked]
                assert ids == sorted(ids)
                seen += ids
                for record in marked:
                    homes[record.key].add(lane)
            assert len(seen) == len(set(seen)) == 2 * len(keys)
        assert homes.keys() == set(keys)
        assert {key: lanes for key, lanes in homes.items() if len(lanes) > 1} == {}

    def test_a_lane_marks_its_rows_behind_those_of_others(self, box: Box) -> None:
        box.fill(200, keys=40)
        hands = box.lead_all(3)
        values = [hand.values(ALL) for hand in hands]
        for hand, mine in zip(box.lead_all(3), values, strict=True):
            found: list[str] = []
            while some := hand.values(7):
                found += some
            assert found == mine

    def test_after_a_lost_reply_the_same_leader_id_goes_on_and_a_new_one_starts_anew(self, box: Box) -> None:
        lost, values = box.lead(), box.fill(6)
        lost.mark(2)  # the reply is lost
        lost.table.close()
        same = Hand(box.connect(), lost.fence)
        same.leader = lost.leader
        assert same.values(2) == values[2:4]
        anew = Hand(box.connect(), lost.fence)
        assert anew.values(3) == values[:3]
        ids = same.table.mark(lost.fence, uuid4(), ALL)
        assert texts(ids) == values
