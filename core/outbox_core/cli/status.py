"""``outbox status``: the state of an outbox and its harvest, according to the database."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated

import typer
from outbox_sdk.errors import DriverError, OutboxError
from rich.console import RenderableType
from rich.live import Live

from outbox_core.cli.command import Command
from outbox_core.cli.durations import seconds
from outbox_core.cli.invocation import FileOption, JsonOption, StopSignals
from outbox_core.cli.outboxes import Chosen, OutboxOption, watched_outboxes
from outbox_core.cli.overview import overview
from outbox_core.cli.snapshot import as_text
from outbox_core.cli.terminal import output, print_message
from outbox_core.snapshot import Snapshot, Watches, as_data


def status(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Time between two queries.")] = "2s",
) -> None:
    """Show the backlog, who leads, what is parked, and what each lane does.

    Queries only the database, so it works on any machine, whichever process leads. The right to SELECT is
    enough, and it changes nothing.

    For exactly-once delivery it shows the batches of each lane, the oldest first: the stage of
    each, and its number of records.

    A lane without a heartbeat for a while is shown as silent: its process has ended, is frozen, or
    cannot reach the database.

    Of several outboxes it shows one line each; with --outbox all about one.
    """
    pause = seconds(interval, "--interval")
    chosen = watched_outboxes(context, file, outbox)
    if watch:
        _watch(chosen, pause, json=json)
    else:
        _show(chosen, chosen.look(Snapshot.of), json=json)


def _watch(chosen: Chosen, pause: float, *, json: bool) -> None:
    """Repeats until a signal; tolerates that a database is unavailable for a while."""
    live = output().is_terminal and not json
    with (
        StopSignals() as signals,
        Live(console=output(), auto_refresh=False) if live else nullcontext() as screen,
        Watches() as watches,
    ):
        while not signals.requested.is_set():
            try:
                found = chosen.look(watches.snapshot)
                if isinstance(screen, Live):
                    screen.update(_text(chosen, found), refresh=True)
                else:
                    _show(chosen, found, json=json)
            except DriverError as error:
                if not error.retryable:
                    raise
                print_message(f"{time.strftime('%H:%M:%S')} {error}")
            except typer.Exit:
                pass  # told, and looked at again
            signals.requested.wait(pause)


def _show(chosen: Chosen, found: Sequence[tuple[str, Snapshot | OutboxError]], *, json: bool) -> None:
    if chosen.single or json:
        chosen.show(found, as_data, as_text, json=json)
        return
    output().print(_text(chosen, found))
    chosen.tell_errors(found, json=json)


def _text(chosen: Chosen, found: Sequence[tuple[str, Snapshot | OutboxError]]) -> RenderableType:
    if chosen.single:
        [(_, snapshot)] = found
        assert isinstance(snapshot, Snapshot)  # noqa: S101 - an error is raised for one outbox alone
        return as_text(snapshot)
    return overview(found)


COMMAND = Command(
    status,
    (
        "outbox status -f outbox.yaml",
        "outbox status -f outbox.yaml --watch",
        "outbox status -f outbox.yaml --json | jq .backlog.oldest_seconds",
    ),
)
