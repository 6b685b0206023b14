"""Looking at an outbox on a standby, to which nobody can write."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from outbox_api import SCHEMA, DriverError, Record, Stasher
from outbox_postgres import PostgresDialect, PostgresOptions
from outbox_servers.services import PostgresServer

from .standbys import postgres_standby, wait_for_standby


def test_a_standby_can_be_watched_and_not_harvested(tmp_path: Path) -> None:
    with PostgresServer() as primary:
        dialect = PostgresDialect(PostgresOptions(data_source=primary.dsn))
        dialect.create()
        with closing(dialect.stash_connection()) as connection:
            Stasher().stash(connection, Record("orders", "key", "value"))
            connection.commit()
        with closing(dialect.connect()) as table:
            token, identity = table.bump(1, "leader"), table.identity()
        with postgres_standby(primary) as standby:
            wait_for_standby(primary, standby)
            there = PostgresDialect(PostgresOptions(data_source=standby.dsn))
            with pytest.raises(DriverError, match="is a standby; name the primary") as caught:
                there.connect()
            assert caught.value.retryable
            with closing(there.watch()) as view:
                assert view.backlog().records == 1
                assert view.known_identity() == identity
                assert [lane.fence.token for lane in view.lane_statuses()] == [token]
                assert view.parked().keys == 0
                assert view.upkeep().visible
                assert view.takeovers() == []
                assert view.origins() == []
            with closing(there.dead_letters(read_only=True)) as letters:
                assert letters.find() == []
                assert letters.waiting("key") == 1
            assert there.migrations() == []
            file = tmp_path / "outbox.yaml"
            file.write_text(json.dumps({"harvest": {"dataSource": standby.dsn}}))
            command = [sys.executable, "-m", "outbox_core", "migrate", "--dry-run", "--json", "-f", str(file)]
            shown = subprocess.run(command, check=True, capture_output=True, text=True)
            assert json.loads(shown.stdout)["version"] == SCHEMA
