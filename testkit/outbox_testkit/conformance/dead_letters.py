"""Dead letters: an operator finds them, and frees their keys."""

from __future__ import annotations

import pytest
from outbox_api import Capability, DeadLetterStatus, DriverError, Record
from outbox_api.seams.parking import LONGEST_KEY, is_cut, listed_key

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.stashing import TEXTS, assert_same
from outbox_testkit.conformance.under_test import ALL, Box, plain


class LetterConformance(Conformance):
    """The operator's verbs."""

    def test_letters_are_found_by_key_and_by_status(self, box: Box) -> None:
        box.fill(8, keys=4)
        heads, letters = box.park(box.lead(), "k1", "k2", "k3"), box.dead_letters()
        assert letters.skip([heads["k2"]]) == [heads["k2"]]

        def found(*keys: str, status: DeadLetterStatus | None = None) -> list[tuple[str, DeadLetterStatus]]:
            return [(letter.record.key, letter.status) for letter in letters.find(keys, status)]

        assert found() == [
            ("k1", DeadLetterStatus.PARKED),
            ("k2", DeadLetterStatus.SKIPPED),
            ("k3", DeadLetterStatus.PARKED),
        ]
        assert found("k3", "k2", "nothing") == [
            ("k2", DeadLetterStatus.SKIPPED),
            ("k3", DeadLetterStatus.PARKED),
        ]
        assert found(status=DeadLetterStatus.PARKED) == [
            ("k1", DeadLetterStatus.PARKED),
            ("k3", DeadLetterStatus.PARKED),
        ]
        assert found("k1", status=DeadLetterStatus.SKIPPED) == found("nothing") == []
        assert [letters.waiting(key) for key in ("k1", "k2", "nothing")] == [2, 1, 0]
        ids = [letter.record.id for letter in letters.find()]
        assert [letter.record.id for letter in letters.find(ids=[ids[2], ids[0], 2**62])] == ids[::2]
        assert letters.find(["k2"], ids=ids[:1]) == letters.find(ids=[]) == []

    def test_a_list_has_neither_values_nor_headers_nor_all_of_a_long_key(self, box: Box) -> None:
        hand, keys = box.lead(), ["k" * LONGEST_KEY, "k" * (LONGEST_KEY + 1), "k" * (LONGEST_KEY + 7)]
        box.stash(*(Record("topic", key, "value", (("header", "1"),)) for key in keys))
        box.park(hand, *keys)
        letters = box.dead_letters()
        listed = [letter.record for letter in letters.find(whole=False)]
        assert [(each.value, list(each.headers)) for each in listed] == [(None, [])] * 3
        assert [each.key for each in listed] == [*keys[:2], listed_key(keys[2])]
        assert [is_cut(each.key) for each in listed] == [False, True, True]
        [chosen] = letters.find([keys[2]], whole=False)
        [whole] = letters.find(ids=[chosen.record.id])
        assert (whole.record.key, whole.record.value) == (keys[2], "value")
        assert list(whole.record.headers) == [("header", "1")]

    def test_a_retried_key_is_marked_from_its_head(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6, keys=2)
        head, letters = box.park(hand, "k1")["k1"], box.dead_letters()
        assert hand.values() == values[1::2]
        assert letters.retry([head, head + 1, 2**62]) == [head]
        assert letters.find() == []
        assert hand.values() == values[::2]
        assert letters.retry([head]) == letters.skip([head]) == letters.redrive([head]) == []

    def test_a_skipped_head_is_gone_and_its_tail_flows(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6, keys=2)
        head, letters = box.park(hand, "k1")["k1"], box.dead_letters()
        assert hand.values() == values[1::2]
        assert letters.skip([2**62, head]) == [head]
        assert hand.values() == [values[2], values[4]]
        assert letters.skip([head]) == letters.retry([head]) == []
        (letter,) = letters.find()
        assert (letter.record.value, letter.status) == (values[0], DeadLetterStatus.SKIPPED)
        assert (letter.reason, letter.attempts) == ("too large", 5)

    def test_redriven_letters_come_behind_everything_in_the_order_of_their_ids(self, box: Box) -> None:
        values = box.fill(60, keys=20)
        hand, letters = box.lead(), box.dead_letters()
        heads = sorted(box.park(hand, *(f"k{number}" for number in range(20))).values())
        assert letters.redrive(heads) == [], "what is parked is not skipped"
        assert letters.skip(heads[::-1]) == heads
        assert letters.redrive([*heads[::-1], 2**62]) == heads
        assert letters.find() == letters.find(status=DeadLetterStatus.SKIPPED) == []
        assert hand.values() == [*values[20:], *values[:20]]
        assert letters.redrive(heads) == []

    def test_a_redriven_record_is_as_it_was(self, box: Box) -> None:
        records = [
            Record(f"t{number}", f"{number} {text}", text, ((text, text), (text, None)))
            for number, text in enumerate(TEXTS)
        ]
        records += [Record("t", "none", None), Record("t", "", ""), Record("t", "large", "é" * 500_000)]
        box.stash(*records)
        hand, letters = box.lead(), box.dead_letters()
        heads = sorted(box.park(hand, *(record.key for record in records)).values())
        for status in (DeadLetterStatus.PARKED, DeadLetterStatus.SKIPPED):
            for letter, record in zip(letters.find(status=status), records, strict=True):
                assert_same(letter.record, record)
            if status is DeadLetterStatus.PARKED:
                assert letters.skip(heads) == heads
        assert letters.redrive(heads) == heads
        found = hand.mark()
        assert min(record.id for record in found) > max(heads)
        for one, record in zip(found, records, strict=True):
            assert_same(one, record)

    @needs(Capability.BYTES_VALUES)
    def test_redriven_bytes_are_as_they_were(self, bytes_box: Box) -> None:
        values = [bytes(range(256)), b"", None]
        bytes_box.stash(*(Record("t", f"k{number}", value) for number, value in enumerate(values)))
        hand, letters = bytes_box.lead(), bytes_box.dead_letters()
        heads = sorted(bytes_box.park(hand, "k0", "k1", "k2").values())
        assert [letter.record.value for letter in letters.find()] == values
        letters.skip(heads)
        letters.redrive(heads)
        assert [record.value for record in hand.mark()] == values

    def test_a_head_that_fails_again_is_parked_again(self, box: Box) -> None:
        hand, _ = box.lead(), box.fill(3, keys=1)
        letters = box.dead_letters()
        for reason in ("once", "twice"):
            ids = hand.ids()
            assert hand.park(ids, ids[0], reason=reason) == 1
            assert [letter.reason for letter in letters.find()] == [reason]
            assert letters.retry(ids[:1]) == ids[:1]
        ids = hand.ids()
        hand.park(ids, ids[0])
        letters.skip(ids[:1])
        hand.park(hand.ids(), ids[1])
        assert [(letter.record.id, letter.status) for letter in letters.find()] == [
            (ids[0], DeadLetterStatus.SKIPPED),
            (ids[1], DeadLetterStatus.PARKED),
        ]

    def test_a_key_that_is_freed_while_somebody_marks_ahead_comes_from_its_head(self, box: Box) -> None:
        values = box.fill(120, keys=2)
        hand, letters = box.lead(), box.dead_letters()
        head = box.park(hand, "k1")["k1"]
        for _ in range(4):
            hand.purge(*hand.ids(10))
        (later,) = box.fill(1, keys=122)
        box.stash(plain("k1", "last"))
        assert letters.retry([head]) == [head]
        found = [record.value for record in hand.mark(ALL) if record.key == "k1"]
        assert found == [*values[::2], "last"]
        assert later not in found

    def test_a_letter_outlives_the_reuse_of_its_id(self, box: Box) -> None:
        letters, heads = box.dead_letters(), []
        for round_ in range(3):
            values = box.fill(2, keys=2)
            heads.append(box.park(box.lead(), "k1")["k1"])
            assert letters.skip(heads[-1:]) == heads[-1:]
            box.restart()
            assert len(letters.find()) == round_ + 1
        assert len(set(heads)) == 1, "the statements of OutboxUnderTest.restart do not do it"
        box.stash(plain("other", "poison"), plain("other", "tail"))
        hand = box.lead()
        assert box.park(hand, "other") == {"other": heads[0]}
        found = letters.find()
        assert [(letter.record.key, letter.record.value, letter.status) for letter in found] == [
            *[("k1", values[0], DeadLetterStatus.SKIPPED)] * 3, ("other", "poison", DeadLetterStatus.PARKED)
        ]  # fmt: skip
        ids = [letter.record.id for letter in found]
        assert ids == sorted(set(ids))
        assert ids[2] < 0 < ids[3]
        assert letters.redrive(ids[:2]) == ids[:2]
        assert hand.values() == values[:1] * 2
        assert letters.retry(ids[3:]) == ids[3:]
        assert hand.values() == ["poison", "tail"]
        assert [letter.record.id for letter in letters.find()] == ids[2:3]

    def test_a_key_that_is_parked_stays_so_when_its_letters_id_is_reused(self, box: Box) -> None:
        box.fill(3, keys=3)
        heads, letters = box.park(box.lead(), "k1", "k2"), box.dead_letters()
        box.restart()
        box.stash(plain("a", "1"), plain("b", "2"), plain("k1", "behind its head"))
        hand = box.lead()
        assert box.park(hand, "a", "b") == {"a": heads["k1"], "b": heads["k2"]}
        assert hand.mark() == []
        assert hand.table.parked().keys == 4
        moved = [letter.record for letter in letters.find() if letter.record.id < 0]
        assert [(record.key, record.value) for record in moved] == [("k1", "v1"), ("k2", "v2")]
        assert letters.skip([record.id for record in moved]) == [record.id for record in moved]
        assert hand.values() == ["behind its head"]
        assert [letter.record.value for letter in letters.find(status=DeadLetterStatus.SKIPPED)] == [
            "v1",
            "v2",
        ]

    def test_nothing_to_do_is_done(self, box: Box) -> None:
        letters = box.dead_letters()
        assert letters.find() == []
        for verb in (letters.retry, letters.skip, letters.redrive):
            assert verb([]) == []
            assert verb([1]) == []

    def test_letters_need_no_leader(self, box: Box) -> None:
        box.fill(4, keys=2)
        heads = box.park(box.lead(), "k0", "k1")
        box.connect().bump(2, "another")
        letters = box.dead_letters()
        assert letters.retry([heads["k0"]]) == [heads["k0"]]
        assert letters.skip([heads["k1"]]) == [heads["k1"]]
        assert len(box.survey()) == 3

    def test_after_closing_letters_cannot_be_had(self, box: Box) -> None:
        letters = box.dead_letters()
        letters.close()
        letters.close()
        with pytest.raises(DriverError) as caught:
            letters.find()
        assert caught.value.retryable
