"""What statements read, by the server's own account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outbox_api import UNBOUNDED, Batch
from outbox_postgres.batches import _from, _runs
from outbox_postgres.marking import Wanted
from outbox_postgres.sources import Source
from outbox_postgres.table import PostgresTable

from .outbox_hands import MARK, RUNS, SELECT, BatchHand, Hand, ask, prepare


def plan(hand: Hand, limit: int = 100, max_bytes: int = UNBOUNDED, source: int = 0) -> dict[str, Any]:
    """The plan of a mark as it was carried out; the mark is taken back."""
    table = hand.table
    start = table._starts.next((hand.fence.lane, hand.fence.lanes, hand.leader), source=source)
    wanted = Wanted(limit, max_bytes, source=source)
    parameters = table._marks.claim(hand.fence, hand.leader, wanted, start)
    statement = table._marks.sql.mark(source, lane=hand.fence.lanes > 1, bounded=max_bytes < UNBOUNDED)
    return carried_out(table, statement, parameters, MARK + _types(table._marks._sources[source]))


def carried_out(
    table: PostgresTable, statement: str, parameters: tuple[object, ...], types: str = MARK
) -> dict[str, Any]:
    connection = table._connection
    with connection.transaction(force_rollback=True):
        # As a prepared statement it is planned for any parameters.
        execute = prepare(connection, statement, parameters, types)
        found = ask(connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {execute}")
        connection.execute("DEALLOCATE plan")
    return dict(found[0]["Plan"])


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(node for child in tree.get("Plans", ()) for node in nodes(child))]


def search(tree: dict[str, Any]) -> dict[str, Any]:
    """The node that looks for rows to mark."""
    (found,) = [node for node in nodes(tree) if "leader_id IS NULL" in node.get("Filter", "")]
    return found


def selection(
    lane: BatchHand,
    finished: Sequence[Batch] = (),
    *,
    limit: int = 100,
    max_bytes: int = UNBOUNDED,
    source: int = 0,
) -> dict[str, Any]:
    """The plan of an advance as it was carried out; the deletion is taken back."""
    batches, starts = lane.table._batches, lane.table._starts
    start = starts.next(lane.fence, finished, source=source)
    firsts, lasts = _from(finished, start)
    parameters = (
        *batches._layout.held(lane.fence),
        *(firsts, limit, start, starts.basis, lasts, max_bytes, [], []),
        *batches._sources[source].parameters,
        *(_runs(finished) if finished else ()),
    )
    make = batches.sql.advance if finished else batches.sql.select
    statement = make(source, lane=lane.fence.lanes > 1, bounded=max_bytes < UNBOUNDED)
    types = SELECT + _types(batches._sources[source]) + (RUNS if finished else "")
    return carried_out(lane.table, statement, parameters, types)


def _types(source: Source) -> str:
    # The server takes them from the columns.
    return ", unknown" * len(source.parameters)


def scans(tree: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    """How the outbox was read: the index, its condition, and how many rows were found and passed over."""
    return [
        (
            node.get("Index Name", node["Node Type"]),
            node.get("Index Cond", ""),
            node["Actual Rows"] * node["Actual Loops"],
            node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0),
        )
        for node in nodes(tree)
        if node.get("Relation Name") == "outbox" and node["Node Type"] != "ModifyTable"
        if node["Actual Loops"]
    ]
