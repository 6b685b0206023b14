"""Commands and groups of commands, their exit codes, and durations among their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from inspect import cleandoc
from typing import Any

import typer
from outbox_api.base.errors import AccessDenied, ConfigError, DriverError
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from outbox_core.text.duration import format_duration, parse_duration


class _PlainFlags:
    """Has the help of a command show flags without a type, as they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class beside this one
        for each in found:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = ""
        return found


class _PlainCommand(_PlainFlags, TyperCommand):
    """A command for the parser."""


class PlainGroup(_PlainFlags, TyperGroup):
    """A group of commands for the parser."""


@dataclass(frozen=True)
class Command:
    """One command."""

    function: Callable[..., None]
    """Runs the command; its parameters are the options, its docstring is the help."""
    examples: Sequence[str]  # command lines for --help

    @property
    def name(self) -> str:
        """The command's name; a function whose name would hide a builtin ends in an underscore."""
        return self.function.__name__.rstrip("_").replace("_", "-")

    def build(self) -> Any:
        """Returns the command for the parser of the command line."""
        app = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        self.add_to(app)
        return get_command(app)

    def add_to(self, app: typer.Typer) -> None:
        """Adds the command to a group."""
        text = help_text(self.function.__doc__ or "", self.examples)
        app.command(self.name, cls=_PlainCommand, help=text)(self.function)


@dataclass(frozen=True)
class Group:
    """Commands that share their first word."""

    name: str
    text: str
    commands: Sequence[Command]  # the commands; the group's help shows the first example of each

    def build(self) -> Any:
        """Returns the group for the parser of the command line."""
        examples = [command.examples[0] for command in self.commands]
        app = typer.Typer(
            name=self.name,
            cls=PlainGroup,
            help=help_text(self.text, examples),
            no_args_is_help=True,
            rich_markup_mode="markdown",
        )
        for command in self.commands:
            command.add_to(app)
        return get_group(app)


def help_text(text: str, examples: Sequence[str]) -> str:
    """Returns help in Markdown: the text, and the examples."""
    return "\n".join([cleandoc(text), "", "**Examples**", "", "```", *examples, "```"])


class ExitCode(IntEnum):
    """Exit codes; those from 64 on have the meanings of ``sysexits.h``."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 69
    INTERNAL = 70
    NO_PERMISSION = 77
    CONFIG = 78


MEANINGS = {
    ExitCode.OK: "done; a harvester was stopped and has handed over",
    ExitCode.FAILED: "failed, or something must be fixed: no table, or what 'check', 'health', 'audit' found",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.UNAVAILABLE: "a database, broker or coordinator cannot be reached; later it may work",
    ExitCode.INTERNAL: "a defect of outbox or of a plugin",
    ExitCode.NO_PERMISSION: "a database or broker refuses the user, as far as its driver reports",
    ExitCode.CONFIG: "the configuration cannot be used, or a plugin is missing",
}
"""The meaning of each code, for ``--help`` and the documentation; a hard stop exits with 130 or 143."""


def exit_code(error: BaseException) -> ExitCode:
    """Returns the code with which ``error`` ends the program."""
    if isinstance(error, ConfigError):
        return ExitCode.CONFIG
    if isinstance(error, AccessDenied):
        return ExitCode.NO_PERMISSION
    if isinstance(error, DriverError) and error.retryable:
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILED


def seconds(text: str, option: str, *, least: float = 0.0) -> float:
    """Returns the seconds of a duration."""
    try:
        parsed = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if parsed < least:
        raise typer.BadParameter(f"expected at least {format_duration(least)}", param_hint=option)
    return parsed
