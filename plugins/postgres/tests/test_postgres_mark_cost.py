"""What marks and advances read, by the server's own account: parked keys once, settled rows not at all."""

from __future__ import annotations

import psycopg
import pytest
from outbox_api import UNBOUNDED, Batch
from outbox_postgres.batches import _runs

from .outbox_hands import BatchHand, Hand, Outbox, ask
from .plans import carried_out, nodes, plan, scans, search, selection


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("parked", [0, 1000])
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_mark_reads_the_parked_keys_once_whatever_their_number(
    outbox: Outbox, lanes: int, parked: int, analyzed: bool
) -> None:
    outbox.fill(5000, keys=2500)
    outbox.admin.execute(
        "INSERT INTO outbox_dead_letters (name, id, kafka_key, status, reason, attempts, since) "
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
@pytest.mark.parametrize("bounded", [False, True])
def test_an_advance_reads_the_batches_it_deletes_and_the_rows_it_selects(
    outbox: Outbox, lane: BatchHand, analyzed: bool, bounded: bool
) -> None:
    outbox.fill(5000, keys=2500)
    batches: list[Batch] = []
    for _ in range(2):
        batches.append(lane.batch(100, pending=batches)[0])
    if analyzed:
        outbox.admin.execute("ANALYZE outbox")
    found = scans(selection(lane, batches, max_bytes=10**6 if bounded else UNBOUNDED))
    assert {index for index, *_ in found} == {"outbox_pkey"}
    assert all(condition.startswith("((id >= ") or " >= " in condition for _, condition, *_ in found)
    assert sorted(rows for *_, rows, _ in found) == [100, 100, 200]
    assert sum(passed for *_, passed in found) == 0


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_batch_with_gaps_is_deleted_and_read_by_its_ids(outbox: Outbox, analyzed: bool) -> None:
    outbox.fill(5000, keys=2500)
    lane, _ = outbox.lead_batches(2)
    batch, _ = lane.batch(200)
    assert len(batch.runs) > 50
    if analyzed:
        outbox.admin.execute("ANALYZE outbox")
    sql = lane.table._batches.sql
    held, runs = lane.table._batches._layout.held(lane.fence), _runs([batch])
    deletions = [(sql.finish, (*held, *runs)), (sql.finish_free, (*held, *runs))]
    for statement, parameters in [*deletions, (sql.left, runs), (sql.rows, runs)]:
        types = "text, int, int, bigint, bigint, " * (parameters != runs) + "bigint[], bigint[], text[]"
        found = scans(carried_out(lane.table, statement, parameters, types))
        assert {index for index, *_ in found} == {"outbox_pkey"}
        # The server tells how many rows it found for a run, on average and rounded.
        assert all(rows < 400 for *_, rows, _ in found), found
        assert sum(passed for *_, passed in found) == 0


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_selection_reads_the_parked_keys_whatever_their_number_and_no_row_twice_over(
    outbox: Outbox, lanes: int, analyzed: bool
) -> None:
    outbox.fill(5000, keys=5000)
    outbox.admin.execute(
        "INSERT INTO outbox_dead_letters (name, id, kafka_key, status, reason, attempts, since) "
        "SELECT 'public.outbox', i, 'k' || i, 'parked', '', 1, now() FROM generate_series(1, 2000) AS i"
    )
    if analyzed:
        outbox.admin.execute("ANALYZE outbox; ANALYZE outbox_dead_letters")
    lane = outbox.lead_batches(lanes)[0]
    lane.batch(100)
    tree = selection(lane)
    found = scans(tree)
    assert [index for index, *_ in found] == ["outbox_pkey"] * 2
    assert [rows for *_, rows, _ in found] == [100] * 2
    letters = [node for node in nodes(tree) if node.get("Relation Name") == "outbox_dead_letters"]
    assert {node["Index Name"] for node in letters} == {"outbox_dead_letters_parked"}
    assert [(node["Actual Loops"], node["Actual Rows"]) for node in letters] == [(1, 2000)] * 2


@pytest.mark.usefixtures("eager")
def test_selections_do_not_pass_deleted_rows_that_a_snapshot_holds(outbox: Outbox, lane: BatchHand) -> None:
    reader = outbox.session()
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    reader.execute("SELECT count(*) FROM outbox")
    outbox.fill(10_000)
    costs: list[int] = []
    finished: list[Batch] = []
    for _ in range(90):
        finished = [lane.batch(100, finished)[0]]
        costs.append(selection(lane, finished)["Shared Hit Blocks"])
    assert max(costs[1:]) < 1.5 * min(costs)


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
    assert ask(outbox.dead_letters()._session.connection, "SHOW enable_seqscan") == "on"
    assert ask(outbox.connect()._connection, "SHOW enable_seqscan") == "off"
