"""Assembles the commands into the program."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from outbox_api.base.errors import OutboxError, PluginError

from outbox_core.cli.command import MEANINGS, Command, ExitCode, Group, PlainGroup, exit_code, help_text
from outbox_core.cli.invocation import FileOption, Invocation, Read
from outbox_core.cli.terminal import messages, prepared_streams, print_error, print_message
from outbox_core.config import load

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


COMMANDS: dict[str, str] = {
    "demo": "Watch a demonstration: records flow, the leader is killed, an audit compares.",
    "check": "Find problems before you start a harvester.",
    "init": "Create the outbox table, the fence and topics, if they do not exist.",
    "migrate": "Bring tables that an earlier version of outbox made up to this version.",
    "run": "Harvest until Ctrl-C or SIGTERM.",
    "status": "Show the backlog, who leads, what is parked, and what each lane does.",
    "health": "Check whether the outbox is harvested as it should be.",
    "explain": "Say what an error, a health problem or an alarm means, and what to do.",
    "waiting": "Show what waits: which topics and keys the first 10,000 rows have, how old they are, "
    "and why they wait.",
    "parked": "See the keys that are parked because a record cannot be delivered, and free them.",
    "kept": "See the delivered records that are kept: how many of each day, and which.",
    "replay": "Stash kept records again, in the order in which they were delivered.",
    "pause": "Have the records of a topic, or of the whole outbox, wait until they are resumed.",
    "resume": "Deliver again what 'outbox pause' has paused; what has waited keeps its order.",
    "partitions": "Add partitions to a topic, and keep the order of each key's records.",
    "fence": "See who holds the outbox, and take it away from a leader that does harm.",
    "takeover": "Take the records of another cluster over at once, and end it; "
    "without an option, list the takeovers.",
    "journal": "List what operators have done to the outbox, the newest first: when, who, what, why, "
    "and the outcome.",
    "forget": "Erase a key: from kept records, from skipped dead letters, and from the texts of the journal.",
    "export": "Describe what is published, for other tools.",
    "pump": "Write records into the outbox, as an application would.",
    "audit": "Compare the records that an application committed with those in the topics.",
    "drivers": "List the drivers of every seam, installed or missing.",
    "schema": "Print the JSON schema of outbox.yaml for editors, with the options of all installed drivers.",
    "new-dialect": "Create a dialect for another database: "
    "a distribution whose tests say what to write next.",
    "new-elector": "Create an elector on another coordinator: "
    "a distribution that works, with a file as the coordinator.",
    "new-publisher": "Create a publisher to another broker: "
    "a distribution that works, with files as the broker.",
    "new-engine": "Create an engine: a distribution that works, with processes of this machine.",
}
"""Name of a command or group → the first sentence of its help, in the order in which a new user needs them.

Each has a module of the same name, is in ``new_driver``, or is one of :data:`PROVIDED`. It is imported when
the command is called: a harvester starts sooner without what other commands need.
"""

PROVIDED = {"demo": "outbox-demo", "pump": "outbox-audit", "audit": "outbox-audit"}
"""Commands that other distributions provide, by entry points → which."""

GROUP = "outbox.commands"
"""The group of these entry points."""

DEFECT = "OUTBOX-DEFECT"
"""The code of what is no :class:`OutboxError`."""


def load_command(name: str) -> Command | Group:
    """Imports a command or group of ``COMMANDS``, and returns it."""
    command: Command | Group
    if name not in PROVIDED:
        if name.startswith("new-"):
            from outbox_core.cli.new_driver import COMMANDS as DRIVERS  # noqa: PLC0415 - only where it is called

            return DRIVERS[name]
        command = import_module(f"outbox_core.cli.{name}").COMMAND
        return command
    cure = f"run: pip install {PROVIDED[name]}"
    installed = entry_points(group=GROUP, name=name)
    if not installed:
        raise PluginError(f"the command '{name}' is not installed; {cure}")
    try:
        command = next(iter(installed)).load()
    except ModuleNotFoundError as error:
        raise PluginError(f"the command '{name}' needs {error.name}, which is missing; {cure}") from error
    return command


class _Program(PlainGroup):
    """Lists commands without importing them, and imports the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and load_command(listed.name or "").build(), rest


app = typer.Typer(
    name="outbox",
    cls=_Program,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command_name, summary in COMMANDS.items():
    app.command(command_name, help=summary)(lambda: None)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and seldom needed

        typer.echo(f"outbox {version('outbox-harvester')} (Python {sys.version.split()[0]})")
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


def main(arguments: Sequence[str] | None = None, read: Read = load) -> None:
    """Runs the program and exits.

    Args:
        arguments: The command line after the program's name; ``None`` for this process's own.
        read: Reads the settings, for a program that has them elsewhere than in a file.
    """
    invocation = Invocation(read=read)
    try:
        with prepared_streams():
            app(arguments, prog_name="outbox", obj=invocation)
    except OutboxError as error:
        print_error(str(error), error.code)
        if invocation.debug:
            messages().print_exception()
        sys.exit(exit_code(error))
    except Exception as error:  # noqa: BLE001 - a defect; reported below
        print_error(f"{type(error).__name__}: {error}", DEFECT)
        if invocation.debug:
            messages().print_exception()
        else:
            print_message("this is a defect of outbox or of a plugin; 'outbox --debug …' shows the traceback")
        sys.exit(ExitCode.INTERNAL)
