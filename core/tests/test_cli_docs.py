"""docs/cli.md names every command, option and exit code, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from outbox_core.cli.app import COMMANDS, app
from outbox_core.cli.exits import MEANINGS
from outbox_core.config.reader import HarvestKeys
from typer.core import TyperGroup

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EVERYWHERE = {"--help", "-h", "--file", "-f", "--json"}
"""Options that the page explains for all commands at once."""


def section(heading: str) -> str:
    parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return next((part for part in parts if part.startswith(f"{heading}\n")), "")


def options(name: str) -> Iterator[str]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for parameter in group.commands[name].params:
        yield from parameter.opts


def test_every_command_is_documented():
    listed = re.findall(r"^\| `outbox (\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert listed == [command.__name__ for command, _ in COMMANDS]


@pytest.mark.parametrize("name", [command.__name__ for command, _ in COMMANDS])
def test_every_option_is_documented(name: str):
    cells = re.findall(r"^\| (`-[^|]+) \|", section(f"`outbox {name}`"), re.MULTILINE)
    listed = {option for cell in cells for option in re.findall(r"`(-[\w-]+)`", cell)}
    assert listed == set(options(name)) - EVERYWHERE


def test_every_exit_code_is_documented():
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", section("Exit codes"), re.MULTILINE))
    assert rows == {str(code.value): meaning for code, meaning in MEANINGS.items()}


def test_overrides_name_settings_that_exist():
    for key in re.findall(r"`harvest\.(\w+)", PAGE.read_text("utf-8")):
        assert key in HarvestKeys.__dataclass_fields__
