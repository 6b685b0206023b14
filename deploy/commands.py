"""Makes ``docs/cli.md`` of what ``--help`` says of each command: ``python -m deploy.commands``.

A test compares the committed page with what this program makes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from outbox_core.cli.app import COMMANDS, load_command
from outbox_core.cli.command import MEANINGS, Command, Group
from typer.core import TyperOption

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
OFTEN = 2
"""An option that so many commands explain alike is explained once."""
EVERYWHERE = ("--file", "--outbox", "--json")
"""Options that most commands have: the page names those without."""
HEAD = """\
# The command line

<!-- Made by `python -m deploy.commands` of the commands' help: do not edit. -->

`outbox COMMAND -h` says what is here, with arguments and examples. [What commands print](output.md) has the
log and the JSON. goharvest's `reaper -f reaper.yaml` is `outbox run -f reaper.yaml`.

Of the commands that change the outbox, `init`, `migrate`, `pump`, `parked retry` and `resume` do not ask. The
others do, and without a terminal require `--yes`, or do nothing and exit with 2.

Without `--outbox` `check`, `init`, `migrate`, `status`, `health`, `parked list`, `kept days`, `fence show`,
`journal`, `partitions add` and the lists of `takeover` and `pause` are about all outboxes of the file; the
others require it if there are several.
"""


def described(option: TyperOption) -> str:
    """Returns the line of an option."""
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = option.default
    shown = f" Default: {value:,}." if type(value) is int and value else ""
    shown = f" Default: {value}." if isinstance(value, str) and value else shown
    return f"* {names}: {code(option.help or '')}{shown}"


def option_name(line: str) -> str:
    """Returns the name of the option that a line describes."""
    return line.split("`")[1]


def code(text: str) -> str:
    """Returns text with what is typed as code."""
    return re.sub(r"'((?:outbox |--|-|\w+:)[^']*)'", r"`\1`", text)


def options(command: Command) -> list[TyperOption]:
    """Returns the options of a command, without ``--help``."""
    found = [each for each in command.build().params if isinstance(each, TyperOption)]
    return [each for each in found if "--help" not in each.opts]


def commands() -> Iterator[tuple[str, Command]]:
    """Yields all commands, each with the words that call it."""
    for entry in map(load_command, COMMANDS):
        for command in entry.commands if isinstance(entry, Group) else [entry]:
            yield (f"{entry.name} {command.name}" if isinstance(entry, Group) else command.name), command


def section(phrase: str, command: Command, shared: set[str], like: dict[str, str]) -> Iterator[str]:
    """Yields the lines about a command; ``like`` has which command had a list of shared options first."""
    yield f"{'###' if ' ' in phrase else '##'} `outbox {phrase}`"
    yield code(cleandoc(command.function.__doc__ or ""))
    found = [(described(option), option.opts[0]) for option in options(command)]
    lines = [line for line, _ in found if line not in shared]
    also = ", ".join(f"`{name}`" for line, name in found if line in shared and name not in EVERYWHERE)
    first = like.setdefault(also, phrase)
    also = f"those of `{first}`" if first != phrase and also.count(",") > OFTEN else also
    yield "\n".join(lines + ([f"* {also}"] if also else []))


def lacking(name: str, every: dict[str, Command]) -> str:
    """Returns the words about the commands without an option that most have."""
    without = [f"`{phrase}`" for phrase, command in every.items() if name not in names(command)]
    return f" Not of {', '.join(without)}."


def names(command: Command) -> set[str]:
    """Returns the names of a command's options."""
    return {option.opts[0] for option in options(command)}


def page() -> str:
    """Returns the page."""
    every = dict(commands())
    counted = Counter(described(option) for command in every.values() for option in options(command))
    meanings = Counter(option_name(line) for line, count in counted.items() if count >= OFTEN)
    shared = {line for line, n in counted.items() if n >= OFTEN and meanings[option_name(line)] == 1}
    often = [
        line + (lacking(name, every) if (name := option_name(line)) in EVERYWHERE else "")
        for line in counted
        if line in shared
    ]
    codes = [f"| {number} | {meaning} |" for number, meaning in MEANINGS.items()]
    codes.append("| 130, 143 | stopped hard by a second Ctrl-C or SIGTERM |")
    parts = [
        HEAD.rstrip(),
        "## Options of many commands",
        "\n".join(often),
        "## Exit codes",
        "\n".join(["| Code | Meaning |", "|---|---|", *codes]),
    ]
    like: dict[str, str] = {}
    for name in COMMANDS:
        entry = load_command(name)
        if isinstance(entry, Group):
            parts += [f"## `outbox {name}`", code(cleandoc(entry.text))]
        for phrase, command in every.items():
            if phrase.split()[0] == name:
                parts += filter(None, section(phrase, command, shared, like))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
