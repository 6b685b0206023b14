"""Parking: a key is parked with all records behind its head."""

from __future__ import annotations

from time import sleep

import pytest
from outbox_api import DeadLetterStatus, Parked, Record

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.stashing import TEXTS, assert_same
from outbox_testkit.conformance.under_test import Box, plain, texts


class ParkConformance(Conformance):
    """How a key is parked, and how marks leave it out."""

    def test_a_parked_key_stays_behind_and_every_other_key_flows(self, box: Box) -> None:
        values = box.fill(60, keys=6)
        hands = box.lead_all(3)
        for hand in hands:
            marked = hand.mark()
            ours = [record.id for record in marked if record.key == "k3"]
            if ours:
                assert hand.park(ours, ours[0]) == 1
            hand.purge(*(record.id for record in marked if record.key != "k3"))
        later = box.fill(12, keys=6)
        found = sorted(value for hand in hands for value in hand.values())
        assert found == sorted(value for value in later if value not in (later[2], later[8]))
        assert box.survey() == [value for value in later if value in found], "a new leader leaves it out too"
        box.dead_letters().retry([letter.record.id for letter in box.dead_letters().find()])
        assert [value for value in box.survey() if value not in found] == [
            *values[2::6], later[2], later[8]
        ]  # fmt: skip

    def test_the_head_is_copied_with_what_was_wrong_with_it(self, box: Box) -> None:
        records = [Record("orders", "a", f"v{n}", (("h", str(n)), ("h", None))) for n in range(3)]
        box.stash(*records)
        hand = box.lead()
        ids = hand.ids()
        assert hand.park(ids, ids[0], reason="message too large") == 1
        (letter,) = box.dead_letters().find()
        assert_same(letter.record, records[0])
        assert letter.record.id == ids[0]
        assert (letter.reason, letter.attempts, letter.status) == (
            "message too large",
            5,
            DeadLetterStatus.PARKED,
        )
        assert letter.since.tzinfo is not None
        assert 0 <= letter.age < 60
        assert hand.reset(*ids) == 0, "its rows carry no leader id any more"
        assert hand.mark() == []

    def test_several_keys_are_parked_at_once(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(12, keys=4)
        ids = hand.ids()
        assert hand.park([ids[n] for n in (0, 1, 4, 5, 8, 9)], ids[1], ids[0]) == 2
        hand.reset(*ids)
        assert hand.values() == [values[n] for n in (2, 3, 6, 7, 10, 11)]
        assert hand.table.parked().keys == 2

    def test_parking_again_after_a_lost_reply_changes_nothing(self, box: Box) -> None:
        hand, _ = box.lead(), box.fill(3, keys=1)
        ids = hand.ids()
        assert hand.park(ids, ids[0], reason="first") == 1
        (before,) = box.dead_letters().find()
        assert hand.park(ids, ids[0], reason="second") == 0
        (after,) = box.dead_letters().find()
        assert (after.reason, after.since) == (before.reason, before.since)
        assert hand.mark() == []

    def test_only_rows_that_carry_the_leader_id_are_parked_or_reset(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(4, keys=1)
        ids = hand.ids()
        theirs = hand.leader
        hand = box.lead()
        assert hand.ids(2) == ids[:2]
        mine, hand.leader = hand.leader, theirs
        assert hand.park(ids[:3], ids[0]) == 0
        assert box.dead_letters().find() == []
        assert hand.reset(*ids, leader=theirs) == 1, "the third was reset"
        assert hand.reset(*ids, leader=mine) == 2
        assert box.survey() == values

    def test_parked_heads_are_counted_with_their_age(self, box: Box) -> None:
        table = box.connect()
        assert table.parked() == Parked(0, None)
        box.fill(20, keys=10)
        heads = box.park(box.lead(), "k1", "k2", "k3")
        parked = table.parked()
        assert parked.keys == 3
        assert 0 <= (parked.oldest if parked.oldest is not None else -1) < 60
        letters = box.dead_letters()
        letters.skip([heads["k2"]])
        assert table.parked().keys == 2
        letters.retry([heads["k1"], heads["k3"]])
        assert table.parked() == Parked(0, None)

    def test_letters_that_were_skipped_long_ago_are_deleted_and_no_others(self, box: Box) -> None:
        box.fill(20, keys=10)
        heads = box.park(box.lead(), "k1", "k2", "k3", "k4")
        letters, table = box.dead_letters(), box.connect()
        assert table.forget_skipped(0, 10) == 0, "all are parked"
        letters.skip([heads["k4"], heads["k2"], heads["k3"]])
        assert table.forget_skipped(3600, 10) == 0, "they were skipped just now"
        assert table.forget_skipped(0, 2) == 2
        left = letters.find()
        assert [(each.record.key, each.status) for each in left] == [
            ("k1", DeadLetterStatus.PARKED),
            ("k4", DeadLetterStatus.SKIPPED),
        ]
        assert table.forget_skipped(0, 2) == 1
        assert table.forget_skipped(0, 2) == 0
        assert [each.record.key for each in letters.find()] == ["k1"]
        assert letters.redrive([heads["k2"]]) == []

    def test_the_age_of_a_skipped_letter_counts_from_when_it_was_skipped(self, box: Box) -> None:
        box.fill(20, keys=10)
        heads = box.park(box.lead(), "k1")
        letters, table = box.dead_letters(), box.connect()
        (parked,) = letters.find()
        sleep(0.3)
        letters.skip([heads["k1"]])
        (skipped,) = letters.find()
        assert skipped.since > parked.since
        assert table.forget_skipped(skipped.age + 30, 10) == 0

    def test_keys_that_differ_in_anything_are_different_keys(self, box: Box) -> None:
        keys = ["a", "A", "a ", " a", "á", "a\u0301", "ａ", "ß", "ss", "", " ", "a\t", *TEXTS]  # noqa: RUF001 - look-alikes
        box.stash(*(plain(key, str(number)) for number, key in enumerate(keys * 2)))
        hand, letters = box.lead(), box.dead_letters()
        for key in keys:
            heads = box.park(hand, key)
            assert texts(hand.mark()) == [str(n) for n, each in enumerate(keys * 2) if each != key]
            assert [letter.record.key for letter in letters.find([key])] == [key]
            assert letters.waiting(key) == 2
            letters.retry(list(heads.values()))
            hand.remark()

    @pytest.mark.parametrize("reason", ["", "x" * 20_000, "zero \0, half \udc80, 世界 🌍 'x' \\ %s {}"])
    def test_a_key_can_be_parked_for_any_reason(self, box: Box, reason: str) -> None:
        hand, _ = box.lead(), box.fill(1)
        ids = hand.ids()
        assert hand.park(ids, ids[0], reason=reason) == 1
        (letter,) = box.dead_letters().find()
        assert letter.reason[:4] == reason[:4]

    def test_outboxes_of_one_database_have_letters_of_their_own(self, box: Box) -> None:
        other = box.beside("b")
        for each in (box, other):
            each.fill(2, keys=1)
        heads = box.park(box.lead(), "k0")
        assert len(other.survey()) == 2
        assert other.dead_letters().find() == []
        assert other.connect().parked().keys == 0
        assert other.dead_letters().retry(list(heads.values())) == []
        assert box.survey() == []
