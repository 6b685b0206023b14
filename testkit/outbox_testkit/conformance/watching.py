"""Watching: whoever looks creates nothing, changes nothing, and waits for nobody."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest
from outbox_api import Dialect, DriverError, Level, Record, TransactionalLane
from outbox_api.portable.view import PortableView

from outbox_testkit.conformance.base import Conformance
from outbox_testkit.conformance.under_test import Box, plain, texts

CONNECTIONS: dict[str, Callable[[Dialect], Any]] = {
    "connect": lambda dialect: dialect.connect(),
    "watch": lambda dialect: dialect.watch(),
    "dead letters": lambda dialect: dialect.dead_letters(),
    "dead letters, read only": lambda dialect: dialect.dead_letters(read_only=True),
    "journal": lambda dialect: dialect.journal(),
    "journal, read only": lambda dialect: dialect.journal(read_only=True),
    "lease": lambda dialect: dialect.lease(),
    "members": lambda dialect: dialect.members(),
    "history": lambda dialect: dialect.history(),
    "history, read only": lambda dialect: dialect.history(read_only=True),
}
"""Everything that connects to an outbox."""

FENCE, NOTES, LEASE, MEMBERS, LETTERS, JOURNAL = range(1, 7)
"""Places among the tables that ``create`` returns."""


def refusal(dialect: Dialect, how: str) -> str:
    """Connects, and returns why that is refused for good; empty if it is not refused."""
    try:
        CONNECTIONS[how](dialect).close()
    except DriverError as error:
        return "" if error.retryable else str(error)
    return ""


class WatchConformance(Conformance):
    """``watch``, ``dead_letters`` to read only, and that nothing but ``create`` creates."""

    @staticmethod
    def view(box: Box, stack: ExitStack) -> PortableView:
        """Connects to look."""
        view = box.dialect.watch()
        stack.callback(view.close)
        return view

    def test_whoever_watches_sees_what_the_harvester_sees(self, box: Box, stack: ExitStack) -> None:
        view = self.view(box, stack)
        table = box.connect()
        assert (view.name, view.known_identity()) == (table.name, None)
        assert (view.lane_statuses(), view.origins(), view.takeovers()) == ([], [], [])
        identity = table.identity()
        assert view.known_identity() == identity
        box.fill(5)
        hand = box.lead()
        heads = box.park(hand, "k2")
        hand.table.set_transactional(hand.fence, TransactionalLane(1, "sender", "place"))
        hand.table.begin_takeover(3, "a reason")
        assert view.backlog().records == 5
        assert view.parked().keys == len(heads)
        assert [each.fence.token for each in view.lane_statuses()] == [hand.fence.token]
        assert view.transactional_lanes() == {0: TransactionalLane(1, "sender", "place")}
        assert [each.reason for each in view.takeovers()] == ["a reason"]
        assert abs(view.now() - table.now()) < timedelta(seconds=60)

    def test_whoever_watches_can_read_what_waits(self, box: Box, stack: ExitStack) -> None:
        view = self.view(box, stack)
        assert view.peek(0, 10) == []
        box.stash(plain("k1", "v1"), plain("k2", None), plain("k1", "v3"))
        hand = box.lead()
        box.park(hand, "k2")
        first = view.peek(0, 2)
        rest = view.peek(first[-1].id, 10)
        assert [(row.topic, row.key) for row in (*first, *rest)] == [
            ("orders", "k1"), ("orders", "k2"), ("orders", "k1")
        ]  # fmt: skip
        assert texts([*first, *rest]) == ["v1", "", "v3"]
        assert first[1].value is None
        assert view.peek(rest[-1].id, 10) == []
        assert view.backlog().records == len(first) + len(rest)

    def test_what_waits_is_told_by_topic_and_key(self, box: Box, stack: ExitStack) -> None:
        view = self.view(box, stack)
        assert view.waiting_groups(10) == ([], [])
        hand = box.lead()
        records = [Record("a", "K", "v"), Record("A", "k", None), Record("a", "k", "v" * 3000)]
        box.stash(*records, Record("a", "k", "v"), Record("a", "", "v"), Record("a", "ä" * 900, "v"))
        topics, keys = view.waiting_groups(10)
        assert [(each.topic, each.key, each.rows) for each in topics] == [("a", None, 5), ("A", None, 1)]
        assert [(each.topic, each.key, each.rows) for each in keys] == [
            ("a", "k", 2), ("a", "K", 1), ("A", "k", 1), ("a", "", 1), ("a", "ä" * 900, 1)
        ]  # fmt: skip
        assert [each.first for each in keys[1:]] == sorted(each.first for each in keys[1:])
        assert all(each.oldest is not None and 0 <= each.oldest < 60 for each in (*topics, *keys))
        assert [len(each) for each in view.waiting_groups(1)] == [1, 1]
        found = view.waiting_key(2, "k")
        assert (found.key, found.rows) == ("k", 3)
        assert [each.topic for each in found.first] == ["A", "a"]
        assert found.first[1].size >= 3000 > found.first[0].size
        assert view.waiting_key(9, of=keys[3].first).key == ""
        assert view.waiting_key(9, of=keys[4].first).rows == 1
        assert (view.waiting_key(9, "none").rows, view.waiting_key(9, of=10**12).key) == (0, None)
        assert not any(each.marked for each in found.first)
        hand.mark(10)
        assert [each.marked for each in view.waiting_key(9, "k").first] == [True] * 3
        assert [each.marked for each in view.waiting_groups(10)[0]] == [5, 1]

    def test_letters_can_be_read_by_somebody_who_changes_none(self, box: Box, stack: ExitStack) -> None:
        box.fill(3)
        heads = box.park(box.lead(), "k1")
        letters = box.dialect.dead_letters(read_only=True)
        stack.callback(letters.close)
        assert [letter.record.id for letter in letters.find()] == list(heads.values())
        assert letters.waiting("k1") == 1
        for change in (letters.retry, letters.skip, letters.redrive):
            with pytest.raises(DriverError):
                change(list(heads.values()))
        assert [letter.record.id for letter in box.dead_letters().find()] == list(heads.values())

    def test_whoever_watches_waits_for_nobody(self, impatient_box: Box, stack: ExitStack) -> None:
        box = impatient_box
        box.fill(3)
        hand = box.lead()
        open_transaction = box.application()
        box.stasher.stash(open_transaction, plain("k", "not committed"))
        view = self.view(box, stack)
        assert (view.backlog().records, view.parked().keys) == (3, 0)
        assert len(view.lane_statuses()) == 1
        with closing(box.dialect.dead_letters(read_only=True)) as letters:
            assert (letters.find(), letters.waiting("k1")) == ([], 1)
        open_transaction.rollback()
        assert hand.values() == ["v1", "v2", "v3"]

    @pytest.mark.parametrize("how", CONNECTIONS)
    def test_without_its_tables_nothing_connects_and_nothing_is_created(self, apart: Box, how: str) -> None:
        assert "outbox init" in refusal(apart.dialect, how)
        assert Level.ERROR in {finding.level for finding in apart.dialect.check()}
        assert len(apart.dialect.create()) > JOURNAL, "all of them"

    @pytest.mark.parametrize("missing", [FENCE, NOTES, LETTERS])
    def test_a_missing_table_beside_the_outbox_is_created_by_init_alone(
        self, apart: Box, missing: int
    ) -> None:
        table = apart.dialect.create()[missing]
        application = apart.application()
        with closing(application.cursor()) as cursor:
            cursor.execute(f"DROP TABLE {table}")
        application.commit()
        for how in CONNECTIONS:
            told = refusal(apart.dialect, how)
            assert "outbox init" in told, how
        assert [each for each in apart.dialect.check() if each.level is Level.ERROR and "init" in each.cure]
        assert list(apart.dialect.create()) == [table]
        apart.fill(1)
        assert apart.lead().values() == ["v1"]
