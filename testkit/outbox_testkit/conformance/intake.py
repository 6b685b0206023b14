"""The intake: rows of a table of another layout are harvested as if they had been stashed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest
from outbox_sdk import Capability, Intake, LeadershipLost

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, texts

_COLUMNS = (
    "id INTEGER NOT NULL PRIMARY KEY, aggregatetype VARCHAR(100), aggregateid VARCHAR(100),"
    " type VARCHAR(100), payload VARCHAR(1000), part INTEGER, sent INTEGER"
)


class IntakeConformance(Conformance):
    """Taking rows in from a table with the columns of Debezium's outbox event router."""

    @pytest.fixture
    def taking(self, bare: Box, stack: ExitStack) -> Box:
        """An outbox that takes in."""
        source = f"{bare.options.table}_events"
        intake = Intake(
            table=source, layout="debezium", headers={"kind": "type"}, partition="part", timestamp="sent"
        )
        box = Box(replace(bare.under, options={**bare.under.options, "intake": intake}), stack)
        connection = box.application()
        connection.cursor().execute(f"CREATE TABLE {source} ({_COLUMNS})")
        connection.commit()
        box.dialect.create()
        return box

    @staticmethod
    def add(box: Box, first: int, last: int) -> None:
        """Writes events of three keys into the other table, in one transaction."""
        connection = box.application()
        cursor = connection.cursor()
        for number in range(first, last + 1):
            cursor.execute(
                f"INSERT INTO {box.options.intake.table} VALUES"
                f" ({number}, 'order', 'k{number % 3}', 'new', 'v{number}', {number % 2}, 1000)"
            )
        connection.commit()

    @needs(Capability.INTAKE)
    def test_taken_rows_are_marked_in_their_order_and_leave_their_table(self, taking: Box) -> None:
        self.add(taking, 1, 30)
        hand = taking.lead()
        assert hand.table.backlog().records == 30
        records = hand.mark()
        assert texts(records) == [f"v{number}" for number in range(1, 31)]
        first = records[0]
        assert (first.topic, first.key, first.partition, first.timestamp_ms) == (
            "outbox.event.order",
            "k1",
            1,
            1000,
        )
        assert list(first.headers) == [("kind", "new")]
        assert hand.purge(*[record.id for record in records]) == 30
        assert hand.table.backlog().records == 0

    @needs(Capability.INTAKE)
    def test_a_batch_takes_in(self, taking: Box) -> None:
        self.add(taking, 1, 10)
        hand = taking.lead()
        batch, values = hand.batch(limit=6)
        following, later = hand.batch(limit=6, pending=[batch])
        assert values + later == [f"v{number}" for number in range(1, 11)]
        hand.advance(finished=[batch, following])
        assert hand.purged == 10

    @needs(Capability.INTAKE)
    def test_a_former_leader_takes_nothing_in(self, taking: Box) -> None:
        former = taking.lead()
        current = taking.lead()
        self.add(taking, 1, 5)
        with pytest.raises(LeadershipLost):
            former.mark()
        assert current.values() == [f"v{number}" for number in range(1, 6)]

    @needs(Capability.INTAKE)
    def test_the_first_lane_takes_in_for_all(self, taking: Box) -> None:
        self.add(taking, 1, 60)
        hands = taking.lead_all(3)
        assert hands[1].mark(ALL) == hands[2].mark(ALL) == []
        values = [value for hand in hands for value in hand.values(ALL)]
        assert sorted(values) == sorted(f"v{number}" for number in range(1, 61))

    @needs(Capability.INTAKE)
    def test_a_row_that_cannot_be_mapped_keeps_its_key_and_says_why(self, taking: Box) -> None:
        connection = taking.application()
        connection.cursor().execute(
            f"INSERT INTO {taking.options.intake.table} VALUES (1, NULL, 'k', 'new', 'v1', NULL, NULL)"
        )
        connection.commit()
        [record] = taking.lead().mark()
        assert (record.key, record.value) == ("k", "v1")
        assert "column 'aggregatetype' is null" in (record.fault or "")
