"""What SQLite lets anybody write into a column stops no record but its own."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box, plain


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("kafka_key", b"\xff", None),
        ("kafka_value", b"\xff", None),
        ("create_time", "yesterday", None),
        ("kafka_header_keys", "[" * 100_000, "the row's headers are not JSON"),
        ("kafka_header_keys", b'["name"]', "1 header names and 0 header values"),
    ],
)
def test_an_odd_row_stops_no_other(tmp_path: Path, column: str, value: object, fault: str | None) -> None:
    with ExitStack() as stack:
        box = Box(OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")}), stack)
        box.dialect.create()
        box.stash(plain("a", "1"), plain("b", "2"))
        with sqlite3.connect(box.options.data_source) as connection:
            connection.execute(f"UPDATE outbox SET {column} = ? WHERE id = 1", (value,))
        records = sorted(record for hand in box.lead_all(2) for record in hand.mark())
        assert [record.id for record in records] == [1, 2]
        assert (fault or "") in (records[0].fault or "")
        assert bool(fault) == bool(records[0].fault)
        assert (records[1].key, records[1].value, records[1].fault) == ("b", "2", None)
        assert box.connect().backlog().records == 2


def test_a_lease_that_was_released_is_free_though_the_clock_has_gone_back(tmp_path: Path) -> None:
    with ExitStack() as stack:
        box = Box(OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")}), stack)
        box.dialect.create()
        lease = box.dialect.lease()
        stack.callback(lease.close)
        lease.take("one", 60)
        lease.release("one")
        with sqlite3.connect(box.options.data_source) as connection:
            connection.execute("UPDATE outbox_fence SET since = datetime('now', '+1 hour')")
        assert lease.take("other", 60) is not None
        assert lease.take("one", 60) is None
