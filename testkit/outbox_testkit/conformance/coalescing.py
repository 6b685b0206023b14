"""Coalescing: an outline has what waits in nobody's hands, and what is superseded is deleted, or kept."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from time import sleep
from typing import Any

import pytest
from outbox_api import Batch, Capability, ColumnIs, LeadershipLost, Outline, Outlined, Record
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Chosen
from outbox_api.seams.outbox_table import MAX_OUTLINED_KEY

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.batches import CLOCK_STEP
from outbox_testkit.conformance.clustered import COLUMN, OTHER, OWN, created, led, of_cluster, origin
from outbox_testkit.conformance.under_test import ALL, Box, Hand, plain, texts

EVERY = ("*",)


def outline(hand: Hand, after: int = 0, limit: int = ALL, topics: tuple[str, ...] = EVERY) -> Outline:
    """Reads an outline."""
    return hand.table.outline(hand.fence, after, limit, topics)


def supersede(hand: Hand, *ids: int, newest: str = "") -> int:
    """Deletes rows as superseded."""
    return hand.table.supersede(hand.fence, Batch.of(sorted(ids), newest))


def ids(hand: Hand) -> list[int]:
    """Returns the ids of an outline."""
    return [row.id for row in outline(hand).rows]


class CoalescingConformance(Conformance):
    """What ``outline`` and ``supersede`` do."""

    def test_an_outline_has_ids_topics_and_keys(self, box: Box) -> None:
        box.stash(Record("orders", "k1", "1"), Record("Orders", "K1 ", None), Record("b_x.y", "é'", ""))
        hand = box.lead()
        found = outline(hand)
        assert [row[1:] for row in found.rows] == [
            ("orders", "k1", None),
            ("Orders", "K1 ", None),
            ("b_x.y", "é'", None),
        ]
        numbers = [row.id for row in found.rows]
        assert numbers == sorted(numbers)
        assert (found.last, found.read) == (numbers[-1], 3)
        assert numbers == [record.id for record in hand.mark()], "and it changes nothing"

    def test_an_outline_of_nothing_is_empty(self, box: Box) -> None:
        hand = box.lead()
        assert outline(hand) == Outline([])
        box.fill(3)
        assert outline(hand, after=outline(hand).last) == Outline([])

    def test_windows_follow_each_other(self, box: Box) -> None:
        box.fill(10, keys=2)
        hand, after, found = box.lead(), 0, list[Outlined]()
        sizes = []
        while (window := outline(hand, after, 4)).read:
            found += window.rows
            after = window.last
            sizes.append(window.read)
        assert sizes == [4, 4, 2]
        assert found == outline(hand).rows
        assert [row.key for row in found] == ["k1", "k0"] * 5

    def test_a_window_counts_what_it_leaves_out(self, box: Box) -> None:
        box.stash(*(Record(topic, "k", "v") for topic in ("a.1", "b", "A.1", "a.2", "a-1", "a.3")))
        hand = box.lead()
        found = outline(hand, limit=5, topics=("a.?", "x*"))
        assert [row.topic for row in found.rows] == ["a.1", "a.2"]
        assert found.read == 5
        assert [row.topic for row in outline(hand, found.last, topics=("a.*",)).rows] == ["a.3"]

    def test_marked_rows_are_left_out_whoever_has_marked_them(self, box: Box) -> None:
        box.fill(6, keys=1)
        former = box.lead()
        former.mark(2)
        hand = box.lead()
        marked = hand.ids(3)
        assert len(ids(hand)) == 3
        hand.reset(*marked[:1])
        assert ids(hand)[0] == marked[0]

    def test_parked_keys_are_left_out(self, box: Box) -> None:
        box.fill(6, keys=2)
        hand = box.lead()
        heads = box.park(hand, "k1")
        assert {row.key for row in outline(hand).rows} == {"k0"}
        box.dead_letters().retry(list(heads.values()))
        assert len(ids(hand)) == 6

    def test_rows_without_a_key_or_with_a_long_one_are_left_out(self, box: Box) -> None:
        box.stash(plain(""), plain("k" * MAX_OUTLINED_KEY), plain("é" * (MAX_OUTLINED_KEY // 2) + "k"))
        assert [len(row.key) for row in outline(box.lead()).rows] == [MAX_OUTLINED_KEY]

    def test_each_lane_sees_its_own_keys(self, box: Box) -> None:
        box.fill(60, keys=30)
        hands = box.lead_all(3)
        found = [outline(hand) for hand in hands]
        assert {each.read for each in found} == {60}
        seen = [{row.key for row in each.rows} for each in found]
        assert sorted(key for keys in seen for key in keys) == sorted(f"k{number}" for number in range(30))
        for hand, keys in zip(hands, seen, strict=True):
            assert {record.key for record in hand.mark()} == keys

    def test_an_outline_has_the_partition_of_a_row(self, bare: Box, stack: ExitStack) -> None:
        bare.dialect.create()
        bare.execute(f"ALTER TABLE {bare.options.table} ADD kafka_partition INTEGER")
        box = Box(bare.under, stack)
        box.fill(2, keys=1)
        box.execute(f"UPDATE {box.options.table} SET kafka_partition = 3 WHERE kafka_value = 'v2'")
        assert [row.partition for row in outline(box.lead()).rows] == [None, 3]

    def test_rows_of_other_clusters_are_left_out(self, bare: Box, stack: ExitStack) -> None:
        box = created(bare, stack, origin())
        of_cluster(box, OTHER, "theirs", "theirs too")
        of_cluster(box, OWN, "ours")
        hand = led(box, ColumnIs(COLUMN, OWN), ColumnIs(COLUMN, OTHER, 5.0))
        found = outline(hand)
        assert found.read == 3
        assert texts(hand.mark()) == ["ours"]
        assert len(found.rows) == 1

    @needs(Capability.CONCURRENT_WRITERS)
    def test_an_outline_has_no_uncommitted_rows(self, box: Box) -> None:
        late, hand = box.application(), box.lead()
        box.stasher.stash(late, plain("k0", "late"))
        box.fill(3, keys=1)
        assert len(ids(hand)) == 3
        late.rollback()
        assert len(ids(hand)) == 3

    def test_what_is_superseded_is_deleted(self, box: Box) -> None:
        box.fill(40, keys=2)
        hand = box.lead()
        found = outline(hand)
        numbers = [row.id for row in found.rows]
        assert supersede(hand, *numbers[:19], numbers[25], newest=found.newest) == 20
        assert supersede(hand, *numbers[:19], newest=found.newest) == 0
        assert hand.values() == [f"v{n}" for n in range(20, 41) if n != 26]

    def test_a_lost_leader_neither_outlines_nor_supersedes(self, box: Box) -> None:
        box.fill(3, keys=1)
        hand = box.lead()
        numbers = ids(hand)
        box.lead()
        with pytest.raises(LeadershipLost):
            outline(hand)
        with pytest.raises(LeadershipLost):
            supersede(hand, *numbers)
        assert len(box.survey()) == 3

    def test_a_younger_row_with_the_id_of_an_outlined_one_stays(self, box: Box) -> None:
        box.fill(5, keys=1)
        hand = box.lead()
        found = outline(hand)
        box.restart()
        sleep(CLOCK_STEP)
        box.fill(5, keys=1)
        again = Hand(box.connect(), hand.fence)
        assert ids(again) == [row.id for row in found.rows]
        deleted = supersede(again, *(row.id for row in found.rows), newest=found.newest)
        assert deleted == (0 if found.newest else 5)

    @needs(Capability.SKIP_LOCKED)
    def test_a_locked_row_is_left_and_not_waited_for(self, impatient_box: Box) -> None:
        box = impatient_box
        box.fill(20, keys=1)
        hand = box.lead()
        found = outline(hand)
        numbers = [row.id for row in found.rows]
        somebody = box.application()
        with closing(somebody.cursor()) as cursor:
            cursor.execute(f"SELECT id FROM {box.options.table} WHERE id = {numbers[3]} FOR UPDATE")
            cursor.fetchall()
        assert supersede(hand, *numbers[:-1], newest=found.newest) == 18
        somebody.rollback()
        assert ids(hand) == [numbers[3], numbers[-1]]

    @pytest.mark.parametrize("without", [(), ("value", "headers")])
    def test_what_is_superseded_is_kept_as_such(
        self, bare: Box, stack: ExitStack, without: tuple[str, ...]
    ) -> None:
        box = self._keeping(bare, stack, topics=("orders",), without=without)
        box.fill(3, keys=1)
        box.stash(Record("bills", "k0", "v4"))
        hand = box.lead()
        found = outline(hand)
        numbers = [row.id for row in found.rows]
        assert supersede(hand, numbers[0], numbers[1], numbers[3], newest=found.newest) == 3
        hand.purge(*hand.ids())
        kept = box.kept().find(Chosen(), 0, ALL)
        assert [each.record.id for each in kept] == numbers[:3]
        assert [each.superseded for each in kept] == [True, True, False]
        delivered = box.kept().find(Chosen(superseded=False), 0, ALL)
        assert [each.record.id for each in delivered] == numbers[2:3]
        assert {each.has_value for each in kept} == {not without}
        counted = box.kept().count(Chosen())
        assert counted.without_value == counted.without_headers == (3 if without else 0)
        assert texts([each.record for each in kept]) == (["", "", ""] if without else ["v1", "v2", "v3"])

    def _keeping(self, bare: Box, stack: ExitStack, **options: Any) -> Box:
        keep = Keep(**{"for_": 3600.0, **options})
        box = Box(replace(bare.under, options={**bare.under.options, "keep": keep}), stack)
        box.dialect.create()
        return box
