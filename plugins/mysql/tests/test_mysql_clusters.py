"""Several clusters: ids of several writers, the index that marks read by, and times of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import ColumnIs, DriverError, Finding, Level, Origin, Record, Stasher
from outbox_mysql import MySqlDialect, MySqlOptions
from outbox_servers.services.external import MySql, connect_mysql
from outbox_servers.services.mysql import MariaDbServer
from outbox_testkit.conformance import OutboxUnderTest

ORIGIN = Origin(column="cluster_id", own=2, known=(1, 2, 3))
OWN = [ColumnIs("cluster_id", 2)]


def a_dialect(under: OutboxUnderTest, origin: Origin = ORIGIN) -> MySqlDialect:
    dialect = MySqlDialect(MySqlOptions(**under.options, origin=origin))
    dialect.create()
    return dialect


def execute(dialect: MySqlDialect, *statements: str) -> None:
    with closing(dialect.stash_connection()) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def faults(dialect: MySqlDialect) -> dict[str, Finding]:
    found = {finding.subject: finding for finding in dialect.check() if finding.level is not Level.OK}
    assert all(finding.cure for finding in found.values())
    return found


@pytest.fixture(scope="module")
def stepping() -> Iterator[MySql]:
    """A server whose ids are those of the second of three clusters."""
    settings: dict[str, str | int] = {
        "auto-increment-increment": 3,
        "auto-increment-offset": 2,
        "slave-run-triggers-for-rbr": "ENFORCE",
    }
    with MariaDbServer(settings=settings) as server:
        yield server


def test_ids_that_two_clusters_may_give_out_are_told(under: OutboxUnderTest) -> None:
    finding = faults(a_dialect(under))["ids"]
    assert "the same id" in finding.message
    assert "auto_increment_increment = 3" in finding.cure
    assert "auto_increment_offset = 2" in finding.cure


def test_ids_that_no_other_cluster_gives_out_are_right(stepping: MySql) -> None:
    source = stepping.create_database(f"d{uuid4().hex}")

    def dialect(**rows: Any) -> MySqlDialect:
        return MySqlDialect(MySqlOptions(data_source=source, origin=replace(ORIGIN, **rows)))

    dialect().create()
    assert faults(dialect()).keys() == set()
    assert "auto_increment_offset = 3" in faults(dialect(own=3))["ids"].cure
    assert "auto_increment_increment = 4" in faults(dialect(known=(1, 2, 3, 4)))["ids"].cure


def test_a_server_that_runs_triggers_of_replicas_fills_times_of_arrival(stepping: MySql) -> None:
    source = stepping.create_database(f"d{uuid4().hex}")
    dialect = MySqlDialect(MySqlOptions(data_source=source, origin=replace(ORIGIN, arrival="arrived")))
    dialect.create()
    finding = faults(dialect)["arrival"]
    assert "no trigger" in finding.message
    execute(dialect, finding.cure)
    assert faults(dialect) == {}
    with connect_mysql(source, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL slave_run_triggers_for_rbr = YES")
        try:
            assert "ENFORCE" in faults(dialect)["arrival"].cure
        finally:
            cursor.execute("SET GLOBAL slave_run_triggers_for_rbr = ENFORCE")


def test_times_of_arrival_are_refused_where_no_replica_can_fill_them(on_mysql: OutboxUnderTest) -> None:
    finding = faults(a_dialect(on_mysql, replace(ORIGIN, arrival="arrived")))["arrival"]
    assert finding.level is Level.WARNING
    assert "runs no triggers" in finding.message


def test_rows_of_a_cluster_are_read_by_its_index(
    under: OutboxUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = a_dialect(under)
    index = f"FORCE INDEX (`{dialect.options.table}_cluster_id_id`)"
    with closing(dialect.connect(OWN)) as table:
        fence = table.enter(0, 1, table.bump(1, "test"))
        sent = watched(table, monkeypatch)
        table.mark(fence, uuid4(), 10)
        table.advance(fence, [], [], 10)
        chosen = [sql for sql in sent if "ORDER BY" in sql]
        assert len(chosen) == 2
        assert all(index in sql for sql in chosen)


def test_without_the_index_rows_are_read_by_their_ids(
    under: OutboxUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = a_dialect(under)
    name = f"{dialect.options.table}_cluster_id_id"
    with closing(dialect.connect(OWN)) as table:
        fence = table.enter(0, 1, table.bump(1, "test"))
        execute(dialect, f"DROP INDEX {name} ON {dialect.options.table}")
        with pytest.raises(DriverError) as caught:
            table.mark(fence, uuid4(), 10)
        assert caught.value.retryable, "the next connection looks for an index anew"
    assert "CREATE INDEX" in faults(dialect)["cluster index"].cure
    with closing(dialect.connect(OWN)) as table:
        sent = watched(table, monkeypatch)
        assert table.mark(fence, uuid4(), 10) == []
        assert any("FORCE INDEX (PRIMARY)" in sql for sql in sent)
        assert not any(name in sql for sql in sent)
    dialect.create()
    assert "cluster index" not in faults(dialect)


def test_what_is_acknowledged_is_purged_whatever_mark_has_come_from_another_cluster(
    under: OutboxUnderTest,
) -> None:
    dialect = a_dialect(under)
    with closing(dialect.stash_connection()) as application:
        Stasher(dialect.options.table, "mysql").stash_many(
            application, [Record("orders", f"k{n}", "v") for n in range(3)]
        )
        application.commit()
    with closing(dialect.connect(OWN)) as table:
        fence, leader = table.enter(0, 1, table.bump(1, "test")), uuid4()
        marked = [record.id for record in table.mark(fence, leader, 10)]
        execute(dialect, f"UPDATE {dialect.options.table} SET leader_id = '{uuid4()}'")
        assert table.purge(fence, leader, marked).rows == 3
        assert table.backlog().records == 0


def test_a_default_of_another_cluster_is_made_right_by_create(under: OutboxUnderTest) -> None:
    a_dialect(under, replace(ORIGIN, own=1))
    moved = MySqlDialect(MySqlOptions(**under.options, origin=ORIGIN))
    finding = faults(moved)["cluster default"]
    assert "is 1" in finding.message
    assert "SET DEFAULT 2" in finding.cure
    moved.create()
    assert "cluster default" not in faults(moved)
    execute(moved, f"ALTER TABLE {moved.options.table} ALTER cluster_id DROP DEFAULT")
    assert "none" in faults(moved)["cluster default"].message


def watched(table: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which each statement of a connection is added."""
    sent: list[str] = []
    connection = table._session.connection
    query = connection.query

    def watch(sql: str | bytes, *more: Any) -> Any:
        sent.append(sql.decode(errors="replace") if isinstance(sql, bytes) else sql)
        return query(sql, *more)

    monkeypatch.setattr(connection, "query", watch)
    return sent


def test_a_time_of_arrival_gets_the_default_that_it_lacks(under: OutboxUnderTest) -> None:
    """A process may end between the two statements that add the column."""
    dialect = a_dialect(under, replace(ORIGIN, arrival="arrived"))
    execute(dialect, f"ALTER TABLE {under.options['table']} ALTER COLUMN arrived DROP DEFAULT")
    dialect.create()
    with closing(dialect.stash_connection()) as connection, connection.cursor() as cursor:
        Stasher(under.options["table"], "mysql").stash(connection, Record("t", "k", "v"))
        cursor.execute(f"SELECT COUNT(*) FROM {under.options['table']} WHERE arrived IS NULL")
        assert cursor.fetchone() == (0,)
