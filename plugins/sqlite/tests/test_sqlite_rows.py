"""What SQLite lets anybody write into a column stops no record but its own."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import pytest
from outbox_api import UNBOUNDED, Batch, MarkedRecord, Record, Stasher
from outbox_api.portable.keeping import Keep
from outbox_api.portable.rows import records
from outbox_api.seams.kept import Chosen
from outbox_sqlite.dialect import SqliteDialect, SqliteOptions
from outbox_sqlite.idiom import Garbled, SqliteIdiom
from outbox_testkit.conformance import OutboxUnderTest
from outbox_testkit.conformance.under_test import Box, Hand, plain


def marked(hand: Hand, bound: int, *excluded: str) -> list[MarkedRecord]:
    return hand.table.mark(hand.fence, hand.leader, 1000, bound, excluded)


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("kafka_key", b"a", None),
        ("kafka_key", b"\xff", "the row's key is not UTF-8"),
        ("kafka_key", Garbled(b"\xff"), "the row's key is not UTF-8"),
        ("kafka_topic", Garbled(b"\xff"), "the row's topic is not UTF-8"),
        ("kafka_value", Garbled(b"\xff"), "the row's value is a text that is not UTF-8"),
        ("kafka_value", 5, "neither text nor bytes but int"),
        ("kafka_value", 0.5, "neither text nor bytes but float"),
        ("kafka_value", b"\xff", None),
        ("create_time", "yesterday", None),
        ("kafka_header_keys", "[" * 100_000, "the row's headers are not JSON"),
        ("kafka_header_keys", '["\\ud800"]', "surrogates not allowed"),
        ("kafka_header_values", '["a\\udfff"]', "surrogates not allowed"),
        ("kafka_header_keys", b'["name"]', "1 header names and 0 header values"),
    ],
)
def test_an_odd_row_stops_no_other(tmp_path: Path, column: str, value: object, fault: str | None) -> None:
    with ExitStack() as stack:
        options = {"data_source": str(tmp_path / "shop.db"), "value_type": "bytes"}
        box = Box(OutboxUnderTest("sqlite", options), stack)
        box.dialect.create()
        box.stash(plain("a", "1"), plain("b", "2"))
        wanted = "CAST(? AS TEXT)" if isinstance(value, Garbled) else "?"
        with closing(sqlite3.connect(box.options.data_source)) as connection, connection:
            connection.execute(f"UPDATE outbox SET {column} = {wanted} WHERE id = 1", (value,))
        hands = box.lead_all(2)
        for bound in (UNBOUNDED, 10_000_000):
            found = [(hand, record) for hand in hands for record in marked(hand, bound)]
            found.sort(key=lambda each: each[1].id)
            (hand, odd), (_, sound) = found
            assert (odd.id, sound.id) == (1, 2)
            assert (fault or "") in (odd.fault or "")
            assert bool(fault) == bool(odd.fault)
            assert (sound.key, sound.value, sound.fault) == ("b", "2", None)
            for each in hands:
                each.remark()
                assert 1 not in [record.id for record in marked(each, bound, odd.key)]
                each.remark()
        hand.leader = uuid4()
        assert 1 in hand.ids()
        assert hand.park([1], 1) == 1
        assert box.survey() == ["2"]
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


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 2**63, 1.5, "soon", b"\xff"])
def test_an_odd_partition_or_timestamp_is_a_fault_of_its_row(odd: object) -> None:
    rows = [
        (1, "t", "k", "v", None, None, None, *extras) for extras in ((odd, 5), (3, odd), (2.0, 2**63 - 1))
    ]
    *faulty, sound = records(rows, SqliteIdiom(), 0.0)
    partition, timestamp = (row.fault or "" for row in faulty)
    assert partition.startswith("the partition is ")
    assert timestamp.startswith("the timestamp is ")
    assert (sound.fault, sound.partition, sound.timestamp_ms) == (None, 2, 2**63 - 1)


def test_a_savepoint_that_comes_first_commits_order_and_record(
    tmp_path: Path,
) -> None:
    SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db"))).create()
    stasher, counts = Stasher(dialect="sqlite"), "SELECT (SELECT count(*) FROM orders), count(*) FROM outbox"
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        for number, outermost in enumerate((True, False), 1):
            if not outermost:
                connection.execute("BEGIN")
            connection.execute("SAVEPOINT a")
            connection.execute("INSERT INTO orders VALUES (1)")
            stasher.stash(connection, Record("orders", "k", "v"))
            connection.execute("RELEASE a")  # commits the outermost
            connection.rollback()
            assert connection.execute(counts).fetchone() == (1, 1), number


@pytest.mark.parametrize("odd", [b"\xff", Garbled(b"\xff\xfe"), "never", "", 12345, 9e18, "9" * 100_000])
def test_rows_with_odd_times_are_deleted_with_their_batch(tmp_path: Path, odd: object) -> None:
    with ExitStack() as stack:
        box = Box(OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")}), stack)
        box.dialect.create()
        values = box.fill(3)
        wanted = "CAST(? AS TEXT)" if isinstance(odd, Garbled) else "?"
        with closing(sqlite3.connect(box.options.data_source)) as connection, connection:
            connection.execute(f"UPDATE outbox SET create_time = {wanted} WHERE id = 2", (odd,))
        hand = box.lead()
        selected = hand.advance()
        assert [record.value for record in selected] == values
        batch = Batch.of([record.id for record in selected], hand.advanced.newest)
        assert len(batch.newest) < 100
        assert [record.id for record in hand.table.rows(batch)] == [1, 2, 3]
        hand.advance(finished=[batch])
        assert box.survey() == []


@pytest.mark.parametrize("key", ["k" * 64, "k" * 65, "é" * 32, "é" * 33, "k\0" * 40, "#" * 60_000])
def test_a_long_key_is_one_key_however_it_is_written(tmp_path: Path, key: str) -> None:
    with ExitStack() as stack:
        box = Box(OutboxUnderTest("sqlite", {"data_source": str(tmp_path / "shop.db")}), stack)
        box.dialect.create()
        box.stash(plain(key, "1"), plain(f"{key}2", "2"), plain(key, "3"), plain("b", "4"))
        with closing(sqlite3.connect(box.options.data_source)) as connection, connection:
            connection.execute("UPDATE outbox SET kafka_key = CAST(kafka_key AS BLOB) WHERE id = 3")
        lanes = [{record.key for record in marked(hand, UNBOUNDED)} for hand in box.lead_all(2)]
        assert sum(key in lane for lane in lanes) == 1, "both of its rows are in one lane"
        hand = box.lead()
        assert [record.value for record in marked(hand, UNBOUNDED, key)] == ["2", "4"]
        hand.remark()
        assert 1 in hand.ids()
        assert hand.park([1], 1) == 1
        hand.remark()
        assert [record.value for record in marked(hand, UNBOUNDED)] == ["2", "4"]


def test_of_a_long_key_little_is_compared(tmp_path: Path) -> None:
    dialect = SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db")))
    dialect.create()
    with closing(dialect.open()) as connection:
        query = f"SELECT LENGTH({dialect.idiom.comparable('?1')})"
        for key in ("k" * 60_000, "k" * 65, "k" * 64, b"\xff" * 1000):
            assert connection.execute(query, (key,)).fetchone()[0] <= 128


def test_a_topic_that_was_written_as_bytes_is_kept(tmp_path: Path) -> None:
    with ExitStack() as stack:
        keep = Keep(for_=60.0, topics=("or*",))
        options = {"data_source": str(tmp_path / "shop.db"), "keep": keep}
        box = Box(OutboxUnderTest("sqlite", options), stack)
        box.dialect.create()
        box.stash(plain("a", "1"), plain("b", "2"))
        box.execute("UPDATE outbox SET kafka_topic = CAST(kafka_topic AS BLOB) WHERE id = 1")
        hand = box.lead()
        assert hand.purge(*hand.ids()) == 2
        found = box.kept().find(Chosen(topics=["orders"]), 0, 10)
        assert [(each.record.topic, each.record.key) for each in found] == [("orders", "a"), ("orders", "b")]
