"""Connecting waits for whoever has the file, also where SQLite does not."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from outbox_sdk import DriverError
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


def test_it_waits_no_longer_than_the_lock_timeout(tmp_path: Path) -> None:
    dialect = SqliteDialect(SqliteOptions(data_source=str(tmp_path / "shop.db"), lock_timeout=0.1))
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(DriverError, match="another process writes for too long"):
            dialect.connect()
