"""The intake while something fails: rows arrive once, in the order of their key, and as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any

import pytest
from outbox_api import Capability, DriverError, Intakes
from outbox_api.portable import held_keys, moving

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.intake import IntakeConformance
from outbox_testkit.conformance.under_test import ALL, Box, Hand

_LIMIT = 800
"""Bytes above which a row of these tests is not read."""
_SECONDS = 60.0


class IntakeFaultConformance(Conformance):
    """An intake whose connection is lost, whose rows are held back, and whose leader changes."""

    @pytest.fixture
    def filled(self, bare: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Box:
        """An outbox with an intake of nine rows of three keys, which tries what it holds back again soon."""
        monkeypatch.setattr(held_keys, "REFUSED_SECONDS", 0.05)
        monkeypatch.setattr(held_keys, "LOCKED_SECONDS", 0.05)
        box = IntakeConformance.make(bare, stack)
        IntakeConformance.add(box, 1, 9)
        return box

    @needs(Capability.INTAKE)
    @pytest.mark.parametrize("committed", [True, False], ids=["committed", "rolled back"])
    def test_a_portion_of_unknown_outcome_arrives_once_and_in_order(
        self, filled: Box, monkeypatch: pytest.MonkeyPatch, committed: bool
    ) -> None:
        monkeypatch.setattr(moving, "PORTION", 4)
        _lose_a_reply(filled, monkeypatch, committed=committed)
        hand, intakes = filled.lead(), filled.dialect.intakes()
        filled.keep(intakes)
        with pytest.raises(DriverError, match="the reply is lost"):
            intakes.take(hand.fence.token, ALL)
        assert _moved(intakes, hand, 9) == [f"v{number}" for number in range(1, 10)]
        assert IntakeConformance.left(filled) == []

    @needs(Capability.SKIP_LOCKED)
    def test_rows_before_a_locked_one_come_first_though_their_transaction_is_lost(
        self, filled: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _lose_a_reply(filled, monkeypatch, committed=False)
        blocker = filled.application()
        blocker.cursor().execute(f"SELECT id FROM {filled.options.intake.table} WHERE id = 4 FOR UPDATE")
        hand, intakes = filled.lead(), filled.dialect.intakes()
        filled.keep(intakes)
        with pytest.raises(DriverError, match="the reply is lost"):
            intakes.take(hand.fence.token, ALL)
        blocker.rollback()
        values = _moved(intakes, hand, 9)
        assert [value for value in values if value in ("v1", "v4", "v7")] == ["v1", "v4", "v7"]

    @needs(Capability.INTAKE)
    @pytest.mark.parametrize(
        ("cure", "later"),
        [
            ("UPDATE {table} SET payload = 'v4' WHERE id = 4", ["v4", "v7"]),
            ("DELETE FROM {table} WHERE id = 4", ["v7"]),
        ],
        ids=["corrected", "deleted"],
    )
    def test_a_row_that_is_too_large_holds_its_key_back_until_it_is_corrected_or_deleted(
        self, filled: Box, cure: str, later: list[str]
    ) -> None:
        table = filled.options.intake.table
        filled.execute(f"UPDATE {table} SET payload = '{'x' * 900}' WHERE id = 4")
        hand = filled.lead()
        intakes = IntakeConformance.take_in(filled, hand, max_bytes=_LIMIT)
        assert hand.values() == ["v1", "v2", "v3", "v5", "v6", "v8", "v9"]
        filled.execute(cure.format(table=table))
        assert _moved(intakes, hand, len(later)) == later

    @needs(Capability.INTAKE)
    def test_a_key_that_is_held_back_stays_in_order_through_another_leader(self, filled: Box) -> None:
        table = filled.options.intake.table
        filled.execute(f"UPDATE {table} SET aggregatetype = 'refused' WHERE id = 5")
        filled.execute(*filled.under.refuse(filled.options.table, "kafka_topic = 'outbox.event.refused'"))
        former = filled.lead()
        intakes = IntakeConformance.take_in(filled, former)
        assert former.values() == ["v1", "v2", "v3", "v4", "v6", "v7", "v9"]
        intakes.close()
        IntakeConformance.add(filled, 10, 11)
        current = filled.lead()
        again = filled.dialect.intakes()
        filled.keep(again)
        # What the former leader has moved is marked again.
        assert _moved(again, current, 8)[-1] == "v10"
        filled.execute(f"UPDATE {table} SET aggregatetype = 'order' WHERE id = 5")
        assert _moved(again, current, 3) == ["v5", "v8", "v11"]

    @needs(Capability.INTAKE)
    def test_an_empty_key_that_is_held_back_holds_no_other_where_lists_tell_no_keys(
        self, bare: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(moving, "PORTION", 4)
        box = IntakeConformance.make(bare, stack, key="aggregateid | type")
        table = box.options.intake.table
        IntakeConformance.add(box, 1, 9)
        box.execute(
            f"UPDATE {table} SET aggregatetype = 'refused', aggregateid = NULL, type = NULL WHERE id = 2"
        )
        box.execute(*box.under.refuse(box.options.table, "kafka_topic = 'outbox.event.refused'"))
        hand = box.lead()
        intakes = IntakeConformance.take_in(box, hand)
        assert hand.values() == ["v1", *(f"v{number}" for number in range(3, 10))]
        IntakeConformance.add(box, 10, 12)
        assert _moved(intakes, hand, 3) == ["v10", "v11", "v12"]

    @needs(Capability.INTAKE)
    @pytest.mark.parametrize("text", ["", " a ", "it's 5 % of {x}: :y ?", "žluťoučký 🐎", '{"a": [1, null]}'])
    def test_a_value_arrives_as_it_was_written(self, filled: Box, text: str) -> None:
        table = filled.options.intake.table
        written = text.replace("'", "''")
        filled.execute(
            f"UPDATE {table} SET payload = '{written}' WHERE id = 1", f"DELETE FROM {table} WHERE id > 1"
        )
        hand = filled.lead()
        IntakeConformance.take_in(filled, hand)
        [record] = hand.mark()
        assert record.value == text


def _lose_a_reply(box: Box, monkeypatch: pytest.MonkeyPatch, *, committed: bool) -> None:
    """Has the reply of the first transaction be lost that moves rows."""
    connected = box.dialect.connect_intakes()
    connected.session.close()
    kind, replies = type(connected.session), ["the first"]
    original = kind.transaction

    def lose(doing: str, when: bool) -> None:
        if when == committed and replies and doing.startswith("take in"):
            replies.clear()
            raise DriverError("the reply is lost", retryable=True)

    @contextmanager
    def transaction(self: Any, doing: str, *, reads: bool = False) -> Iterator[None]:
        with original(self, doing, reads=reads):
            yield
            lose(doing, when=False)
        lose(doing, when=True)

    monkeypatch.setattr(kind, "transaction", transaction)


def _moved(intakes: Intakes, hand: Hand, rows: int) -> list[str]:
    """Moves rows until so many more are in the outbox; returns the values of them all, in order."""
    found, deadline = list[str](), monotonic() + _SECONDS
    while len(found) < rows:
        intakes.take(hand.fence.token, _LIMIT)
        found += hand.values()
        assert monotonic() < deadline, (found, intakes.states())
        sleep(0.02)
    return found
