"""What marks and advances read, by the server's own account: parked keys once, settled rows not at all."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from outbox_postgres.marking import Wanted
from outbox_postgres.table import PostgresTable
from outbox_sdk import UNBOUNDED

from .outbox_hands import BatchHand, Hand, Outbox, ask, prepare


def plan(hand: Hand, limit: int = 100, max_bytes: int = UNBOUNDED) -> dict[str, Any]:
    """The plan of a mark as it was carried out; the mark is taken back."""
    table = hand.table
    assert table._marks.settled
    start = table._marks.settled.begin((hand.fence.lane, hand.fence.lanes, hand.leader))
    parameters = table._marks.claim(hand.fence, hand.leader, Wanted(limit, max_bytes), start)
    statement = table._marks.sql.mark(lane=hand.fence.lanes > 1, bounded=max_bytes < UNBOUNDED)
    return carried_out(table, statement, parameters)


def carried_out(
    table: PostgresTable, statement: str, parameters: tuple[object, ...], more_types: str = ""
) -> dict[str, Any]:
    connection = table._connection
    with connection.transaction(force_rollback=True):
        # As a prepared statement it is planned for any parameters.
        execute = prepare(connection, statement, parameters, more_types)
        found = ask(connection, f"EXPLAIN (ANALYZE, FORMAT JSON) {execute}")
        connection.execute("DEALLOCATE plan")
    return dict(found[0]["Plan"])


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(node for child in tree.get("Plans", ()) for node in nodes(child))]


def search(tree: dict[str, Any]) -> dict[str, Any]:
    """The node that looks for rows to mark."""
    (found,) = [node for node in nodes(tree) if "leader_id IS NULL" in node.get("Filter", "")]
    return found


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("parked", [0, 1000])
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_mark_reads_the_parked_keys_once_whatever_their_number(
    outbox: Outbox, lanes: int, parked: int, analyzed: bool
) -> None:
    outbox.fill(5000, keys=2500)
    outbox.admin.execute(
        "INSERT INTO outbox_dead_letters (name, id, kafka_key, fate, reason, attempts, since) "
        "SELECT 'public.outbox', i, 'k' || i, CASE WHEN i <= %s THEN 'parked' ELSE 'skipped' END, '', 1, "
        "now() FROM generate_series(1, 5000) AS i",
        (parked,),
    )
    if analyzed:
        outbox.admin.execute("ANALYZE outbox; ANALYZE outbox_dead_letters")
    tree = plan(outbox.lead(lanes=lanes))
    found = search(tree)
    assert found["Index Cond"].startswith("(id >= ")
    assert "hashed SubPlan" in found["Filter"]
    (letters,) = [node for node in nodes(tree) if node.get("Relation Name") == "outbox_dead_letters"]
    assert letters["Index Name"] == "outbox_dead_letters_parked"
    assert (letters["Actual Loops"], letters["Actual Rows"]) == (1, parked)


@pytest.mark.usefixtures("eager")
def test_a_long_tail_at_the_head_of_the_table_is_read_once(outbox: Outbox) -> None:
    outbox.fill(10_000, keys=1)
    outbox.fill(300, keys=1000)
    hand = outbox.lead()
    outbox.park(hand, "k0")
    for _ in range(3):
        hand.purge(*[record.id for record in hand.mark(50)])
    found = search(plan(hand))
    assert found["Actual Rows"] == 100
    assert found.get("Rows Removed by Filter", 0) <= 50


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("analyzed", [False, True])
def test_an_advance_reads_the_batches_it_deletes_and_the_rows_it_marks(
    outbox: Outbox, lane: BatchHand, analyzed: bool
) -> None:
    outbox.fill(5000, keys=2500)
    batches = [lane.batch(100)[0]]
    batches.append(lane.batch(100, pending=batches)[0])
    if analyzed:
        outbox.admin.execute("ANALYZE outbox")
    table = lane.table
    assert table._marks.settled
    names = [batch.leader_id for batch in batches]
    start = table._marks.settled.begin(lane.fence, names)
    claim = table._marks.claim(lane.fence, uuid4(), Wanted(100), start)
    purged = [value for batch in batches for value in batch]
    tree = carried_out(
        table,
        table._marks.sql.advance(2, lane=False, bounded=False),
        (*claim, names, *purged),
        ", uuid[]" + ", uuid, bigint, bigint" * 2,
    )
    scans = [node for node in nodes(tree) if node.get("Relation Name") == "outbox" and "Index Name" in node]
    assert [(node["Index Name"], node["Actual Rows"]) for node in scans] == [("outbox_pkey", 100)] * 4
    assert sum(node.get("Rows Removed by Filter", 0) for node in scans) == 0


@pytest.mark.parametrize("length", [0, 100, 1000])
def test_a_marked_row_stays_in_its_page(outbox: Outbox, hand: Hand, length: int) -> None:
    outbox.admin.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value) "
        f"SELECT 'orders', 'k' || i, repeat('x', {length}) FROM generate_series(1, 2000) AS i"
    )
    pages = "SELECT id, (ctid::text::point)[0]::int FROM outbox ORDER BY id"
    before = outbox.admin.execute(pages).fetchall()
    assert len(hand.mark(2000)) == 2000
    assert outbox.admin.execute(pages).fetchall() == before


def test_a_session_that_lists_letters_plans_as_usual(outbox: Outbox) -> None:
    assert ask(outbox.dead_letters()._connection, "SHOW enable_seqscan") == "on"
    assert ask(outbox.connect()._connection, "SHOW enable_seqscan") == "off"
