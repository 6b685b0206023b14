"""Rows of another table that these servers compare, or number, in a way of their own are taken in once."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

import pytest
from outbox_api import DriverError, Intake
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import ALL, Box


def made(under: OutboxUnderTest, stack: ExitStack, **options: Any) -> Box:
    table = f"{under.options['table']}_events"
    intake = Intake(table=table, id="id", topic="t", key="k", value="k", **options)
    return Box(OutboxUnderTest("mysql", {**under.options, "intake": intake}), stack)


@pytest.mark.parametrize(
    ("id_type", "where", "reason"),
    [("INT", {"state": "NEW"}, "never equals 'NEW'"), ("FLOAT", {}, "find no row again")],
)
def test_what_would_find_other_rows_or_none_is_refused(
    under: OutboxUnderTest, id_type: str, where: dict[str, str], reason: str
) -> None:
    with ExitStack() as stack:
        box = made(under, stack, where=where)
        columns = f"id {id_type} PRIMARY KEY, k VARCHAR(9), state INT"
        box.execute(f"CREATE TABLE {box.options.intake.table} ({columns})")
        box.dialect.create()
        with closing(box.dialect.intakes()) as intakes, pytest.raises(DriverError, match=reason):
            intakes.require()


@pytest.mark.parametrize(
    ("columns", "rows", "done", "moved"),
    [
        ("id BIGINT UNSIGNED PRIMARY KEY", "(18446744073709551614, 'a'), (3, 'b')", {}, ["b", "a"]),
        ("id INT PRIMARY KEY, sent BIT", "(1, 'a', 0), (2, 'b', 1)", {"sent": True}, ["a"]),
        # It never equals the text: the rows would be taken in again and again.
        ("id INT PRIMARY KEY, sent FLOAT", "(1, 'a', 0), (2, 'b', NULL)", {"sent": "0.1"}, None),
    ],
)
def test_each_row_is_taken_in_once_if_at_all(
    under: OutboxUnderTest, columns: str, rows: str, done: dict[str, str], moved: list[str] | None
) -> None:
    with ExitStack() as stack:
        box = made(under, stack, done=done)
        table = box.options.intake.table
        names = [column.split()[0] for column in columns.split(", ")]
        names.insert(1, "k")
        box.execute(f"CREATE TABLE {table} ({columns}, k VARCHAR(9))")
        box.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES {rows}")
        box.dialect.create()
        hand, intakes = box.lead(), box.dialect.intakes()
        box.keep(intakes)
        for _ in range(4):
            intakes.take(hand.fence.token, ALL)
        [state] = intakes.states()
        found = hand.values()
        assert len(found) == state.moved == len({*found})
        assert found == moved or (moved is None and len(found) + state.held == 2)


@pytest.mark.parametrize("name", ["key_text", "row_size"])
def test_a_column_that_is_called_like_something_of_ours_orders_rows(
    under: OutboxUnderTest, name: str
) -> None:
    with ExitStack() as stack:
        box = made(under, stack, order=name)
        table = box.options.intake.table
        box.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {name} INT, k VARCHAR(9))")
        box.execute(f"INSERT INTO {table} VALUES (1, 30, 'a'), (2, 9, 'bbb'), (3, 20, 'cc')")
        box.dialect.create()
        hand, intakes = box.lead(), box.dialect.intakes()
        box.keep(intakes)
        intakes.take(hand.fence.token, ALL)
        assert hand.values() == ["bbb", "cc", "a"]


def test_a_moment_that_changes_with_its_row_is_a_doubtful_order(under: OutboxUnderTest) -> None:
    with ExitStack() as stack:
        box = made(under, stack, order="at")
        at = "at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)"
        box.execute(f"CREATE TABLE {box.options.intake.table} (id INT PRIMARY KEY, k VARCHAR(9), {at})")
        box.dialect.create()
        found = [each.message for each in box.dialect.check() if each.subject == "intake"]
        assert "a row that is updated comes behind those" in found[0]
