"""``outbox status``: the state of an outbox and its harvest, according to the database."""

import time
from contextlib import closing, nullcontext
from typing import Annotated

import typer
from outbox_sdk.dialect import Dialect
from outbox_sdk.errors import DriverError
from rich.live import Live

from outbox_core.cli.command import Command
from outbox_core.cli.durations import seconds
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, StopSignals, log_warnings_only
from outbox_core.cli.snapshot import Snapshot, as_data, as_text
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.config import HarvestSettings


def status(
    context: typer.Context,
    file: FileOption = None,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two queries.")] = "2s",
) -> None:
    """Show the backlog, who leads, what is parked, and what each lane does.

    Queries only the database, so it works on any machine, whichever process leads. Creates the tables of the
    fence and of dead letters if they are missing. They belong to the user who creates them: run 'outbox init'
    first, or use the harvester's user.

    For exactly-once delivery it shows the batches of each lane, the oldest first: the stage of
    each, and its number of records.

    A lane without a heartbeat for a while is shown as silent: its process has ended, is frozen, or
    cannot reach the database.
    """
    pause = seconds(interval, "--interval")
    invocation: Invocation = context.obj
    settings = log_warnings_only(invocation.settings(file)).harvest
    dialect = settings.dialect.create()
    if watch:
        _watch(dialect, settings, pause, json=json)
        return
    with closing(dialect.connect()) as table:
        _show(Snapshot.take(table, settings), json=json)


def _watch(dialect: Dialect, settings: HarvestSettings, pause: float, *, json: bool) -> None:
    """Repeats until a signal; tolerates that the database is unavailable for a while."""
    live = output().is_terminal and not json
    with (
        StopSignals() as signals,
        Live(console=output(), auto_refresh=False) if live else nullcontext() as screen,
    ):
        while not signals.requested.is_set():
            try:
                with closing(dialect.connect()) as table:
                    while not signals.requested.is_set():
                        snapshot = Snapshot.take(table, settings)
                        if isinstance(screen, Live):
                            screen.update(as_text(snapshot), refresh=True)
                        else:
                            _show(snapshot, json=json)
                        signals.requested.wait(pause)
            except DriverError as error:
                if not error.retryable:
                    raise
                print_message(f"{time.strftime('%H:%M:%S')} {error}")
                signals.requested.wait(pause)


def _show(snapshot: Snapshot, *, json: bool) -> None:
    if json:
        print_json(as_data(snapshot))
    else:
        output().print(as_text(snapshot))


COMMAND = Command(
    status,
    (
        "outbox status -f outbox.yaml",
        "outbox status -f outbox.yaml --watch",
        "outbox status -f outbox.yaml --json | jq .backlog.oldest_seconds",
    ),
)
