"""The limits of a mark: bytes, and excluded keys."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_api import Batch, MarkedRecord, Record

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.stashing import TEXTS
from outbox_testkit.conformance.under_test import ALL, Box, plain, texts

LARGE = 10_000
"""Characters of a large part of a record; a database may store each as two bytes."""

BOUND = 65_000
"""Bytes; enough for three to six large records."""


def large(number: int, key: str | None = None, length: int = LARGE) -> Record:
    """Returns a record whose value starts with its number."""
    return plain(f"k{number % 10}" if key is None else key, f"{number} ".ljust(length, "x"))


def numbers(records: Sequence[MarkedRecord]) -> list[int]:
    """Returns the numbers that values start with; 0 for a record without its value."""
    return [int(text.split()[0]) if text else 0 for text in texts(records)]


class BoundConformance(Conformance):
    """How many bytes a mark claims."""

    def test_a_mark_claims_no_more_bytes_than_it_may(self, box: Box) -> None:
        box.stash(*map(large, range(1, 41)))
        hand = box.lead()
        seen: list[int] = []
        while marked := numbers(hand.mark(ALL, max_bytes=BOUND)):
            assert 3 <= len(marked) <= 6 or seen[-1:] == [40 - len(marked)]
            seen += marked
        assert seen == [*range(1, 41)]

    def test_the_lesser_of_both_bounds_counts(self, box: Box) -> None:
        box.stash(*map(large, range(1, 21)))
        hand = box.lead()
        assert numbers(hand.mark(2, max_bytes=BOUND)) == [1, 2]
        assert 3 <= len(hand.mark(10, max_bytes=BOUND)) <= 6
        assert numbers(hand.mark(ALL))[-1] == 20

    def test_every_part_of_a_record_counts(self, box: Box) -> None:
        half = "x" * (LARGE // 2)
        parts = [
            Record("t", "k", "é" * (LARGE // 2)),
            Record("t", "k", None, (("h", half), ("i", half))),
            Record("t", "k", "", ((half, ""), (f"{half}y", None))),
        ]
        for record in parts:
            box.stash(*([record] * 10))
            marked = box.lead().mark(ALL, max_bytes=BOUND)
            assert 3 <= len(marked) <= 6
            hand = box.lead()
            hand.purge(*hand.ids(ALL))
        box.stash(*(plain(f"{number}".rjust(200, "k"), "") for number in range(20)))
        assert 1 <= len(box.lead().mark(ALL, max_bytes=1_100)) <= 5

    def test_a_record_that_exceeds_the_bound_alone_is_claimed_without_its_value(self, box: Box) -> None:
        headers = (("h", "x" * 100),)
        box.stash(large(1), Record("t", "huge", "x" * 10 * LARGE, headers), *map(large, range(3, 10)))
        hand = box.lead()
        marked = hand.mark(ALL, max_bytes=BOUND)
        assert 4 <= len(marked) <= 7, "it counts nothing"
        assert numbers(marked) == [1, 0, *range(3, len(marked) + 1)]
        huge = marked[1]
        assert (huge.topic, huge.key, huge.value, list(huge.headers)) == ("t", "huge", None, [])
        assert [record.fault is None for record in marked] == [True, False, *[True] * (len(marked) - 2)]
        assert "limits.maxLaneBytes" in (huge.fault or "")
        assert any(len(word) >= 6 and int(word) > 10 * LARGE for word in _numbers(huge.fault or ""))
        assert numbers(hand.mark(ALL, max_bytes=BOUND))[0] == len(marked) + 1

    def test_headers_alone_can_be_too_many(self, box: Box) -> None:
        box.stash(Record("t", "k", "v", (("h", "x" * 10 * LARGE),)), plain())
        huge, other = box.lead().mark(ALL, max_bytes=BOUND)
        assert (huge.value, list(huge.headers)) == (None, [])
        assert "limits.maxLaneBytes" in (huge.fault or "")
        assert (other.value, other.fault) == ("v", None)

    def test_a_key_that_is_too_long_is_cut_and_faulty_whatever_the_bound(self, box: Box) -> None:
        application = box.application()
        try:
            box.stasher.stash(application, Record("t", "x" * 100_000, "v"))
        except Exception:  # noqa: BLE001 - each driver's own: the column has a bound
            application.rollback()
            box.stasher.stash(application, Record("t", "k", "v"))
            application.commit()
            assert [record.key for record in box.lead().mark(ALL)] == ["k"]
            return
        application.commit()
        box.stash(Record("t", "k", "v"), Record("t", "x" * 100_000, "y" * BOUND))
        for max_bytes in (1 << 20, BOUND):
            hand = box.lead()
            for found in (hand.advance(ALL, max_bytes=max_bytes), hand.mark(ALL, max_bytes=max_bytes)):
                assert [(record.key[:10], record.value) for record in found] == [
                    ("x" * 10, None), ("k", found[1].value), ("x" * 10, None)
                ]  # fmt: skip
                assert all(len(record.key) < 1000 for record in found)
                assert [record.fault is None for record in found] == [False, True, False]
        hand = box.lead()
        first, _, third = hand.mark(ALL, max_bytes=BOUND)
        assert hand.park([first.id, third.id], first.id, reason=first.fault or "") == 1
        hand.remark()
        assert [record.key for record in hand.mark(ALL, max_bytes=BOUND)] == ["k"]

    def test_what_is_too_large_for_the_lane_can_be_parked_retried_and_skipped(self, box: Box) -> None:
        box.stash(plain("huge", "x" * 10 * LARGE), plain("huge", "tail"), plain("other", "other"))
        hand, letters = box.lead(), box.dead_letters()
        for _ in range(2):
            huge, tail, *_ = hand.mark(ALL, max_bytes=BOUND)
            assert hand.park([huge.id, tail.id], huge.id, reason=huge.fault or "") == 1
            (letter,) = letters.find()
            assert len(texts([letter.record])[0]) == 10 * LARGE
            assert hand.mark(ALL, max_bytes=BOUND) == []
            assert letters.retry([huge.id]) == [huge.id]
            hand.remark()
        huge, tail, _ = hand.mark(ALL, max_bytes=BOUND)
        hand.park([huge.id, tail.id], huge.id)
        assert letters.skip([huge.id]) == [huge.id]
        assert hand.values(ALL, max_bytes=BOUND) == ["tail"]
        assert letters.redrive([huge.id]) == [huge.id]
        assert [len(value) for value in hand.values(ALL)] == [10 * LARGE]

    def test_a_batch_is_bounded_too(self, box: Box) -> None:
        box.stash(*map(large, range(1, 16)), plain("huge", "x" * 10 * LARGE), *map(large, range(17, 30)))
        hand = box.lead()
        finished: list[Batch] = []
        seen: list[int] = []
        while marked := hand.advance(ALL, finished, max_bytes=BOUND):
            assert len(marked) <= 7
            seen += numbers(marked)
            finished = [hand.last()]
        assert seen == [*range(1, 16), 0, *range(17, 30)]
        assert box.survey() == []

    def test_an_abandoned_batch_that_was_bounded_is_selected_again(self, box: Box) -> None:
        box.stash(*map(large, range(1, 21)))
        hand = box.lead()
        first = hand.advance(ALL, max_bytes=BOUND)
        second = hand.advance(ALL, pending=[hand.last()], max_bytes=BOUND)
        assert numbers(second)[0] == len(first) + 1
        assert numbers(hand.advance(ALL)) == [*range(1, 21)]

    def test_lanes_are_bounded_each_for_itself(self, box: Box) -> None:
        box.stash(*(large(number, f"k{number % 30}") for number in range(1, 61)))
        seen = []
        for hand in box.lead_all(3):
            mine: list[int] = []
            while marked := numbers(hand.mark(ALL, max_bytes=BOUND)):
                assert len(marked) <= 6
                mine += marked
            assert mine == sorted(mine)
            seen += mine
        assert sorted(seen) == [*range(1, 61)]


class ExclusionConformance(Conformance):
    """Keys that marks leave out."""

    def test_no_row_of_an_excluded_key_is_claimed_and_every_other_flows(self, box: Box) -> None:
        values = box.fill(30, keys=3)
        hand = box.lead()
        assert hand.values(4, excluded=["k1"]) == [values[n] for n in (1, 2, 4, 5)]
        later = box.fill(3, keys=3)
        rest = [value for n, value in enumerate(values) if n % 3 and n > 5]
        assert hand.values(ALL, excluded=["k1"]) == [*rest, *later[1:]]
        assert hand.mark(excluded=["k1", "nobody's"]) == []

    def test_a_key_that_is_excluded_no_longer_comes_from_its_earliest_row_on(self, box: Box) -> None:
        values = box.fill(40, keys=4)
        hand = box.lead()
        hand.purge(*(record.id for record in hand.mark(6, excluded=["k1", "k2"])))
        hand.purge(*(record.id for record in hand.mark(6, excluded={"k2", "k1"})))
        assert hand.values(3, excluded=["k2"]) == [values[n] for n in (0, 4, 8)]
        assert hand.values(2, excluded=["k1"]) == [values[n] for n in (1, 5)]
        (later,) = box.fill(1, keys=41)
        box.stash(plain("k1", "last"))
        found = [record.value for record in hand.mark(ALL) if record.key == "k1"]
        assert found == [*(values[n] for n in range(12, 40, 4)), "last"]
        assert later not in found

    def test_keys_differ_in_anything(self, box: Box) -> None:
        keys = ["a", "A", "a ", " a", "á", "a\u0301", "", " ", "a\t", "'", "\\", "{a,b}", *TEXTS]
        box.stash(*(plain(key, str(number)) for number, key in enumerate(keys)))
        hand = box.lead()
        for key in keys:
            hand.remark()
            assert hand.values(excluded=[key]) == [str(n) for n, each in enumerate(keys) if each != key]
        hand.remark()
        assert hand.mark(excluded=keys) == []
        assert len(hand.mark()) == len(keys)

    def test_thousands_of_keys_are_excluded_at_once(self, box: Box) -> None:
        values = box.fill(6_000, keys=3_000)
        hand = box.lead()
        keys = [f"k{number}" for number in range(3_000) if number != 7]
        long = [f"{'x' * 1_000}{number}" for number in range(1_000)]
        assert hand.values(1, excluded=[*keys, *long]) == [values[6]]
        assert hand.values(10, excluded=keys) == [values[3_006]]
        assert hand.values(ALL) == [value for n, value in enumerate(values) if n % 3_000 != 6]

    def test_excluded_and_parked_keys_are_left_out_together(self, box: Box) -> None:
        values = box.fill(12, keys=4)
        hand, letters = box.lead(), box.dead_letters()
        head = box.park(hand, "k1")["k1"]
        assert hand.values(2, excluded=["k2"]) == [values[2], values[3]]
        assert letters.retry([head]) == [head]
        assert hand.values(4, excluded=["k2"]) == [values[n] for n in (0, 4, 6, 7)]
        assert hand.values() == [values[n] for n in (1, 5, 8, 9, 10, 11)]

    def test_each_lane_excludes_for_itself(self, box: Box) -> None:
        values = box.fill(60, keys=20)
        hands = box.lead_all(3)
        found = sorted(value for hand in hands for value in hand.values(excluded=["k5"]))
        assert found == sorted(value for n, value in enumerate(values) if n % 20 != 4)
        assert sorted(value for hand in hands for value in hand.values()) == sorted(values[4::20])

    def test_selections_leave_out_keys_and_topics_and_marks_do_too(self, box: Box) -> None:
        box.stash(
            *(Record(topic, key, f"{topic}/{key}") for topic in ("a", "b", "c") for key in ("k", "l", "m"))
        )
        hand = box.lead()
        for max_bytes in (BOUND, 1 << 40):
            selected = hand.advance(ALL, excluded=["k", "nobody's"], topics=["b", "'"], max_bytes=max_bytes)
            assert texts(selected) == ["a/l", "a/m", "c/l", "c/m"]
            first = hand.last()
            rest = hand.advance(ALL, pending=[first], excluded=["m"], max_bytes=max_bytes)
            assert texts(rest) == ["a/k", "b/k", "b/l", "c/k"]
            assert texts(hand.advance(2, [], topics=["a"], max_bytes=max_bytes)) == ["b/k", "b/l"]
        assert texts(hand.mark(ALL, topics=["a", "c"], excluded=["l"])) == ["b/k", "b/m"]
        assert texts(hand.mark(ALL, topics=["c"])) == ["a/k", "a/l", "a/m", "b/l"]
        assert texts(hand.mark(ALL)) == ["c/k", "c/l", "c/m"]
        assert texts(hand.advance(1, [first], excluded=["k"])) == ["b/l"], "what is deleted is not selected"

    def test_an_excluded_key_takes_none_of_the_bytes(self, box: Box) -> None:
        box.stash(*(large(number, "hot") for number in range(1, 11)), large(11, "k"), large(12, "k"))
        hand = box.lead()
        assert numbers(hand.mark(ALL, max_bytes=BOUND, excluded=["hot"])) == [11, 12]
        assert numbers(hand.mark(ALL, max_bytes=BOUND))[:3] == [1, 2, 3]


def _numbers(text: str) -> list[str]:
    return "".join(letter if letter.isdigit() else " " for letter in text.replace(",", "")).split()
