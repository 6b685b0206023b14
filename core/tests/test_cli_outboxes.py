"""Commands about several outboxes, of which some cannot be looked for."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from outbox_core.config import load

from .cli_runner import outbox, told

FILE = """
harvest:
  engine: inline
  elector: lease
  baseKafkaConfig: {{bootstrap.servers: "{bootstrap}"}}
outboxes:
  here:
    dialect: {{driver: sqlite, dataSource: {folder}/here.db}}
  away:
    outboxTable: box_*
    dialect: {{driver: sqlite, dataSource: {folder}/no/such/folder.db}}
"""


@pytest.fixture
def file(tmp_path: Path, kafka_bootstrap: str) -> Path:
    file = tmp_path / "outbox.yaml"
    file.write_text(FILE.format(folder=tmp_path, bootstrap=kafka_bootstrap))
    load(file).outboxes[0].dialect.create().create()
    return file


def test_a_template_whose_database_is_away_hides_no_other_outbox(file: Path) -> None:
    ended = outbox(file, "status", "--json")
    shown = json.loads(ended.stdout)["outboxes"]
    assert [each["label"] for each in shown] == ["here", "away"]
    assert shown[0]["backlog"]["records"] == 0
    assert "no/such/folder" in shown[1]["error"]
    assert ended.returncode != 0


def test_each_command_tells_it(file: Path) -> None:
    for command in ("status", "health", "parked"):
        arguments = ["parked", "list"] if command == "parked" else [command]
        ended = outbox(file, *arguments)
        assert ended.returncode != 0
        assert "away" in ended.stderr, command
    assert "away" in outbox(file, "check").stdout


def test_an_outbox_of_its_own_is_found_without_the_templates(file: Path) -> None:
    assert outbox(file, "status", "--outbox", "here").returncode == 0
    assert "no/such/folder" in outbox(file, "status", "--outbox", "box_1").stderr


def test_the_sql_of_a_migration_of_several_outboxes_can_be_run_as_it_is(tmp_path: Path) -> None:
    """Two of them share a journal."""
    file, database = tmp_path / "outbox.yaml", tmp_path / "shop.db"
    shared = {"dialect": {"driver": "sqlite", "dataSource": str(database)}}
    tables = {"one": "box_1", "two": "box_2"}
    file.write_text(
        json.dumps({"outboxes": {label: {"outboxTable": table, **shared} for label, table in tables.items()}})
    )
    told(file, "init")
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("UPDATE outbox_fence_notes SET version = 0")
        connection.executescript(told(file, "migrate", "--dry-run"))
    assert told(file, "journal").count("no operator has done anything yet") == len(tables)
    assert told(file, "migrate").count("nothing to migrate") == len(tables)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(told(file, "migrate", "--dry-run"))


def test_a_template_that_matches_nothing_is_not_healthy(tmp_path: Path) -> None:
    file, database = tmp_path / "outbox.yaml", tmp_path / "shop.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    dialect = {"driver": "sqlite", "dataSource": str(database)}
    file.write_text(json.dumps({"outboxes": {"tenants": {"outboxTable": "bxo_*", "dialect": dialect}}}))
    for command in ("health", "check"):
        ended = outbox(file, command)
        assert ended.returncode == 1
        assert "outboxes.tenants: no table matches 'bxo_*'" in ended.stdout + ended.stderr
