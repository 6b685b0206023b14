"""Purge and reset: only rows with the caller's leader id, repeatedly, in batches of any size."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import Capability

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, Hand


class ReleaseConformance(Conformance):
    """How marked rows leave the outbox, or are reset."""

    def test_purges_only_what_carries_the_leader_id(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(5)
        ids = hand.ids(4)
        first, hand.leader = hand.leader, uuid4()
        assert hand.ids(2) == ids[:2]
        assert hand.purge(*ids, leader=first) == 2, "two have been marked anew since"
        assert hand.purge(*ids, leader=uuid4()) == 0
        assert box.survey() == [values[0], values[1], values[4]]

    def test_resets_only_what_carries_the_leader_id(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(5)
        ids = hand.ids(4)
        first, hand.leader = hand.leader, uuid4()
        assert hand.ids(2) == ids[:2]
        assert hand.reset(*ids, leader=first) == 2
        assert hand.reset(*ids, leader=uuid4()) == 0
        assert hand.reset(*ids) == 2, "what others reset in vain is still mine"
        assert hand.values() == values

    @pytest.mark.parametrize("verb", ["purge", "reset"])
    def test_a_row_is_changed_once(self, box: Box, verb: str) -> None:
        box.fill(4)
        hand = box.lead()
        ids = hand.ids()
        act = getattr(hand, verb)
        assert act(*ids[:2]) == 2
        assert act(*ids[:2]) == 0
        assert act(ids[3], ids[1], ids[2], ids[3]) == 2, "in any order, whatever is named twice"
        assert act(*ids) == 0
        assert act() == 0
        assert act(ids[-1] + 1, ids[-1] + 1000, 0, -1, 2**62) == 0

    @pytest.mark.parametrize("verb", ["purge", "reset"])
    def test_a_row_that_is_named_twice_names_no_other(self, box: Box, verb: str) -> None:
        box.fill(3)
        hand = box.lead()
        first, second, third = hand.ids()
        assert getattr(hand, verb)(first, first, third) == 2
        assert hand.purge(second) == 1

    def test_reset_rows_are_marked_again_in_their_place(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(9)
        ids = hand.ids(6)
        assert hand.reset(ids[3], ids[1]) == 2
        assert hand.values(1) == [values[1]]
        assert hand.values() == [values[3], *values[6:]]
        assert hand.mark() == []

    def test_rows_of_another_leader_are_taken_over_and_lost_to_it(self, box: Box) -> None:
        values = box.fill(3)
        old = box.lead()
        ids = old.ids()
        new = box.lead()
        assert new.values(2) == values[:2]
        # Under its own fence a leader may also purge rows with a former leader id: they are in the log.
        assert new.purge(*ids, leader=old.leader) == 1
        assert new.purge(*ids) == 2
        assert box.survey() == []

    @needs(Capability.SKIP_LOCKED)
    @pytest.mark.parametrize("verb", ["purge", "reset"])
    def test_rows_that_are_locked_after_they_were_marked_are_left_alone(
        self, impatient_box: Box, verb: str
    ) -> None:
        box = impatient_box
        box.fill(40, keys=40)
        hand, somebody = box.lead(), box.application()
        ids = hand.ids()
        locked = [ids[3], ids[4], ids[17]]
        act, cursor = getattr(hand, verb), somebody.cursor()
        _lock(box, cursor, locked)
        assert act(*ids[:20]) == 17
        assert list(hand.changed.locked) == locked
        assert not hand.changed.kept
        since = time.monotonic()
        for some in (ids[20:30], [ids[3], *ids[30:]], *[locked] * 9):
            assert act(*some) == len([number for number in some if number not in locked])
            assert list(hand.changed.locked) == [number for number in some if number in locked]
        assert time.monotonic() - since < 10.0, "it has waited once, and waits no more for any"
        cursor.close()
        somebody.rollback()
        assert act(*locked) == 3
        assert not hand.changed.locked
        assert len(box.survey()) == (0 if verb == "purge" else 40)

    @needs(Capability.SKIP_LOCKED)
    @pytest.mark.parametrize("verb", ["purge", "reset"])
    def test_a_row_behind_a_locked_one_of_its_key_is_left_with_it(
        self, impatient_box: Box, verb: str
    ) -> None:
        box = impatient_box
        box.fill(12, keys=3)
        hand, somebody = box.lead(), box.application()
        ids = hand.ids()
        act, cursor = getattr(hand, verb), somebody.cursor()
        _lock(box, cursor, [ids[3]])
        for changed in (9, 0):
            assert act(*reversed(ids)) == changed, "the row before it goes, and other keys do"
            assert list(hand.changed.locked) == [ids[3], ids[6], ids[9]]
            assert not hand.changed.kept
        cursor.close()
        somebody.rollback()
        assert act(*ids) == 3
        assert not hand.changed.locked

    @needs(Capability.SKIP_LOCKED)
    def test_a_key_is_parked_beside_rows_that_others_have_locked(self, impatient_box: Box) -> None:
        box = impatient_box
        values = box.fill(9, keys=3)
        hand, somebody = box.lead(), box.application()
        ids = hand.ids()
        cursor = somebody.cursor()
        _lock(box, cursor, [ids[0], ids[4]])
        assert hand.park([ids[0], ids[3], ids[1], ids[4]], ids[0], ids[1]) == 1, "of one the head is locked"
        assert list(hand.changed.locked) == [ids[0], ids[4]]
        cursor.close()
        somebody.rollback()
        assert hand.park([ids[0]], ids[0]) == 1
        assert hand.reset(ids[4]) == 1
        hand.remark()
        assert hand.values() == [values[2], values[5], values[8]]

    def test_purges_over_one_connection_while_another_marks(self, box: Box) -> None:
        checkpoint, values = box.lead(), box.fill(200, keys=7)
        purger = Hand(box.connect(), checkpoint.fence)
        purger.leader = checkpoint.leader
        found: list[str] = []
        while some := checkpoint.mark(13):
            found += [str(record.value) for record in some]
            assert purger.purge(*(record.id for record in some)) == len(some)
        assert found == values
        assert box.survey() == []

    def test_batches_of_every_size(self, box: Box) -> None:
        box.fill(11_011, keys=100)
        hand = box.lead()
        ids = hand.ids(ALL)
        assert len(ids) == 11_011
        for act in (hand.reset, hand.purge):
            at = 0
            for size in (1, 10, 1000, 10_000):
                assert act(*ids[at : at + size]) == size
                at += size
            if act == hand.reset:
                assert hand.ids(ALL) == ids
        assert box.survey() == []


def _lock(box: Box, cursor: Any, ids: list[int]) -> None:
    """Locks rows as somebody who changes them, until the transaction ends."""
    listed = ", ".join(map(str, ids))
    cursor.execute(f"UPDATE {box.options.table} SET kafka_topic = 't' WHERE id IN ({listed})")
