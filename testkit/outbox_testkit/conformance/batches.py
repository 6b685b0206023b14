"""Batches: deleted and marked in one transaction, as exactly-once delivery does."""

from __future__ import annotations

import pytest
from outbox_sdk import Batch, Capability

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, Hand, plain, texts


class BatchConformance(Conformance):
    """``advance``, alone and in turn with parking and takeovers."""

    def test_deletes_the_finished_batch_and_marks_the_next(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(10)
        first, found = hand.batch(4)
        assert (hand.purged, found) == (0, values[:4])
        second, found = hand.batch(4, finished=[first])
        assert (hand.purged, found) == (4, values[4:8])
        assert texts(hand.advance(4, finished=[second])) == values[8:]
        assert hand.purged == 4
        assert hand.reset(*range(first.first, second.last + 1), leader=second.leader_id) == 0
        assert box.survey() == values[8:]

    def test_pending_batches_are_left_out(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(9)
        first, _ = hand.batch(3)
        second, found = hand.batch(3, pending=[first])
        assert found == values[3:6]
        third, found = hand.batch(3, finished=[first], pending=[second])
        assert found == values[6:]
        assert hand.advance(3, finished=[second], pending=[third]) == []
        assert box.survey() == values[6:]

    def test_many_batches_are_deleted_at_once(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(255, keys=9)
        batches: list[Batch] = []
        for _ in range(50):
            batches.append(hand.batch(5, pending=batches)[0])
        rest = hand.advance(100, finished=[*batches[:3], *batches[4:]], pending=[batches[3]])
        assert texts(rest) == values[250:]
        assert hand.purged == 245
        assert box.survey() == [*values[15:20], *values[250:]]

    @pytest.mark.parametrize("limit", [0, 2], ids=["only deletes", "marks too"])
    def test_only_rows_that_carry_the_batchs_name_are_deleted(self, box: Box, limit: int) -> None:
        values = box.fill(8)
        batch, _ = box.lead().batch(5)
        hand = box.lead()
        ours, found = hand.batch(2)
        assert found == values[:2]
        assert texts(hand.advance(limit, finished=[batch], pending=[ours])) == values[5 : 5 + limit]
        assert hand.purged == 3
        assert texts(hand.advance(limit, finished=[batch], pending=[ours])) == values[5 : 5 + limit]
        assert hand.purged == 0
        assert box.survey() == [*values[:2], *values[5:]]

    def test_a_limit_of_0_only_deletes(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6)
        first, _ = hand.batch(2)
        second, _ = hand.batch(2, pending=[first])
        assert hand.advance(0, finished=[first, second]) == []
        assert hand.purged == 4
        assert hand.advance(0) == []
        assert hand.purged == 0
        assert texts(hand.advance()) == values[4:]

    def test_an_abandoned_batch_is_marked_again_in_its_place(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(40)
        first, _ = hand.batch(10)
        second, _ = hand.batch(10, finished=[first])
        hand.batch(10, pending=[second])
        # Neither batch is finished or pending any more.
        again, found = hand.batch(15)
        assert found == values[10:25]
        last, found = hand.batch(100, finished=[again])
        assert found == values[25:]
        assert hand.advance(finished=[last]) == []
        assert box.survey() == []

    def test_the_later_of_two_batches_is_abandoned_alone(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(30)
        first, _ = hand.batch(10)
        hand.batch(10, pending=[first])
        again, found = hand.batch(20, pending=[first])
        assert found == values[10:]
        assert hand.advance(20, finished=[first], pending=[again]) == []
        assert hand.purged == 10

    def test_a_new_leader_leaves_out_what_it_is_told_of_and_takes_the_rest(self, box: Box) -> None:
        values = box.fill(20)
        old = box.lead()
        first, _ = old.batch(5)
        second, _ = old.batch(5, pending=[first])
        new = box.lead()
        ours, found = new.batch(8, finished=[first])
        assert (new.purged, found) == (5, values[5:13])
        assert new.advance(0, finished=[second]) == []
        assert new.purged == 0, "their batch was abandoned and is ours now"
        assert texts(new.advance(finished=[ours])) == values[13:]

    def test_what_may_have_been_done_can_be_done_again(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6)
        first, _ = hand.batch(2)
        hand.advance(2, finished=[first])  # the reply is lost
        again = Hand(box.connect(), hand.fence)
        assert again.advance(0, finished=[first]) == []
        assert again.batch(2, finished=[first])[1] == values[2:4]
        assert box.survey() == values[2:]

    def test_batches_of_several_lanes_share_ranges_and_not_rows(self, box: Box) -> None:
        values = box.fill(300, keys=50)
        finished: dict[int, list[Batch]] = {0: [], 1: [], 2: []}
        seen: list[str] = []
        hands, busy = box.lead_all(3), True
        while busy:
            busy = False
            for lane, hand in enumerate(hands):
                before = len(finished[lane]) * 10
                records = hand.advance(10, finished=finished[lane])
                assert hand.purged <= before
                seen += texts(records)
                finished[lane] = [Batch(hand.leader, records[0].id, records[-1].id)] if records else []
                busy = busy or bool(records)
        assert sorted(seen) == sorted(values)
        assert box.survey() == []

    def test_large_batches(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(12_000, keys=100)
        first, found = hand.batch(10_000)
        assert found == values[:10_000]
        assert texts(hand.advance(10_000, finished=[first])) == values[10_000:]
        assert hand.purged == 10_000

    def test_a_parked_key_is_left_out_until_it_is_freed(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(8, keys=2)
        marked = hand.advance(6)
        odd = [record.id for record in marked][::2]
        assert hand.park(odd, odd[0]) == 1
        # The rest of the batch was abandoned with it.
        batch, found = hand.batch()
        assert found == values[1::2]
        assert hand.advance(finished=[batch]) == []
        box.dead_letters().retry(odd[:1])
        assert texts(hand.advance()) == values[::2]

    @needs(Capability.CONCURRENT_WRITERS)
    def test_a_late_commit_is_found_behind_and_between_batches(self, box: Box) -> None:
        late, hand = box.application(), box.lead()
        box.stasher.stash(late, plain("late", "late"))
        values = box.fill(20)
        first, _ = hand.batch(5)
        second, _ = hand.batch(5, pending=[first])
        late.commit()
        third, found = hand.batch(3, finished=[first], pending=[second])
        assert found == ["late", *values[10:12]]
        assert texts(hand.advance(ALL, finished=[second, third])) == values[12:]
        assert hand.purged == 8
