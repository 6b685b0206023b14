"""Assembles the commands into the program."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from outbox_sdk.errors import OutboxError
from typer.core import TyperGroup

from outbox_core.cli import (
    audit,
    check,
    demo,
    drivers,
    fence,
    health,
    init,
    new_dialect,
    parked,
    pump,
    run,
    status,
)
from outbox_core.cli.command import Command, Group, help_text
from outbox_core.cli.exits import MEANINGS, ExitCode, exit_code
from outbox_core.cli.invocation import FileOption, Invocation
from outbox_core.cli.terminal import messages, print_error, print_message

INTRODUCTION = """Moves records from an outbox table to Kafka: nothing lost, order kept per key.

An application writes a record to the outbox in its own transaction; **outbox run** publishes it.
"""
EXAMPLES = (
    "outbox check -f outbox.yaml            # find problems before the start",
    "outbox init -f outbox.yaml -t orders   # create the tables, and a topic",
    "outbox run -f outbox.yaml              # harvest until Ctrl-C",
    "outbox status -f outbox.yaml --watch   # backlog, leader, lanes",
)


def _exit_codes() -> str:
    codes = [f"- **{code}**: {meaning}" for code, meaning in MEANINGS.items()]
    return "\n".join(
        ["", "**Exit codes**", "", *codes, "- **130, 143**: stopped hard by a second Ctrl-C or SIGTERM"]
    )


# In the order in which a new user needs them.
COMMANDS: tuple[Command | Group, ...] = (
    Command(demo.demo, demo.EXAMPLES),
    Command(check.check, check.EXAMPLES),
    Command(init.init, init.EXAMPLES),
    Command(run.run, run.EXAMPLES),
    Command(status.status, status.EXAMPLES),
    Command(health.health, health.EXAMPLES),
    parked.GROUP,
    fence.GROUP,
    Command(pump.pump, pump.EXAMPLES),
    Command(audit.audit, audit.EXAMPLES),
    Command(drivers.drivers, drivers.EXAMPLES),
    Command(new_dialect.new_dialect, new_dialect.EXAMPLES),
)


class _InOrder(TyperGroup):
    """Lists commands and groups in our order; by default typer lists groups first."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - as in the base class
        """Returns the names in order."""
        return [entry.name for entry in COMMANDS]


app = typer.Typer(
    name="outbox",
    cls=_InOrder,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for entry in COMMANDS:
    entry.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outbox {version('outbox-core')} (Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback(help=help_text(INTRODUCTION, EXAMPLES) + _exit_codes())
def _every_command(
    context: typer.Context,
    file: FileOption = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Stores the options that are given before the command."""
    invocation: Invocation = context.obj
    invocation.file, invocation.debug = file, debug


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program and exits.

    Args:
        arguments: The command line after the program's name; ``None`` for this process's own.
    """
    invocation = Invocation()
    try:
        app(arguments, prog_name="outbox", obj=invocation)
    except OutboxError as error:
        print_error(str(error))
        if invocation.debug:
            messages().print_exception()
        sys.exit(exit_code(error))
    except Exception as error:  # noqa: BLE001 - a defect; reported below
        print_error(f"{type(error).__name__}: {error}")
        if invocation.debug:
            messages().print_exception()
        else:
            print_message("this is a defect of outbox or of a plugin; 'outbox --debug …' shows the traceback")
        sys.exit(ExitCode.INTERNAL)
