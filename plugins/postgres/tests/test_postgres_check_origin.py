"""What the check finds in an outbox that several clusters harvest copies of."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic, sleep
from uuid import uuid4

import pytest
from outbox_api import ColumnIs, Origin
from outbox_servers.services import PostgresServer
from psycopg.conninfo import make_conninfo

from .outbox_hands import MakeOutbox, Outbox
from .test_postgres_check import troubles

ORIGIN = Origin(column="cluster_id", own=2, known=(1, 2, 3), arrival="arrived")


@pytest.fixture
def box(make_outbox: MakeOutbox) -> Outbox:
    made = make_outbox(origin=ORIGIN)
    made.dialect.create()
    return made


def write(box: Outbox, number: int, cluster: int) -> None:
    box.admin.execute(
        "INSERT INTO outbox (id, kafka_topic, kafka_key, cluster_id) VALUES (%s, 'orders', 'k', %s)",
        (number, cluster),
    )


def run_cure(box: Outbox, subject: str) -> None:
    """Runs the SQL of a cure."""
    cure = next(f.cure for f in box.dialect.check() if f.subject == subject and f.level != "ok")
    box.admin.execute(cure.rpartition("run 'outbox init', or: ")[2].encode())


def test_all_is_well_with_a_table_of_our_own(box: Outbox) -> None:
    assert troubles(box) == {}
    box.write()
    write(box, 10**15, 1)
    assert troubles(box) == {}
    assert {"cluster of new rows", "cluster index", "ids of clusters", "replication", "orphans"} <= {
        finding.subject for finding in box.dialect.check()
    }


def test_a_table_without_the_column_is_in_error(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    found = troubles(make_outbox(origin=ORIGIN))
    assert set(found) == {"outbox table"}
    assert "run 'outbox init'" in found["outbox table"]
    make_outbox(origin=ORIGIN).dialect.create()
    outbox.admin.execute("DROP INDEX outbox_cluster_id_id")
    assert set(troubles(make_outbox(origin=ORIGIN))) == {"cluster index", "ids of clusters"}


@pytest.mark.parametrize("change", ["SET DEFAULT 3", "DROP DEFAULT"])
def test_rows_that_plain_sql_would_give_to_another_cluster(box: Outbox, change: str) -> None:
    box.admin.execute(f"ALTER TABLE outbox ALTER cluster_id {change}")
    found = troubles(box)
    assert set(found) == {"cluster of new rows"}
    assert found["cluster of new rows"].startswith("error")
    run_cure(box, "cluster of new rows")
    assert troubles(box) == {}


def test_rows_without_a_number(box: Outbox) -> None:
    box.admin.execute("ALTER TABLE outbox ALTER cluster_id DROP NOT NULL")
    box.write()
    box.admin.execute("UPDATE outbox SET cluster_id = NULL")
    assert troubles(box)["cluster of rows"].startswith("error: cluster_id can be null")
    run_cure(box, "cluster of rows")
    assert troubles(box) == {}
    assert box.admin.execute("SELECT cluster_id FROM outbox").fetchall() == [(1,)]


def test_a_missing_index(box: Outbox) -> None:
    box.admin.execute("DROP INDEX outbox_cluster_id_id")
    assert troubles(box)["cluster index"].startswith("warning")
    run_cure(box, "cluster index")
    assert troubles(box) == {}


def test_a_sequence_that_may_give_out_ids_of_other_clusters(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    outbox.write()
    assert "the next id is 2, " in troubles(box)["ids of clusters"]
    run_cure(box, "ids of clusters")
    assert outbox.write() == 2 * 10**15 + 1
    assert troubles(box) == {}
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq RESTART WITH 2 INCREMENT 3; TRUNCATE outbox")
    assert set(troubles(box)) == {"record ids", "ids of clusters"}
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq INCREMENT 1 MAXVALUE 1000")
    run_cure(box, "ids of clusters")
    assert troubles(box) == {}


def test_ids_that_are_too_short_for_several_clusters(outbox: Outbox, make_outbox: MakeOutbox) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    outbox.admin.execute("ALTER TABLE outbox ALTER id TYPE integer")
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq AS integer")
    run_cure(box, "ids of clusters")
    assert outbox.write() == 2 * 10**15 + 1
    assert troubles(box) == {}


def test_a_sequence_that_was_restarted_and_has_given_out_no_id(
    outbox: Outbox, make_outbox: MakeOutbox
) -> None:
    box = make_outbox(origin=ORIGIN)
    box.dialect.create()
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq RESTART WITH 2000000000000000")
    assert troubles(box) == {}
    outbox.admin.execute("ALTER SEQUENCE outbox_id_seq RESTART WITH 3000000000000000")
    assert "the next id is 3000000000000000, " in troubles(box)["ids of clusters"]


def test_a_sequence_behind_own_rows_as_after_a_restore(box: Outbox) -> None:
    box.write()
    write(box, 2 * 10**15 + 7, 2)
    assert troubles(box)["ids of clusters"].startswith("error")
    run_cure(box, "ids of clusters")
    assert box.write() == 2 * 10**15 + 8
    assert troubles(box) == {}


def test_a_user_who_may_not_look_at_the_sequence(box: Outbox, make_outbox: MakeOutbox) -> None:
    box.write()
    name = f"reader_{uuid4().hex[:8]}"
    box.admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 's3cret'")
    box.admin.execute(f"GRANT SELECT, UPDATE, DELETE ON outbox TO {name}")
    box.admin.execute(f"GRANT ALL ON outbox_fence, outbox_fence_notes, outbox_dead_letters TO {name}")
    box.admin.execute(f"GRANT pg_read_all_stats TO {name}")
    try:
        dsn = make_conninfo(box.dsn, user=name, password="s3cret")
        assert set(troubles(make_outbox(dsn, origin=ORIGIN))) == {"record ids"}
    finally:
        box.admin.execute(f"DROP OWNED BY {name}")
        box.admin.execute(f"DROP ROLE {name}")


def test_rows_of_clusters_that_nobody_serves(box: Outbox) -> None:
    for number, cluster in enumerate((1, 3, 7, 9), 1):
        write(box, number, cluster)
    assert "nobody serves the rows of cluster 7 (1), 9 (1);" in troubles(box)["orphans"]


@pytest.fixture
def replicating(make_outbox: MakeOutbox) -> Iterator[tuple[Outbox, Outbox]]:
    """Two outboxes, of clusters 2 and 1, on a server that can replicate."""
    with PostgresServer(settings={"wal_level": "logical"}) as server:
        two = make_outbox(server.dsn, origin=ORIGIN)
        two.dialect.create()
        two.admin.execute("CREATE DATABASE other")
        dsn = make_conninfo(server.dsn, dbname="other")
        one = make_outbox(dsn, origin=Origin(column="cluster_id", own=1, known=(1, 2, 3)))
        one.dialect.create()
        yield two, one


def subscribe(box: Outbox, to: Outbox, publication: str) -> None:
    # Within one server the slot must be made by itself.
    to.admin.execute("SELECT pg_create_logical_replication_slot('there', 'pgoutput')")
    where = make_conninfo(to.dsn)
    box.admin.execute(
        f"CREATE SUBSCRIPTION here CONNECTION '{where}' PUBLICATION {publication} "
        "WITH (create_slot = false, slot_name = 'there', copy_data = false)"
    )


def until_told(box: Outbox, words: str) -> dict[str, str]:
    """Looks until the check says that of replication: a worker takes a moment to start, and to end."""
    deadline = monotonic() + 30
    while words not in (found := troubles(box)).get("replication", ""):
        assert monotonic() < deadline, found
        sleep(0.1)
    return found


def unsubscribe(box: Outbox) -> None:
    box.admin.execute("ALTER SUBSCRIPTION here DISABLE")
    box.admin.execute("ALTER SUBSCRIPTION here SET (slot_name = NONE)")
    box.admin.execute("DROP SUBSCRIPTION here")


def test_publications_that_publish_too_much(replicating: tuple[Outbox, Outbox]) -> None:
    box, _ = replicating
    columns = "id, create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    listed = f"outbox ({columns}, cluster_id)"
    box.admin.execute(f"CREATE PUBLICATION good FOR TABLE {listed} WITH (publish = 'insert, delete')")
    assert troubles(box) == {}
    box.admin.execute("ALTER PUBLICATION good SET (publish = 'insert, update')")
    assert troubles(box)["replication"].startswith("warning: publication good publishes updates")
    run_cure(box, "replication")
    assert troubles(box) == {}
    box.admin.execute(f"ALTER PUBLICATION good SET TABLE {listed}, outbox_fence")
    assert troubles(box)["replication"].startswith("error: publication good has ")
    box.admin.execute("ALTER PUBLICATION good SET TABLE outbox")
    found = troubles(box)
    assert set(found) == {"arrival"}
    assert "by the clock of their own cluster" in found["arrival"]


def test_publications_that_leave_out_what_others_need(replicating: tuple[Outbox, Outbox]) -> None:
    box, _ = replicating
    columns = "id, create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values"
    box.admin.execute(
        f"CREATE PUBLICATION rows_only FOR TABLE outbox ({columns}) WITH (publish = 'insert, delete')"
    )
    assert troubles(box)["replication"].startswith("error: publication rows_only leaves out the column clust")
    box.admin.execute(f"ALTER PUBLICATION rows_only SET TABLE outbox ({columns}, cluster_id)")
    assert troubles(box) == {}
    box.admin.execute("ALTER PUBLICATION rows_only SET (publish = 'insert')")
    assert troubles(box)["replication"].startswith("warning: no publication publishes deletions")
    box.admin.execute("CREATE PUBLICATION purges FOR TABLE outbox (id) WITH (publish = 'delete')")
    assert troubles(box) == {}, "two publications, as in PostgreSQL 15"


def test_a_subscription_that_does_not_run(replicating: tuple[Outbox, Outbox]) -> None:
    box, other = replicating
    other.admin.execute("CREATE PUBLICATION theirs FOR TABLE outbox WITH (publish = 'insert, delete')")
    subscribe(box, other, "theirs")
    try:
        box.admin.execute("ALTER SUBSCRIPTION here DISABLE")
        found = until_told(box, "does not run")
        assert found["replication"].startswith("warning: subscription here does not run")
    finally:
        unsubscribe(box)


def test_a_subscription_that_writes_the_outbox_leaves_marks_of_own_rows_as_they_are(
    replicating: tuple[Outbox, Outbox],
) -> None:
    box, other = replicating
    other.admin.execute("CREATE PUBLICATION theirs FOR TABLE outbox, outbox_dead_letters")
    subscribe(box, other, "theirs")
    try:
        found = until_told(box, "a subscription writes")
        assert set(found) == {"replication"}
        own = ColumnIs("cluster_id", 2)
        assert box.connect(eligible=[own])._starts.settled is not None
        assert box.connect()._starts.settled is None, "all rows together have no order"
    finally:
        unsubscribe(box)
