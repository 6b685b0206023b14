"""``outbox status``: the state of an outbox and its harvest, according to the database."""

from collections.abc import Sequence
from typing import Annotated

import typer
from outbox_api.errors import OutboxError

from outbox_core.cli import watching
from outbox_core.cli.command import Command, seconds
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import Chosen, OutboxOption, watched_outboxes
from outbox_core.cli.snapshot import as_text
from outbox_core.cli.terminal import output
from outbox_core.cli.watching import overview
from outbox_core.snapshot import Snapshot, as_data

_SHORTEST = 0.001
"""Seconds between two queries; without any pause, a mistake would keep the database busy."""


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

    With --watch it also draws the course of the backlog, of the age of its oldest record and of the rate,
    for an hour at most, and tells what happens: a change of the leader, parked keys, problems. Where
    stdout is no terminal, it writes a line for each query and for each thing that happens.
    """
    pause = seconds(interval, "--interval", least=_SHORTEST)
    chosen = watched_outboxes(context, file, outbox)
    if watch:
        watching.watch(chosen, pause, json=json)
    else:
        _show(chosen, chosen.look(Snapshot.of), json=json)


def _show(chosen: Chosen, found: Sequence[tuple[str, Snapshot | OutboxError]], *, json: bool) -> None:
    if chosen.single or json:
        chosen.show(found, as_data, as_text, json=json)
        return
    output().print(overview(found))
    chosen.tell_errors(found, json=json)


COMMAND = Command(
    status,
    (
        "outbox status -f outbox.yaml",
        "outbox status -f outbox.yaml --watch",
        "outbox status -f outbox.yaml --json | jq .backlog.oldest_seconds",
    ),
)
