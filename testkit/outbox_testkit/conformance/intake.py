"""The intake: rows of a table with another layout are harvested as if they had been stashed."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest
from outbox_api import Capability, DriverError, Intake, LeadershipLost

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, content, texts

_COLUMNS = (
    "id INTEGER NOT NULL PRIMARY KEY, aggregatetype VARCHAR(100), aggregateid VARCHAR(100),"
    " type VARCHAR(100), payload VARCHAR(1000), part INTEGER, sent INTEGER"
)


class IntakeConformance(Conformance):
    """The intake of a table with the columns of Debezium's outbox event router."""

    @pytest.fixture
    def taking(self, bare: Box, stack: ExitStack) -> Box:
        """An outbox with an intake."""
        return self.make(bare, stack)

    @staticmethod
    def make(bare: Box, stack: ExitStack, **columns: Any) -> Box:
        """Creates an outbox with an intake, and the other table."""
        source = f"{bare.options.table}_events"
        mapping = Intake(
            table=source, layout="debezium", headers={"kind": "type"}, partition="part", timestamp="sent"
        )
        intake = replace(mapping, **columns)
        box = Box(replace(bare.under, options={**bare.under.options, "intake": intake}), stack)
        connection = box.application()
        connection.cursor().execute(f"CREATE TABLE {source} ({_COLUMNS})")
        if intake.id != mapping.id:
            connection.cursor().execute(f"CREATE INDEX told_apart ON {source} ({intake.id})")
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
        records = hand.advance(6)
        batch, values = hand.last(), texts(records)
        assert content(hand.table.rows(batch)) == content(records), "with partition and timestamp"
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
        for row in (
            "1, NULL, 'k', 'new', 'v1', NULL, NULL",
            "2, 'order', 'k', 'new', 'v2', -2, NULL",
            "3, 'order', 'k', 'new', 'v3', 0, NULL",
        ):
            connection.cursor().execute(f"INSERT INTO {taking.options.intake.table} VALUES ({row})")
        connection.commit()
        records = taking.lead().mark()
        assert [(record.key, record.value) for record in records] == [("k", f"v{n}") for n in (1, 2, 3)]
        one, two, three = (record.fault for record in records)
        assert "column 'aggregatetype' is null" in (one or "")
        assert "column 'part' holds no whole number" in (two or "")
        assert three is None

    @needs(Capability.INTAKE)
    def test_rows_that_cannot_be_told_apart_are_not_lost(self, bare: Box, stack: ExitStack) -> None:
        box = self.make(bare, stack, id="aggregateid", order="id")
        self.add(box, 1, 10)
        hand = box.lead()
        # Whether a row is mapped or refused: if it leaves one table, it is in the other.
        with suppress(DriverError):
            hand.mark(4)
        assert box.connect().backlog().records == 10
