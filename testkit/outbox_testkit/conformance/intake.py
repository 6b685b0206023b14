"""The intake: rows of a table with another layout are harvested as if they had been stashed."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import pytest
from outbox_api import Capability, DriverError, Intake, Intakes, LeadershipLost
from outbox_api.portable import moving

from outbox_testkit.conformance.base import Conformance, needs
from outbox_testkit.conformance.under_test import ALL, Box, Hand, content, texts

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
        self.take_in(taking, hand)
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
    @pytest.mark.parametrize("there", ["kafka_partition", "kafka_timestamp", ""])
    def test_a_column_for_partition_or_time_that_is_missing_is_added_as_the_refusal_says(
        self, bare: Box, stack: ExitStack, there: str
    ) -> None:
        bare.dialect.create()
        if there:
            bare.execute(f"ALTER TABLE {bare.options.table} ADD {there} DECIMAL(19)")
        box = self.make(bare, stack)
        self.add(box, 1, 3)
        hand = box.lead()
        with pytest.raises(DriverError, match="ALTER TABLE") as caught:
            self.take_in(box, hand)
        assert str(caught.value).count("ADD ") == 1 + (not there)
        _, altering, statements = str(caught.value).partition("ALTER TABLE")
        box.execute(*f"{altering}{statements}".split("; "))
        hand = box.lead()
        self.take_in(box, hand)
        assert {(each.partition, each.timestamp_ms) for each in hand.mark()} == {(0, 1000), (1, 1000)}

    @needs(Capability.INTAKE)
    @pytest.mark.parametrize("column", ["kafka_partition", "kafka_timestamp"])
    def test_a_column_that_is_not_needed_may_be_missing(
        self, bare: Box, stack: ExitStack, column: str
    ) -> None:
        bare.dialect.create()
        bare.execute(f"ALTER TABLE {bare.options.table} ADD {column} DECIMAL(19)")
        told = {"partition": "part"} if column == "kafka_partition" else {"timestamp": "sent"}
        box = self.make(bare, stack, **{"partition": "", "timestamp": "", **told})
        self.add(box, 1, 3)
        hand = box.lead()
        self.take_in(box, hand)
        found = {(each.partition, each.timestamp_ms) for each in hand.mark()}
        assert found == ({(0, None), (1, None)} if column == "kafka_partition" else {(None, 1000)})

    @needs(Capability.INTAKE)
    def test_a_batch_has_partition_and_timestamp(self, taking: Box) -> None:
        self.add(taking, 1, 10)
        hand = taking.lead()
        self.take_in(taking, hand)
        records = hand.advance(6)
        assert content(hand.table.rows(hand.last())) == content(records)
        assert [record.timestamp_ms for record in records] == [1000] * 6

    @needs(Capability.INTAKE)
    def test_a_former_leader_takes_nothing_in(self, taking: Box) -> None:
        former = taking.lead()
        current = taking.lead()
        self.add(taking, 1, 5)
        with pytest.raises(LeadershipLost):
            self.take_in(taking, former)
        assert current.values() == []
        self.take_in(taking, current)
        assert current.values() == [f"v{number}" for number in range(1, 6)]

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
        hand = taking.lead()
        self.take_in(taking, hand)
        records = hand.mark()
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
        self.take_in(box, hand)
        # Whether they are moved, as they have versions, or left: each is in one of both tables.
        assert box.connect().backlog().records == 10

    @needs(Capability.SKIP_LOCKED)
    def test_a_locked_row_holds_back_its_key_alone(self, taking: Box) -> None:
        self.add(taking, 1, 9)
        blocker = taking.application()
        blocker.cursor().execute(f"SELECT id FROM {taking.options.intake.table} WHERE id = 2 FOR UPDATE")
        hand = taking.lead()
        intakes = self.take_in(taking, hand)
        assert hand.values() == ["v1", "v3", "v4", "v6", "v7", "v9"]
        [state] = intakes.states()
        assert (state.moved, state.held) == (6, 1)
        assert state.reason.startswith("row 2: another transaction has locked it")
        blocker.rollback()
        self.until_moved(intakes, hand, 9)
        assert hand.values() == ["v2", "v5", "v8"]
        assert intakes.states()[0].held == 0

    @needs(Capability.INTAKE)
    def test_a_row_that_the_outbox_refuses_holds_back_its_key_alone(self, taking: Box) -> None:
        self.add(taking, 1, 9)
        taking.execute(f"UPDATE {taking.options.intake.table} SET aggregatetype = 'refused' WHERE id = 5")
        taking.execute(*taking.under.refuse(taking.options.table, "kafka_topic = 'outbox.event.refused'"))
        hand = taking.lead()
        intakes = self.take_in(taking, hand)
        assert hand.values() == ["v1", "v2", "v3", "v4", "v6", "v7", "v9"]
        [state] = intakes.states()
        assert (state.moved, state.held) == (7, 1)
        assert state.reason.startswith("row 5: the outbox refuses it: ")

    @needs(Capability.INTAKE)
    def test_a_row_that_is_too_large_is_not_read_and_holds_back_its_key_alone(self, taking: Box) -> None:
        self.add(taking, 1, 9)
        taking.execute(f"UPDATE {taking.options.intake.table} SET payload = '{'x' * 900}' WHERE id = 4")
        hand = taking.lead()
        intakes = self.take_in(taking, hand, max_bytes=800)
        assert hand.values() == ["v1", "v2", "v3", "v5", "v6", "v8", "v9"]
        assert "limits.maxLaneBytes" in intakes.states()[0].reason

    @needs(Capability.INTAKE)
    def test_what_one_transaction_moves_is_bounded_by_bytes(
        self, taking: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.add(taking, 1, 9)
        taking.execute(f"UPDATE {taking.options.intake.table} SET payload = '{'x' * 900}' WHERE id > 3")
        monkeypatch.setattr(moving, "PORTION_BYTES", 2000)
        hand, intakes = taking.lead(), taking.dialect.intakes()
        seen = []
        with closing(intakes):
            while intakes.take(hand.fence.token, ALL):
                seen.append(len(hand.mark()))
        assert seen == [5, 2, 2]

    @needs(Capability.INTAKE)
    def test_only_rows_that_meet_the_condition_are_taken_in(self, bare: Box, stack: ExitStack) -> None:
        box = self.make(bare, stack, where={"part": "1", "aggregatetype": ["order", None]})
        self.add(box, 1, 6)
        hand = box.lead()
        assert hand.table.backlog().records == 3
        self.take_in(box, hand)
        assert hand.values() == ["v1", "v3", "v5"]
        assert hand.table.backlog().records == 3
        assert self.left(box) == [2, 4, 6]

    @needs(Capability.INTAKE)
    def test_rows_can_be_marked_as_done_instead_of_deleted(self, bare: Box, stack: ExitStack) -> None:
        box = self.make(bare, stack, timestamp="", where={"part": ["0", "1"]}, done={"sent": "1"})
        self.add(box, 1, 6)
        box.execute(f"UPDATE {box.options.intake.table} SET sent = NULL WHERE id < 5")
        box.execute(f"UPDATE {box.options.intake.table} SET sent = 1 WHERE id = 5")
        hand = box.lead()
        self.take_in(box, hand)
        self.take_in(box, hand)
        assert hand.values() == ["v1", "v2", "v3", "v4", "v6"]
        assert self.left(box) == [1, 2, 3, 4, 5, 6]
        assert hand.table.backlog().records == 5

    @needs(Capability.INTAKE)
    def test_a_row_that_somebody_else_marks_as_done_meanwhile_is_not_taken_in(
        self, bare: Box, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        box = self.make(bare, stack, timestamp="", done={"sent": "1"})
        self.add(box, 1, 6)
        box.execute(f"UPDATE {box.options.intake.table} SET sent = NULL")
        hand, intakes = box.lead(), box.dialect.intakes()
        monkeypatch.setattr(moving, "PORTION_BYTES", 30)
        with closing(intakes):
            assert intakes.take(hand.fence.token, ALL)
            [first] = {len(hand.mark())}
            box.execute(f"UPDATE {box.options.intake.table} SET sent = 1 WHERE id = 6")
            while intakes.take(hand.fence.token, ALL):
                pass
        assert 0 < first < 5
        assert hand.values() == [f"v{number}" for number in range(first + 1, 6)]

    @needs(Capability.INTAKE)
    def test_several_tables_are_taken_in(self, taking: Box, stack: ExitStack) -> None:
        first = taking.options.intake
        second = replace(first, table=f"{taking.options.table}_more", layout=None)
        missing = replace(first, table=f"{taking.options.table}_none")
        options = {**taking.under.options, "intake": (missing, first, second)}
        both = Box(replace(taking.under, options=options), stack)
        taking.execute(f"CREATE TABLE {second.table} ({_COLUMNS})")
        taking.execute(f"INSERT INTO {second.table} VALUES (1, 'more', 'k', 'new', 'w1', 1, 1000)")
        self.add(taking, 1, 3)
        hand, intakes = both.lead(), both.dialect.intakes()
        with closing(intakes):
            with pytest.raises(DriverError, match=missing.table):
                intakes.take(hand.fence.token, ALL)
            assert [state.moved for state in intakes.states()] == [0, 3, 1]
            assert "there is no such table" in intakes.states()[0].reason
        assert sorted(hand.values()) == ["v1", "v2", "v3", "w1"]

    @needs(Capability.INTAKE)
    def test_a_view_is_refused(self, bare: Box, stack: ExitStack) -> None:
        box = self.make(bare, stack)
        intake = box.options.intake
        box.execute(f"CREATE VIEW {intake.table}_view AS SELECT * FROM {intake.table}")
        options = {**box.under.options, "intake": replace(intake, table=f"{intake.table}_view")}
        view = Box(replace(box.under, options=options), stack)
        with closing(view.dialect.intakes()) as intakes, pytest.raises(DriverError, match="it is a view"):
            intakes.require()
        assert "it is a view" in next(
            found.message for found in view.dialect.check() if found.subject == "intake"
        )

    @staticmethod
    def take_in(box: Box, hand: Hand, max_bytes: int = ALL) -> Intakes:
        """Takes in all that can be."""
        intakes = box.dialect.intakes()
        box.keep(intakes)
        while intakes.take(hand.fence.token, max_bytes):
            pass
        return intakes

    @staticmethod
    def until_moved(intakes: Intakes, hand: Hand, rows: int) -> None:
        deadline = monotonic() + 60
        while intakes.states()[0].moved < rows:
            intakes.take(hand.fence.token, ALL)
            assert monotonic() < deadline, intakes.states()
            sleep(0.05)

    @staticmethod
    def left(box: Box) -> list[int]:
        cursor = box.application().cursor()
        cursor.execute(f"SELECT id FROM {box.options.intake.table} ORDER BY id")
        return [int(row[0]) for row in cursor.fetchall()]
