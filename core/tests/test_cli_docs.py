"""docs/cli.md names every command, option and exit code, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from outbox_core.cli.app import COMMANDS, load_command
from outbox_core.cli.command import MEANINGS, Command, Group
from outbox_core.config.harvest import HarvestKeys
from outbox_core.events.metrics import LaneMetrics, as_numbers
from typer.core import TyperCommand, TyperGroup

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
EVERYWHERE = {"--help", "-h", "--file", "-f", "--json", "--outbox", "-o"}
"""Options that the page explains for all commands at once."""
ARGUMENTS = {"keys", "key", "name", "code", "position"}
ENTRIES = [load_command(name) for name in COMMANDS]
PHRASES = [
    phrase
    for entry in ENTRIES
    for phrase in (
        [f"{entry.name} {command.name}" for command in entry.commands]
        if isinstance(entry, Group)
        else [entry.name]
    )
]
"""The commands, those of groups with their group's name before them."""


def section(heading: str) -> str:
    parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return next((part for part in parts if part.startswith(f"{heading}\n")), "")


def options(phrase: str) -> Iterator[str]:
    first, *others = phrase.split()
    command: object = load_command(first).build()
    for word in others:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    assert isinstance(command, TyperCommand)
    for parameter in command.params:
        yield from parameter.opts


def test_every_command_is_documented():
    listed = re.findall(r"^\| `outbox ([\w -]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert listed == PHRASES


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_option_is_documented(entry: Command | Group):
    """A group has one table, for the options of all its commands."""
    cells = re.findall(r"^\| (`-[^|]+) \|", section(f"`outbox {entry.name}`"), re.MULTILINE)
    listed = {option for cell in cells for option in re.findall(r"`(-[\w-]+)`", cell)}
    phrases = [phrase for phrase in PHRASES if phrase.split()[0] == entry.name]
    assert listed == {option for phrase in phrases for option in options(phrase)} - EVERYWHERE - ARGUMENTS


def test_every_exit_code_is_documented():
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", section("Exit codes"), re.MULTILINE))
    assert rows == {str(code.value): meaning for code, meaning in MEANINGS.items()}


def test_every_metric_of_a_lane_is_documented():
    rows = re.findall(r"^\| `(\w+)` \| ", section("`outbox status`"), re.MULTILINE)
    assert set(rows) == set(as_numbers(LaneMetrics(), 0.0))


def test_overrides_name_settings_that_exist():
    for key in re.findall(r"`harvest\.(\w+)", PAGE.read_text("utf-8")):
        assert key in HarvestKeys.__dataclass_fields__
