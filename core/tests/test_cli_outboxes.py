"""Commands about several outboxes, of which some cannot be looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from outbox_core.config import load

from .cli_runner import outbox

FILE = """
harvest:
  engine: inline
  elector: lease
outboxes:
  here:
    dialect: {{driver: sqlite, dataSource: {folder}/here.db}}
  away:
    outboxTable: box_*
    dialect: {{driver: sqlite, dataSource: {folder}/no/such/folder.db}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "outbox.yaml"
    file.write_text(FILE.format(folder=tmp_path))
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
