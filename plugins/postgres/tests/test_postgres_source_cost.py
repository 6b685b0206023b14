"""What a mark or a selection of one cluster reads behind rows of others, by the server's own account."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from outbox_api import UNBOUNDED, ColumnIs, Origin

from .outbox_hands import MakeOutbox, Outbox
from .plans import plan, scans, search, selection

pytestmark = pytest.mark.slow

ORIGIN = Origin(column="cluster_id", own=2, known=(1, 2, 3))
ELIGIBLE = [ColumnIs("cluster_id", 2), ColumnIs("cluster_id", 3, 600.0), ColumnIs("cluster_id", 1, 1200.0)]
INDEX = "outbox_cluster_id_id"
OTHERS = 20_000
OWN = 300
LIMIT = 50


def fill(box: Outbox, cluster: int, rows: int, key: str = "'k' || i % 100") -> None:
    """Writes rows whose ids are of the cluster."""
    box.admin.execute(
        "INSERT INTO outbox (id, create_time, kafka_topic, kafka_key, kafka_value, cluster_id) "
        f"SELECT {cluster * 10**6} + i, now(), 'orders', {key}, 'v' || i, {cluster} "
        f"FROM generate_series(1, {rows}) AS i"
    )


@pytest.fixture
def box(make_outbox: MakeOutbox) -> Outbox:
    made = make_outbox(origin=ORIGIN)
    made.dialect.create()
    made.admin.execute("ALTER TABLE outbox SET (autovacuum_enabled = off)")
    return made


@pytest.fixture(params=["never", "with all", "with own only", "with others only"])
def behind(request: pytest.FixtureRequest, box: Outbox) -> Outbox:
    """An outbox with few own rows behind many of others, analyzed in several states."""

    def analyze(when: str) -> None:
        if request.param == when:
            box.admin.execute("ANALYZE outbox")

    if request.param == "with own only":
        fill(box, 2, OWN)
        analyze("with own only")
        fill(box, 1, OTHERS)
    else:
        fill(box, 1, OTHERS)
        analyze("with others only")
        fill(box, 2, OWN)
    fill(box, 3, OTHERS)
    analyze("with all")
    return box


def assert_reads_own_rows_only(tree: dict[str, Any], own: int) -> None:
    read = scans(tree)
    by_index = [each for each in read if each[0] == INDEX]
    assert by_index, read
    assert {index for index, *_ in read} <= {INDEX, "outbox_pkey"}
    # By its primary key it reads only what it has found; rows of many loops are told on average.
    assert all(rows + passed < 2 * LIMIT for index, _, rows, passed in read if index == "outbox_pkey"), read
    assert all(rows + passed <= own for _, _, rows, passed in by_index), read


@pytest.mark.parametrize("max_bytes", [UNBOUNDED, 1000, 10**6])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_mark_of_own_rows_reads_none_of_others(behind: Outbox, lanes: int, max_bytes: int) -> None:
    hand = behind.lead(lanes=lanes, eligible=ELIGIBLE)
    assert_reads_own_rows_only(plan(hand, LIMIT, max_bytes), LIMIT if lanes == 1 else OWN)


@pytest.mark.parametrize("max_bytes", [UNBOUNDED, 1000, 10**6])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_selection_of_own_rows_reads_none_of_others(behind: Outbox, lanes: int, max_bytes: int) -> None:
    lane = behind.lead_batches(lanes, ELIGIBLE)[0]
    first, _ = lane.batch(LIMIT)
    own = LIMIT if lanes == 1 else OWN
    assert_reads_own_rows_only(selection(lane, limit=LIMIT, max_bytes=max_bytes), own)
    found = selection(lane, [first], limit=LIMIT, max_bytes=max_bytes)
    assert_reads_own_rows_only(found, own + first.rows)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("max_bytes", [UNBOUNDED, 1000])
def test_a_look_at_young_rows_of_others_reads_no_more_than_its_limit(
    behind: Outbox, lanes: int, max_bytes: int
) -> None:
    hand = behind.lead(lanes=lanes, eligible=ELIGIBLE)
    for source in 1, 2:
        assert hand.ids(LIMIT, source=source) == []
        assert_reads_own_rows_only(plan(hand, LIMIT, max_bytes, source), LIMIT)
    lane = behind.lead_batches(lanes, ELIGIBLE)[0]
    for source in 1, 2:
        assert lane.ids(LIMIT, source=source) == []
        tree = selection(lane, limit=LIMIT, max_bytes=max_bytes, source=source)
        assert_reads_own_rows_only(tree, LIMIT)


def test_not_even_where_all_of_them_are_of_another_lane(box: Outbox) -> None:
    fill(box, 1, OTHERS, "'the only key'")
    for lane in 0, 1:
        assert_reads_own_rows_only(plan(box.lead(lane, 2, ELIGIBLE), LIMIT, source=2), LIMIT)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("analyzed", [False, True])
def test_dead_rows_in_front_cost_a_mark_of_own_rows_nothing(box: Outbox, analyzed: bool) -> None:
    reader = box.session()
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    reader.execute("SELECT count(*) FROM outbox")
    fill(box, 1, OTHERS)
    box.admin.execute(
        "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value) "
        "SELECT 'orders', 'k' || i % 100, 'v' FROM generate_series(1, 5000) AS i"
    )
    if analyzed:
        box.admin.execute("ANALYZE outbox")
    hand = box.lead(eligible=ELIGIBLE)
    costs: list[int] = []
    for _ in range(90):
        costs.append(search(plan(hand, LIMIT))["Shared Hit Blocks"])
        hand.purge(*hand.ids(LIMIT))
    box.admin.execute("DELETE FROM outbox WHERE cluster_id = 1")
    costs.append(search(plan(hand, LIMIT))["Shared Hit Blocks"])
    # The second mark reads from the head, as the first has told it what a start rests on.
    assert max(costs[2:]) < 2.5 * min(costs), costs
