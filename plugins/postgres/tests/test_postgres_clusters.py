"""What an outbox of several clusters has besides: columns, an index, ids, takeovers, and a look at each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from outbox_api import AccessDenied, ColumnIs, DriverError, Origin, Record
from outbox_api.portable import portable_insert
from outbox_api.seams.outbox_view import MAX_COUNTED
from outbox_postgres import PostgresIdiom
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox, ask
from .plans import nodes

ORIGIN = Origin(column="cluster_id", own=2, known=(1, 2, 3), existing=3)
ARRIVING = Origin(column="cluster_id", own=2, known=(1, 2, 3), existing=3, arrival="arrived")
ROWS = "SELECT id, cluster_id FROM outbox ORDER BY id"
FILE = "SELECT pg_relation_filenode('outbox')"


def fill(box: Outbox, cluster: int, rows: int, age: int = 0) -> None:
    box.admin.execute(
        "INSERT INTO outbox (id, create_time, kafka_topic, kafka_key, cluster_id) "
        "SELECT %s * 10^15 + i, now() - make_interval(secs => %s), 'orders', 'k', %s "
        "FROM generate_series(1, %s) AS i",
        (cluster, age, cluster, rows),
    )


def test_a_new_table_has_the_column_the_index_and_ids_of_its_own(make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ARRIVING)
    box.dialect.create()
    box.write()
    box.write()
    assert box.admin.execute(ROWS).fetchall() == [(2 * 10**15, 2), (2 * 10**15 + 1, 2)]
    late = ask(box.admin, "SELECT bool_and(arrived <= clock_timestamp()) FROM outbox")
    assert late is True
    assert ask(box.admin, "SELECT to_regclass('outbox_cluster_id_id')") is not None
    table = box.connect(eligible=[ColumnIs("cluster_id", 2)])
    assert table._layout.indexed == {"cluster_id"}
    assert table._starts.settled is not None
    box.admin.execute("TRUNCATE outbox RESTART IDENTITY")
    assert box.write() == 2 * 10**15


@pytest.mark.parametrize("origin", [ORIGIN, ARRIVING], ids=["", "arriving"])
def test_init_adds_to_an_existing_table_what_it_lacks_and_writes_no_row(
    outbox: Outbox, make_outbox: MakeOutbox, origin: Origin
) -> None:
    outbox.fill(2)
    file, before = ask(outbox.admin, FILE), datetime.now(UTC) - timedelta(seconds=1)
    box = make_outbox(origin=origin)
    with pytest.raises(DriverError, match=r"'cluster_id'.* is missing: run 'outbox init'"):
        box.connect()
    assert box.dialect.create() == []
    outbox.write()
    assert outbox.admin.execute(ROWS).fetchall() == [(1, 3), (2, 3), (3, 2)]
    assert box.connect()._layout.indexed == {"cluster_id"}
    if origin.arrival:
        times = [row[0] for row in outbox.admin.execute("SELECT arrived FROM outbox ORDER BY id")]
        assert before < times[0] == times[1] < times[2]
    versions = outbox.admin.execute("SELECT oid, xmin FROM pg_class WHERE relname LIKE 'outbox%'").fetchall()
    assert box.dialect.create() == []
    assert ask(outbox.admin, FILE) == file
    again = outbox.admin.execute("SELECT oid, xmin FROM pg_class WHERE relname LIKE 'outbox%'").fetchall()
    assert again == versions, "there was nothing to add"


def test_init_sets_the_default_of_a_table_that_came_from_another_cluster(make_outbox: MakeOutbox) -> None:
    make_outbox(origin=Origin(column="cluster_id", own=1, known=(1, 2))).dialect.create()
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    box.write()
    assert ask(box.admin, "SELECT cluster_id FROM outbox") == 2


def test_init_leaves_a_default_that_is_no_constant(make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    box.admin.execute("ALTER TABLE outbox ALTER cluster_id SET DEFAULT current_setting('app.cluster')::int")
    box.dialect.create()
    box.admin.execute("SET app.cluster = 7")
    box.write()
    assert ask(box.admin, "SELECT cluster_id FROM outbox") == 7


def test_who_may_not_add_the_columns_is_told_what_to_run(
    outbox: Outbox, make_outbox: MakeOutbox, user: tuple[str, str]
) -> None:
    name, _ = user
    outbox.admin.execute(f"GRANT SELECT ON outbox TO {name}")
    box = make_outbox(make_conninfo(outbox.dsn, user=name, password="s3cret"), origin=ORIGIN)
    with pytest.raises(AccessDenied, match='ADD COLUMN "cluster_id" INTEGER NOT NULL DEFAULT 3') as caught:
        box.dialect.create()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP COLUMN arrived", "'arrived'.* is missing.*ADD COLUMN"),
        ("ALTER cluster_id DROP DEFAULT, ALTER cluster_id TYPE text", "has type text and must be integer"),
    ],
)
def test_a_column_that_is_not_as_the_affinity_asks(
    make_outbox: MakeOutbox, change: str, message: str
) -> None:
    box = make_outbox(origin=ARRIVING)
    box.dialect.create()
    box.admin.execute(f"ALTER TABLE outbox {change}")
    with pytest.raises(DriverError, match=message):
        box.connect()


def test_an_affinity_without_an_origin_names_the_column_it_counts_from(outbox: Outbox) -> None:
    with pytest.raises(DriverError, match="column 'arrived', which the affinity asks for, is missing"):
        outbox.connect(eligible=[ColumnIs("id", 1, 5.0, "arrived")])


def test_names_that_need_quotes(make_outbox: MakeOutbox) -> None:
    origin = Origin(column='my "cluster"', own=1, known=(1,), arrival="came at")
    for table in "t", '"' + "x" * 60 + '"':
        box = make_outbox(origin=origin, table=table)
        box.dialect.create()
        box.write()
        hand = box.lead(eligible=[ColumnIs(origin.column, 1), ColumnIs(origin.column, 2, 1.0, "came at")])
        assert hand.table._layout.indexed == {origin.column}
        assert hand.ids(source=1) == []
        assert hand.ids() == [10**15]
        assert hand.table.origins()[0].cluster == 1


def test_an_index_of_that_name_on_something_else_is_no_index(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    outbox.admin.execute("CREATE INDEX outbox_cluster_id_id ON outbox (create_time)")
    with pytest.raises(DriverError, match="already exists"):
        make_outbox(origin=ORIGIN).dialect.create()


def test_the_rows_of_each_cluster_also_of_one_that_nobody_knows(make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    table = box.connect()
    assert table.origins() == []
    fill(box, 1, 3, age=100)
    fill(box, 9, 1, age=-100)
    fill(box, 3, MAX_COUNTED + 5)
    first, many, orphan = table.origins()
    assert (first.cluster, first.records, first.exact) == (1, 3, True)
    assert 100 <= first.oldest < 200
    assert (many.cluster, many.records, many.exact) == (3, MAX_COUNTED, False)
    assert (orphan.cluster, orphan.records, orphan.oldest) == (9, 1, 0)
    assert MAX_COUNTED < table.backlog().records <= MAX_COUNTED + 9, "no estimate by the span of ids"
    assert make_outbox().connect().origins() == []


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_look_at_each_cluster_reads_the_counted_rows_and_one_more(
    make_outbox: MakeOutbox, analyzed: bool
) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    for cluster in 1, 2, 3:
        fill(box, cluster, 5000)
    if analyzed:
        box.admin.execute("VACUUM ANALYZE outbox")
    table = box.connect()
    assert table._origins is not None
    said = vars(table._origins.statements)
    for name, most in {"first": 1, "next": 1, "count": 100, "oldest": 1}.items():
        query = said[name].format(eligible="2", limit="100")
        tree: dict[str, Any] = ask(table._connection, f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")[0]["Plan"]
        read = [node for node in nodes(tree) if node.get("Relation Name") == "outbox"]
        assert {node["Index Name"] for node in read} == {"outbox_cluster_id_id"}, name
        assert all(node["Actual Rows"] <= most for node in read), name


def test_takeovers_are_kept_until_they_end(make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    table = box.connect()
    assert table.takeovers() == []
    assert not table.end_takeover(3)
    before = table.now()
    assert table.begin_takeover(3, "planned\0 " + "x" * 300)
    assert table.begin_takeover(1, "fire")
    assert not table.begin_takeover(3, "again")
    token = table.bump(2, "test")
    table.enter(0, 2, token)
    first, third = box.connect().takeovers()
    assert (first.cluster, first.reason) == (1, "fire")
    assert third.cluster == 3
    assert third.reason.startswith("planned")
    assert len(third.reason) == 200
    assert before <= third.since <= first.since <= table.now()
    assert [status.fence.lane for status in table.lane_statuses()] == [0, 1]
    assert table.end_takeover(3)
    assert not table.end_takeover(3)
    assert [each.cluster for each in table.takeovers()] == [1]
    assert table.begin_takeover(3, "anew")
    assert [each.reason for each in table.takeovers()] == ["fire", "anew"]


def test_takeovers_of_outboxes_that_share_a_fence_are_apart(make_outbox: MakeOutbox) -> None:
    boxes = [make_outbox(origin=ORIGIN, table=table) for table in ("one", "other")]
    for box in boxes:
        box.dialect.create()
    one, other = (box.connect() for box in boxes)
    assert one.begin_takeover(9000, "last")
    assert other.takeovers() == []
    assert one.takeovers()[0].cluster == 9000


def test_a_takeover_waits_for_the_disk(make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    box.set_default("synchronous_commit", "off")
    assert ask(box.connect()._connection, "SHOW synchronous_commit") == "on"


def test_the_present_time_has_a_zone(outbox: Outbox) -> None:
    assert abs(outbox.connect().now() - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("columns", [{}, {"cluster_id": 3}, {"cluster_id": 3, 'odd "{name}"': "x"}])
def test_constants_are_written_into_each_row(make_outbox: MakeOutbox, columns: dict[str, object]) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    box.admin.execute('ALTER TABLE outbox ADD COLUMN "odd ""{name}""" TEXT')
    statement = portable_insert(PostgresIdiom())("outbox", columns)
    values = statement.bind(Record("orders", "k", "v"))
    given = {name: f"%({name})s" for name in values}
    box.admin.execute(statement.sql.format_map(given), values)
    row = box.admin.execute('SELECT cluster_id, "odd ""{name}""" FROM outbox').fetchone()
    assert row == (columns.get("cluster_id", 2), columns.get('odd "{name}"'))
