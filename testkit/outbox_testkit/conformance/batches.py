"""Batches: selected without a change, and deleted by the sets of their ids, as exactly-once delivery does."""

from __future__ import annotations

from time import sleep

import pytest
from outbox_api import Batch, Capability, LeadershipLost, Record

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.stashing import HEADERS, TEXTS, assert_same
from outbox_testkit.conformance.under_test import ALL, Box, Hand, content, plain, texts

CLOCK_STEP = 0.05
"""Seconds by which the clock of a virtual machine may step back."""


def assert_read(box: Box, records: list[Record]) -> None:
    """Stashes records, selects them, and reads them again, over the same connection and over another."""
    box.stash(*records)
    hand = box.lead()
    selected = hand.advance()
    for record, stashed in zip(selected, records, strict=True):
        assert_same(record, stashed)
    for table in (hand.table, box.connect()):
        assert content(table.rows(hand.last())) == content(selected)
    hand.advance(0, finished=[hand.last()])


class BatchConformance(Conformance):
    """``advance``, alone and in turn with parking and takeovers."""

    def test_deletes_the_finished_batch_and_selects_the_next(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(10)
        first, found = hand.batch(4)
        assert (hand.purged, found) == (0, values[:4])
        assert first.rows == 4
        second, found = hand.batch(4, finished=[first])
        assert (hand.purged, found) == (4, values[4:8])
        assert texts(hand.advance(4, finished=[second])) == values[8:]
        assert hand.purged == 4
        assert box.survey() == values[8:]

    def test_a_selection_changes_nothing_in_the_rows(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6)
        marked = hand.ids(3)
        for _ in range(2):
            assert texts(hand.advance()) == values, "whatever leader ids they carry"
        assert hand.mark(3) != []
        assert hand.reset(*marked) == 3, "the rows carry what they carried"
        assert hand.values() == values[:3]

    def test_rows_that_another_leader_has_marked_are_selected(self, box: Box) -> None:
        values = box.fill(9, keys=3)
        box.lead().mark(5)
        hand = box.lead()
        batch, found = hand.batch(7)
        assert found == values[:7]
        assert texts(hand.advance(finished=[batch])) == values[7:]

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

    @pytest.mark.parametrize("step", [2, 3, 40, 397])
    @pytest.mark.parametrize("limit", [0, ALL], ids=["only deletes", "selects too"])
    def test_a_batch_with_gaps_is_its_rows_and_no_others(self, box: Box, step: int, limit: int) -> None:
        hand, values = box.lead(), box.fill(800)
        hand.advance()
        ids = hand.last().ids()
        newest = hand.advanced.newest
        gaps, rest = set(ids[::step]), values.copy()
        del rest[::step]
        batch = Batch.of([number for number in ids if number not in gaps], newest)
        assert texts(hand.advance(pending=[batch])) == values[::step]
        assert texts(hand.advance(limit, finished=[batch])) == (values[::step] if limit else [])
        assert hand.purged == len(rest)
        others = Batch.of(sorted(gaps), newest)
        assert hand.advance(pending=[others]) == []
        assert texts(hand.advance()) == values[::step]
        assert hand.advance(limit, finished=[others]) == []
        assert box.survey() == []

    def test_deletion_by_a_batch_of_one_lane_leaves_the_rows_of_others(self, box: Box) -> None:
        values = box.fill(300, keys=50)
        hands = box.lead_all(3)
        batches = [hand.batch(ALL) for hand in hands]
        assert sorted(value for _, found in batches for value in found) == sorted(values)
        hands[1].advance(0, finished=[batches[1][0]])
        assert hands[1].purged == len(batches[1][1])
        assert box.survey() == [value for value in values if value not in batches[1][1]]

    def test_a_deletion_that_is_repeated_does_no_harm(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6)
        first, _ = hand.batch(2)
        hand.advance(2, finished=[first])  # the reply is lost
        again = Hand(box.connect(), hand.fence)
        assert again.advance(0, finished=[first]) == []
        assert again.purged == 0
        second, found = again.batch(2, finished=[first])
        assert found == values[2:4]
        assert again.advance(0, finished=[first, second]) == []
        assert again.purged == 2
        assert box.survey() == values[4:]

    def test_a_limit_of_0_only_deletes(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(6)
        first, _ = hand.batch(2)
        second, _ = hand.batch(2, pending=[first])
        assert hand.advance(0, finished=[first, second]) == []
        assert hand.purged == 4
        assert hand.advance(0) == []
        assert hand.purged == 0
        assert texts(hand.advance()) == values[4:]

    def test_an_abandoned_batch_is_selected_again_in_its_place(self, box: Box) -> None:
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
        assert box.survey() == values[10:]

    def test_a_former_leader_may_select_and_deletes_nothing(self, box: Box) -> None:
        values = box.fill(20)
        old = box.lead()
        first, _ = old.batch(5)
        second, _ = old.batch(5, pending=[first])
        new = box.lead()
        with pytest.raises(LeadershipLost):
            old.advance(finished=[first, second])
        with pytest.raises(LeadershipLost):
            old.advance(0, finished=[first, second])
        # In the log is the first alone.
        ours, found = new.batch(8, finished=[first])
        assert (new.purged, found) == (5, values[5:13])
        assert texts(new.advance(finished=[ours])) == values[13:]

    def test_batches_of_several_lanes_share_ranges_and_not_rows(self, box: Box) -> None:
        values = box.fill(300, keys=50)
        finished: dict[int, list[Batch]] = {0: [], 1: [], 2: []}
        seen: list[str] = []
        hands, busy = box.lead_all(3), True
        while busy:
            busy = False
            for lane, hand in enumerate(hands):
                before = sum(batch.rows for batch in finished[lane])
                records = hand.advance(10, finished=finished[lane])
                assert hand.purged == before
                seen += texts(records)
                finished[lane] = [hand.last()] if records else []
                busy = busy or bool(records)
        assert sorted(seen) == sorted(values)
        assert box.survey() == []

    def test_large_batches(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(12_000, keys=100)
        first, found = hand.batch(10_000)
        assert found == values[:10_000]
        assert texts(hand.advance(10_000, pending=[first])) == values[10_000:]
        assert texts(hand.table.rows(Batch.of([*first.ids(), *hand.last().ids()]))) == values
        assert texts(hand.advance(10_000, finished=[first])) == values[10_000:]
        assert hand.purged == 10_000
        wide = box.lead_all(2)
        first, found = wide[0].batch(10_000)
        assert wide[0].advance(10_000, pending=[first]) == []
        wide[0].advance(0, finished=[first])
        assert wide[0].purged == len(found)

    def test_a_parked_key_is_left_out_until_it_is_freed(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(8, keys=2)
        selected = hand.advance(6)
        odd = [record.id for record in selected][::2]
        assert hand.park_selected(odd[0]) == 1
        # The rest of the batch was abandoned with it.
        batch, found = hand.batch()
        assert found == values[1::2]
        assert hand.advance(finished=[batch]) == []
        (letter,) = box.dead_letters().find()
        assert (letter.record.id, letter.record.value) == (odd[0], values[0])
        assert (letter.reason, letter.attempts) == ("too large", 5)
        box.dead_letters().retry(odd[:1])
        assert texts(hand.advance()) == values[::2]

    def test_a_key_is_parked_without_a_leader_id_whatever_its_rows_carry(self, box: Box) -> None:
        hand, values = box.lead(), box.fill(9, keys=3)
        marked = hand.ids(4)
        ids = [record.id for record in hand.advance()]
        assert hand.park_selected(ids[1], ids[0]) == 2
        hand.park_selected(ids[0])  # the reply was lost
        assert len(box.dead_letters().find()) == 2
        assert hand.table.parked().keys == 2
        assert hand.reset(*marked) == 4, "no row was changed"
        assert texts(hand.advance()) == values[2::3]
        hand.purge(*marked, leader=hand.leader)
        assert hand.park_selected(ids[-1] + 1) == 0, "a row that is gone is left out"
        assert hand.table.parked().keys == 2

    def test_the_rows_of_a_batch_are_read_as_they_were_selected(self, box: Box) -> None:
        assert_read(box, [Record("orders", text, text, ((text, text),)) for text in TEXTS])
        assert_read(box, [Record("orders", "k", f"v{number}", each) for number, each in enumerate(HEADERS)])
        assert_read(box, [plain("", value) for value in ("", None, "é" * 10_000, "v" * 1_000_000)])

    @needs(Capability.BYTES_VALUES)
    def test_the_rows_of_a_batch_are_read_with_values_of_bytes(self, bytes_box: Box) -> None:
        values = [bytes(range(256)), b"", None, b"\\x00 '\"%s", bytes(range(256)) * 4000, "Grüße 🌍"]
        assert_read(bytes_box, [Record("orders", "k", value) for value in values])

    @pytest.mark.parametrize("step", [1, 2, 40])
    def test_the_rows_of_a_batch_are_read_if_they_are_there_and_no_others(self, box: Box, step: int) -> None:
        hand, values = box.lead(), box.fill(5000, keys=7)
        ids = [record.id for record in hand.advance(ALL)]
        newest = hand.advanced.newest
        batch, wanted = Batch.of(ids[::step], newest), values[::step]
        assert texts(hand.table.rows(batch)) == wanted
        hand.advance(0, finished=[Batch.of(ids[::3], newest)])
        gone = {*values[::3]}
        assert texts(hand.table.rows(batch)) == [value for value in wanted if value not in gone]
        hand.advance(0, finished=[batch])
        assert hand.table.rows(batch) == hand.table.rows(Batch(())) == []
        assert box.survey() == [value for value in values if value not in gone.union(wanted)]

    def test_rows_of_parked_keys_are_read_by_whomever_and_nothing_is_changed(self, box: Box) -> None:
        former, values = box.lead(), box.fill(9, keys=3)
        batch, _ = former.batch(8)
        assert former.park_selected(batch.ids()[1]) == 1
        hand = box.lead()
        marked = hand.ids(3)
        for table in (former.table, hand.table):
            assert texts(table.rows(batch)) == values[:8]
        assert hand.reset(*marked) == 3, "the rows carry what they carried"
        assert hand.table.parked().keys == 1
        assert hand.batch()[1] == [value for number, value in enumerate(values) if number % 3 != 1]

    @pytest.mark.parametrize("change", ["DELETE FROM {table}", "UPDATE {table} SET kafka_topic = 't'"])
    def test_rows_that_others_have_locked_are_read_as_they_were_committed(
        self, impatient_box: Box, change: str
    ) -> None:
        box = impatient_box
        box.fill(9)
        hand, somebody = box.lead(), box.application()
        selected = hand.advance()
        cursor = somebody.cursor()
        cursor.execute(f"{change.format(table=box.options.table)} WHERE id >= {selected[4].id}")
        assert content(hand.table.rows(hand.last())) == content(selected)
        cursor.close()
        somebody.commit()
        found = content(hand.table.rows(hand.last()))
        rest = [] if change.startswith("DELETE") else [each._replace(topic="t") for each in selected[4:]]
        assert found == content([*selected[:4], *rest])

    def test_an_id_that_is_given_out_anew_is_no_row_of_the_old_batch(self, box: Box) -> None:
        box.fill(5)
        hand = box.lead()
        old, _ = hand.batch()
        box.restart()
        sleep(CLOCK_STEP)
        values = box.fill(7)
        again = Hand(box.connect(), hand.fence)
        assert again.batch(ALL)[1] == values
        found = again.last()
        assert found.ids()[:5] == old.ids(), "the statements of OutboxUnderTest.restart do not do it"
        assert texts(again.table.rows(old)) == ([] if old.newest else values[:5])
        assert texts(again.table.rows(found)) == values
        again.advance(0, finished=[old])
        assert again.purged == (0 if old.newest else 5)
        assert texts(again.advance()) == (values if old.newest else values[5:])
        again.advance(0, finished=[found])
        assert box.survey() == []

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

    @needs(Capability.CONCURRENT_WRITERS)
    def test_uncommitted_rows_beside_and_between_batches_are_neither_seen_nor_waited_for(
        self, box: Box
    ) -> None:
        late = [box.application() for _ in range(5)]
        values: list[str] = []
        for number, connection in enumerate(late):
            box.stasher.stash(connection, plain("late", f"late {number}"))
            values += box.fill(10)
        hand = box.lead()
        first, found = hand.batch(25)
        assert found == values[:25]
        late[1].commit()
        second, found = hand.batch(20, finished=[first])
        assert found == ["late 1", *values[25:44]]
        assert hand.purged == 25
        for connection in late:
            connection.commit()
        third, found = hand.batch(ALL, finished=[second])
        assert found == ["late 0", "late 2", "late 3", "late 4", *values[44:]]
        assert hand.advance(finished=[third]) == []
        assert box.survey() == []

    @needs(Capability.SKIP_LOCKED)
    @pytest.mark.parametrize("limit", [0, ALL], ids=["only deletes", "selects too"])
    def test_rows_that_others_have_locked_are_deleted_once_they_are_free(
        self, impatient_box: Box, limit: int
    ) -> None:
        box = impatient_box
        values = box.fill(60)
        hand, somebody = box.lead(), box.application()
        batch, _ = hand.batch(50)
        ids = batch.ids()
        locked = [ids[7], ids[8], ids[49]]
        cursor = somebody.cursor()
        cursor.execute(
            f"UPDATE {box.options.table} SET kafka_topic = 't' WHERE id IN ({', '.join(map(str, locked))})"
        )
        other = Hand(box.connect(), hand.fence)
        assert texts(other.advance()) == values, "they are selected as they were committed"
        assert texts(hand.advance(limit, finished=[batch])) == (values[50:] if limit else [])
        assert [each.ids() for each in hand.advanced.locked] == [locked]
        rest = hand.advanced.locked
        assert rest[0].newest == batch.newest
        assert texts(hand.advance(ALL, pending=rest)) == values[50:]
        following, found = hand.batch(5, pending=rest)
        assert found == values[50:55]
        assert texts(hand.advance(limit, finished=[*rest, following])) == (values[55:] if limit else [])
        assert [each.ids() for each in hand.advanced.locked] == [locked], "still locked, and all else goes on"
        cursor.close()
        somebody.rollback()
        hand.advance(limit, finished=hand.advanced.locked)
        assert not hand.advanced.locked
        assert box.survey() == values[55:]
