"""Several clusters: marks read by the index of the cluster, and an existing file gets its columns at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from outbox_api import ColumnIs, DriverError, Level, Origin, Record, Stasher
from outbox_sqlite import SqliteDialect, SqliteOptions

ORIGIN = Origin(column="cluster_id", own=2, known=(1, 2), existing=1)
ELIGIBLE = [ColumnIs("cluster_id", 2), ColumnIs("cluster_id", 1, 3600.0)]


@pytest.fixture
def dialect(tmp_path: Path) -> SqliteDialect:
    return SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db"), origin=ORIGIN))


@pytest.mark.parametrize("analyzed", [False, True])
def test_rows_are_read_by_the_index_of_their_cluster(dialect: SqliteDialect, analyzed: bool) -> None:
    dialect.create()
    with closing(dialect.stash_connection()) as connection:
        for cluster, count in ((1, 5_000), (2, 3)):
            stasher = Stasher(dialect="sqlite", cluster=cluster)
            stasher.stash_many(connection, [Record("t", f"k{n}", "v") for n in range(count)])
        if analyzed:
            connection.execute("ANALYZE")
        connection.commit()
    table: Any = dialect.connect(ELIGIBLE)
    with closing(table):
        fence = table.enter(0, 1, table.bump(1, "test"))
        sent: list[str] = []
        table._session.connection.set_trace_callback(sent.append)
        for source in (0, 1):
            table.mark(fence, uuid4(), 10, source=source)
            table.advance(fence, [], [], 10, source=source)
        table.origins()
        table._session.connection.set_trace_callback(None)
        looks = [sql for sql in sent if '"cluster_id"' in sql]
        assert len(looks) == 12
        for sql in looks:
            plans = table._session.connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            plan = " ".join(str(row[3]) for row in plans)
            assert "outbox_cluster_id_id" in plan, (sql, plan)
            assert "TEMP B-TREE" not in plan, (sql, plan)
            assert "SCAN outbox " not in plan or "MIN(" in sql, (sql, plan)


def test_an_existing_file_gets_its_columns_in_one_transaction(dialect: SqliteDialect) -> None:
    SqliteDialect(SqliteOptions(data_source=dialect.options.data_source)).create()
    with closing(dialect.stash_connection()) as connection:
        Stasher(dialect="sqlite").stash(connection, Record("t", "k", "before"))
        connection.commit()
        # A row that cannot be changed stops the whole.
        connection.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'never'); END"
        )
        with pytest.raises(DriverError, match="let somebody who may run this: ALTER TABLE"):
            dialect.create()
        assert "cluster_id" not in [row[1] for row in connection.execute("PRAGMA table_info(outbox)")]
        connection.execute("DROP TRIGGER refuse")
        assert list(dialect.create()) == []
        Stasher(dialect="sqlite").stash(connection, Record("t", "k", "after"))
        found = connection.execute("SELECT kafka_value, cluster_id FROM outbox ORDER BY id").fetchall()
    assert found == [("before", 1), ("after", 2)]


def test_a_default_that_cannot_be_changed_is_told(dialect: SqliteDialect) -> None:
    former = Origin(column="cluster_id", own=1, known=(1, 2))
    SqliteDialect(SqliteOptions(data_source=dialect.options.data_source, origin=former)).create()
    assert list(dialect.create()) == []
    (finding,) = [each for each in dialect.check() if each.level is not Level.OK]
    assert finding.subject == "cluster default"
    assert "create the table anew" in finding.cure


def test_the_index_is_checked_and_made_by_create(dialect: SqliteDialect) -> None:
    dialect.create()
    with closing(sqlite3.connect(dialect.options.data_source)) as connection:
        connection.execute("DROP INDEX outbox_cluster_id_id")
    (finding,) = [each for each in dialect.check() if each.level is not Level.OK]
    assert finding.level is Level.WARNING
    assert 'CREATE INDEX "outbox_cluster_id_id" ON "outbox" ("cluster_id", "id")' in finding.cure
    dialect.create()
    assert not [each for each in dialect.check() if each.level is not Level.OK]
