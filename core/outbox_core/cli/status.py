"""``outbox status``: how the harvest of one outbox is going, as the database tells it."""

import time
from contextlib import closing, nullcontext
from typing import Annotated

import typer
from outbox_sdk.dialect import Dialect
from outbox_sdk.errors import DriverError
from rich.live import Live

from outbox_core.cli.durations import seconds
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, StopSignals, quiet
from outbox_core.cli.picture import Picture, as_data, as_text
from outbox_core.cli.terminal import note, output, print_json
from outbox_core.config import HarvestSettings

EXAMPLES = (
    "outbox status -f outbox.yaml",
    "outbox status -f outbox.yaml --watch",
    "outbox status -f outbox.yaml --json | jq .backlog.oldest_seconds",
)
"""For ``--help``."""


def status(
    context: typer.Context,
    file: FileOption = None,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="How often to look.")] = "2s",
) -> None:
    """Show the backlog, who leads, what is parked, and what each lane does.

    Asks only the database, so it works from anywhere and whoever leads. Fence and dead letters are created
    where they are missing, and belong to who asks first: let that be 'outbox init' or the harvester's user.

    Lanes of exactly-once delivery tell of their batches, the oldest first: the first digits of the name, how
    far it is, and how many records it has.

    A lane that has not written its reading for a while is shown as silent: its leader is gone, frozen, or
    has nothing to say any more.
    """
    pause = seconds(interval, "--interval")
    invocation: Invocation = context.obj
    settings = quiet(invocation.settings(file)).harvest
    dialect = settings.dialect.create()
    if watch:
        _watch(dialect, settings, pause, json=json)
        return
    with closing(dialect.connect()) as table:
        _show(Picture.take(table, settings), json=json)


def _watch(dialect: Dialect, settings: HarvestSettings, pause: float, *, json: bool) -> None:
    """Looks until it is told to stop; a database that goes away for a while does not end it."""
    live = output().is_terminal and not json
    with (
        StopSignals() as signals,
        Live(console=output(), auto_refresh=False) if live else nullcontext() as screen,
    ):
        while not signals.requested.is_set():
            try:
                with closing(dialect.connect()) as table:
                    while not signals.requested.is_set():
                        picture = Picture.take(table, settings)
                        if isinstance(screen, Live):
                            screen.update(as_text(picture), refresh=True)
                        else:
                            _show(picture, json=json)
                        signals.requested.wait(pause)
            except DriverError as error:
                if not error.retryable:
                    raise
                note(f"{time.strftime('%H:%M:%S')} {error}")
                signals.requested.wait(pause)


def _show(picture: Picture, *, json: bool) -> None:
    if json:
        print_json(as_data(picture))
    else:
        output().print(as_text(picture))
