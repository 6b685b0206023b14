"""Kept records: a purge moves rows into the table beside the outbox, all of them, once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import Batch, Capability, DriverError, LeadershipLost, Record
from outbox_api.portable.keeping import Keep
from outbox_api.seams.kept import Chosen, KeptRecord

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, Hand, plain, texts

Purge = Callable[[Hand, int], int]
"""Delivers the first rows of an outbox; returns how many it deleted."""


def marked(hand: Hand, count: int) -> int:
    """Delivers rows as at-least-once delivery does."""
    return hand.purge(*hand.ids(count))


def selected(hand: Hand, count: int) -> int:
    """Delivers rows as exactly-once delivery does, with the purge by itself."""
    batch, _ = hand.batch(count)
    hand.advance(0, [batch])
    return hand.purged


def advanced(hand: Hand, count: int) -> int:
    """Delivers rows as exactly-once delivery does, with the purge in a selection."""
    batch, _ = hand.batch(count)
    hand.advance(1, [batch])
    return hand.purged


each_way = pytest.mark.parametrize("purge", [marked, selected, advanced])


class KeepingConformance(Conformance):
    """What the option ``keep`` does."""

    @pytest.fixture
    def keeping(self, bare: Box, stack: ExitStack) -> Callable[..., Box]:
        """Creates the outbox under test with kept records."""

        def create(**options: Any) -> Box:
            keep = Keep(**{"for_": 3600.0, **options})
            brief = {"lock_timeout": 1.0} if hasattr(bare.options, "lock_timeout") else {}
            box = Box(replace(bare.under, options={**bare.under.options, **brief, "keep": keep}), stack)
            box.dialect.create()
            return box

        return create

    @each_way
    def test_what_is_purged_is_kept(self, keeping: Callable[..., Box], purge: Purge) -> None:
        box = keeping()
        headers = (("trace", "a"), ("trace", None), ("empty", ""))
        sent = [Record("orders", "k1", "1", headers), Record("Orders", "", None), Record("bills", "é", "")]
        box.stash(*sent, plain("k2", "4"))
        hand = box.lead()
        assert purge(hand, 3) == 3
        found = kept(box)
        assert [each.record.topic for each in found] == ["orders", "Orders", "bills"]
        assert [each.record.key for each in found] == ["k1", "", "é"]
        assert [each.record.value for each in found] == ["1", None, ""]
        assert [tuple(each.record.headers) for each in found] == [headers, (), ()]
        assert {each.token for each in found} == {hand.fence.token}
        assert all(each.has_value and each.has_headers and each.record.created for each in found)
        assert [each.position for each in found] == sorted(each.position for each in found)
        now = box.watch().now()
        assert all(abs((now - each.delivered_at).total_seconds()) < 60 for each in found)
        assert box.survey() == ["4"]

    @each_way
    def test_nothing_is_lost_or_kept_twice(self, keeping: Callable[..., Box], purge: Purge) -> None:
        box = keeping()
        values, hand = box.fill(300, keys=7), box.lead()
        assert purge(hand, 200) == 200
        rest = hand if purge is not marked else box.lead()
        assert purge(rest, ALL) == 100
        assert texts([each.record for each in kept(box)]) == values
        assert box.survey() == []

    def test_only_what_a_purge_deletes_is_kept(self, keeping: Callable[..., Box]) -> None:
        box = keeping()
        box.fill(4)
        hand = box.lead()
        ids = hand.ids()
        assert hand.purge(*ids[:2], leader=uuid4()) == 0
        assert kept(box) == []
        assert hand.purge(ids[0], ids[0], ids[-1] + 7) == 1
        assert hand.purge(*ids[:2]) == 1
        assert texts([each.record for each in kept(box)]) == ["v1", "v2"]
        box.lead()
        with pytest.raises(LeadershipLost):
            hand.purge(*ids[2:])
        with pytest.raises(LeadershipLost):
            hand.advance(0, [Batch.of(ids[2:])])
        assert len(kept(box)) == 2

    @each_way
    def test_topics_and_parts_are_chosen(self, keeping: Callable[..., Box], purge: Purge) -> None:
        box = keeping(topics=("order?.*", "bi_ls", "{x}"), without=("value", "headers"))
        topics = ["orders.eu", "Orders.eu", "orders", "bi_ls", "bills", "order_.", "x"]
        box.stash(*(Record(topic, f"k{topic}", "v", (("a", "b"),)) for topic in topics))
        assert purge(box.lead(), ALL) == len(topics)
        found = kept(box)
        assert [each.record.topic for each in found] == ["orders.eu", "bi_ls", "order_."]
        assert not any(each.has_value or each.has_headers for each in found)
        assert {each.record.value for each in found} == {None}

    @needs(Capability.BYTES_VALUES)
    def test_bytes_are_kept_though_the_options_do_not_name_the_type(
        self, bytes_box: Box, stack: ExitStack
    ) -> None:
        values = [bytes(range(256)), b"", None, b"\\xff", b"text"]
        bytes_box.stash(*(Record("orders", "k", value) for value in values))
        under, text = bytes_box.under, bytes_box.options.value_types[0]
        options = {**under.options, "value_type": text, "keep": Keep(for_=60.0)}
        box = Box(replace(under, options=options), stack)
        box.dialect.create()
        assert marked(box.lead(), ALL) == len(values)
        assert [each.record.value for each in kept(box)] == values

    @each_way
    def test_nothing_is_purged_that_cannot_be_kept(self, keeping: Callable[..., Box], purge: Purge) -> None:
        box = keeping()
        box.fill(5)
        hand = box.lead()
        box.execute(f"DROP TABLE {box.options.tables.kept}")
        with pytest.raises(DriverError):
            purge(hand, 5)
        box.dialect.create()
        assert len(box.survey()) == 5

    @needs(Capability.SKIP_LOCKED)
    def test_a_marked_row_that_is_locked_is_kept_when_it_is_purged(self, keeping: Callable[..., Box]) -> None:
        box = keeping()
        box.fill(20, keys=20)
        hand = box.lead()
        ids = hand.ids()
        with _locking(box, ids[3]):
            assert hand.purge(*ids) == 19
            assert len(kept(box)) == 19
        assert hand.purge(*ids) == 1
        assert len(kept(box)) == 20

    @needs(Capability.SKIP_LOCKED)
    def test_a_selected_row_that_is_locked_is_kept_when_it_is_purged(
        self, keeping: Callable[..., Box]
    ) -> None:
        box = keeping()
        box.fill(20, keys=20)
        hand = box.lead()
        batch, _ = hand.batch()
        with _locking(box, batch.ids()[3]):
            hand.advance(1, [batch])
            assert len(kept(box)) == 19
        hand.advance(0, hand.advanced.locked)
        assert len(kept(box)) == 20

    def test_what_is_skipped_is_not_kept(self, keeping: Callable[..., Box]) -> None:
        box = keeping()
        box.fill(3, keys=3)
        heads = box.park(box.lead(), "k1")
        assert box.dead_letters().skip(list(heads.values())) == list(heads.values())
        assert marked(box.lead(), ALL) == 2
        assert {each.record.key for each in kept(box)} == {"k2", "k0"}

    def test_kept_records_are_found(self, keeping: Callable[..., Box]) -> None:
        box = keeping()
        box.fill(30, keys=3)
        box.stash(
            Record("bills", "k1", "bill"), Record("orders", "K1", "other"), Record("orders", "k1 ", "b")
        )
        assert marked(box.lead(), ALL) == 33
        mine = kept(box, Chosen(key="k1"))
        assert texts([each.record for each in mine]) == [*(f"v{n}" for n in range(1, 31, 3)), "bill"]
        assert len(kept(box, Chosen(key="k1", topics=["b*"]))) == 1
        at = mine[0].delivered_at
        assert len(kept(box, Chosen(since=at))) == len(kept(box))
        assert kept(box, Chosen(until=at.replace(year=at.year - 1))) == []
        archive = box.kept()
        some = [each.position for each in archive.find(Chosen(), mine[0].position, 2)]
        assert some == [each.position for each in kept(box)[1:3]]


def kept(box: Box, chosen: Chosen = Chosen()) -> list[KeptRecord]:  # noqa: B008 - it is frozen
    """Returns the kept records."""
    return box.kept().find(chosen, 0, ALL)


@contextmanager
def _locking(box: Box, number: int) -> Iterator[None]:
    """Holds a row in another transaction."""
    somebody = box.application()
    with closing(somebody.cursor()) as cursor:
        cursor.execute(f"SELECT id FROM {box.options.table} WHERE id = {number} FOR UPDATE")
        cursor.fetchall()
    yield
    somebody.rollback()
