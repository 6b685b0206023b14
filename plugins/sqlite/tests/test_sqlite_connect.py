"""Connecting waits for whoever has the file, also where SQLite does not."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from outbox_api import DriverError, Record, Stasher
from outbox_sqlite import SqliteDialect, SqliteOptions


def test_the_journal_mode_is_changed_after_a_transaction_of_another_connection(tmp_path: Path) -> None:
    dialect = SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db"), lock_timeout=60.0))
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(dialect.open)
            time.sleep(0.1)
            assert not opened.done()
            writer.execute("COMMIT")
            with closing(opened.result(60)) as connection:
                assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("name", ["shop.db", "a b%20ü#?.db"])
def test_a_file_that_is_replaced_is_opened_anew(tmp_path: Path, name: str) -> None:
    dialect = SqliteDialect(SqliteOptions(data_source=str(tmp_path / name)))
    dialect.create()
    with closing(dialect.connect()) as table, closing(dialect.watch()) as view:
        fence = table.enter(0, 1, table.bump(1, "test"))
        assert table.mark(fence, uuid4(), 10) == []
        with closing(dialect.stash_connection()) as connection:
            connection.execute("VACUUM INTO ?", (str(tmp_path / "compacted"),))
        (tmp_path / "compacted").replace(tmp_path / name)
        for ask in (lambda: table.mark(fence, uuid4(), 10), view.backlog):
            with pytest.raises(DriverError, match="was replaced or removed") as caught:
                ask()
            assert caught.value.retryable
    with closing(dialect.stash_connection()) as connection:
        Stasher(dialect="sqlite").stash(connection, Record("t", "k", "written into the new file"))
        connection.commit()
    with closing(dialect.connect()) as table:
        assert len(table.mark(table.enter(0, 1, table.bump(1, "test")), uuid4(), 10)) == 1


def test_it_waits_no_longer_than_the_lock_timeout(tmp_path: Path) -> None:
    dialect = SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db"), lock_timeout=0.1))
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(DriverError, match="another process writes for too long"):
            dialect.connect()
