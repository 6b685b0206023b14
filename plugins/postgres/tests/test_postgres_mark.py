"""Mark, purge and reset, one lane alone."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import ColumnIs

from .outbox_hands import BESIDE, MakeOutbox, Outbox, ask


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((["a", "b"], ["1"]), "2 header names and 1 header values"),
        ((["a"], []), "1 header names and 0 header values"),
        (([], ["1"]), "0 header names and 1 header values"),
        (([None], ["1"]), "name is null"),
        ((["a", None], ["1", "2"]), "name is null"),
        (([["a"]], [["1"]]), "several dimensions"),
        ((["a"], [["1"]]), "several dimensions"),
        (([["a"]], ["1"]), "several dimensions"),
    ],
)
def test_a_row_that_makes_no_message_has_a_fault_and_holds_up_no_other(
    outbox: Outbox, headers: tuple[list[Any], list[Any]], reason: str
) -> None:
    outbox.write(headers=(["x"], ["y"]))
    bad = outbox.write("bad", headers=headers)
    outbox.write()
    records = outbox.lead().mark()
    assert [record.fault is None for record in records] == [True, False, True]
    assert (records[1].id, records[1].key) == (bad, "bad")
    assert reason in (records[1].fault or "")


def test_nulls_where_a_table_allows_them_are_faults(outbox: Outbox) -> None:
    for column in ("kafka_topic", "kafka_key", "kafka_header_keys", "kafka_header_values"):
        outbox.admin.execute(f"ALTER TABLE outbox ALTER COLUMN {column} DROP NOT NULL")
    outbox.admin.execute("INSERT INTO outbox (kafka_key) VALUES ('no topic')")
    outbox.admin.execute("INSERT INTO outbox (kafka_topic) VALUES ('no key')")
    outbox.admin.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_header_keys, kafka_header_values) "
        "VALUES ('t', 'k', NULL, NULL)"
    )
    table = outbox.connect()
    token = table.bump(2, "test")
    marked = [record for lane in (0, 1) for record in table.mark(table.enter(lane, 2, token), uuid4(), 9)]
    faults = {record.id: record.fault for record in marked}
    assert "topic is null" in (faults[1] or "")
    assert "key is null" in (faults[2] or "")
    assert faults[3] is None


def test_a_goharvest_table_works_untouched(make_outbox: MakeOutbox) -> None:
    box = make_outbox(table="goharvest")
    box.admin.execute(
        "CREATE TABLE goharvest (id BIGSERIAL PRIMARY KEY, create_time TIMESTAMP WITH TIME ZONE NOT NULL, "
        "kafka_topic VARCHAR(249) NOT NULL, kafka_key VARCHAR(100) NOT NULL, kafka_value VARCHAR(10000), "
        "kafka_header_keys TEXT[] NOT NULL, kafka_header_values TEXT[] NOT NULL, leader_id UUID)"
    )
    definition = (
        "SELECT array_agg((attname, atttypid, atttypmod, attnotnull)::text ORDER BY attnum) FROM pg_attribute"
        " WHERE attrelid = 'goharvest'::regclass"
    )
    before = ask(box.admin, definition)
    assert box.dialect.create() == BESIDE
    box.write("k" * 100, "v" * 10_000, (["a"], ["b"]))
    hand = box.lead()
    (record,) = hand.mark()
    assert (record.key, record.value, list(record.headers)) == ("k" * 100, "v" * 10_000, [("a", "b")])
    assert hand.purge(record.id) == 1
    assert ask(box.admin, definition) == before


def test_names_that_need_quotes_and_schemas(make_outbox: MakeOutbox, outbox: Outbox) -> None:
    outbox.admin.execute('CREATE SCHEMA "My Shop"')
    box = make_outbox(table='"My Shop"."Out""box; --"')
    assert box.dialect.create() == ['My Shop.Out"box; --', *(f"My Shop.{name}" for name in BESIDE)]
    box.write()
    hand = box.lead()
    assert len(hand.mark()) == 1
    assert outbox.connect().lane_statuses() == [], "the fence is the other schema's own"


@pytest.mark.usefixtures("outbox")
def test_unquoted_names_fold_to_lower_case(make_outbox: MakeOutbox) -> None:
    assert make_outbox(table="Public.OUTBOX").dialect.create() == []


def test_the_only_eligible_rows_are_marked(outbox: Outbox) -> None:
    outbox.admin.execute("ALTER TABLE outbox ADD COLUMN cluster TEXT, ADD COLUMN zone INT")
    outbox.fill(4)
    outbox.admin.execute("UPDATE outbox SET cluster = 'eu' WHERE id = 2")
    outbox.admin.execute("UPDATE outbox SET zone = 7 WHERE id = 3")
    hand = outbox.lead(eligible=[ColumnIs("cluster", "eu"), ColumnIs("zone", 7)])
    assert [hand.ids(source=source) for source in range(2)] == [[2], [3]]
    outbox.admin.execute("UPDATE outbox SET cluster = 'eu' WHERE id = 1")
    assert [hand.ids(source=source) for source in range(2)] == [[1], []]


def test_marks_commit_asynchronously_and_purges_do_not(outbox: Outbox) -> None:
    outbox.fill(20)
    hand = outbox.lead()
    seen = "SELECT current_setting('synchronous_commit')"
    assert hand.table._connection.execute(seen).fetchone() == ("on",)
    outbox.admin.execute(
        "CREATE TABLE seen (what text, how text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
        "INSERT INTO seen VALUES (TG_OP, current_setting('synchronous_commit')); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER note AFTER UPDATE OR DELETE ON outbox "
        # Deferred, so that it runs as the transaction commits.
        "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
    )
    ids = [record.id for record in hand.mark(2)]
    hand.purge(ids[0])
    assert outbox.admin.execute("SELECT what, how FROM seen ORDER BY ctid").fetchall() == [
        ("UPDATE", "off"),
        ("UPDATE", "off"),
        ("DELETE", "on"),
    ]
    hand.reset(ids[1])
    assert outbox.admin.execute("SELECT how FROM seen ORDER BY ctid DESC LIMIT 1").fetchone() == ("on",)


def test_purges_are_durable_even_where_the_server_is_not(outbox: Outbox) -> None:
    outbox.set_default("synchronous_commit", "off")
    connection = outbox.connect()._connection
    assert connection.execute("SELECT current_setting('synchronous_commit')").fetchone() == ("on",)


def test_rows_tell_when_they_were_created_all_of_a_few_and_a_sample_of_many(outbox: Outbox) -> None:
    outbox.fill(100)
    outbox.admin.execute("UPDATE outbox SET create_time = '2026-01-02 03:04:05.5+00' WHERE id = 1")
    hand = outbox.lead()
    few = hand.mark()
    assert few[0].created == datetime(2026, 1, 2, 3, 4, 5, 500_000, UTC).timestamp()
    assert all(abs((record.created or 0.0) - time.time()) < 3600 for record in few[1:])
    outbox.fill(300)
    many = hand.mark(1000)
    assert len(many) == 300
    assert [record.id for record in many if record.created is not None] == [128, 192, 256, 320, 384]
