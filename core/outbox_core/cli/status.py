"""``outbox status``: the state of an outbox and its harvest, according to the database."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from typing import Annotated

import typer
from outbox_api.base.errors import DriverError, OutboxError
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from outbox_core.cli.command import Command, seconds
from outbox_core.cli.invocation import FileOption, JsonOption, StopSignals
from outbox_core.cli.outboxes import Chosen, OutboxOption, watched_outboxes
from outbox_core.cli.snapshot import as_text, overview
from outbox_core.cli.terminal import output, print_error, print_json, print_message
from outbox_core.status.snapshot import Snapshot, Views, as_data
from outbox_core.text.printable import printable
from outbox_core.text.redaction import redact_addresses
from outbox_core.text.wording import date_and_clock

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

    Queries only the database, so it works on any machine; the right to SELECT is enough. Of several outboxes
    it shows one line each; with --outbox all about one. A silent lane has written no heartbeat for a while:
    its process has ended, is frozen, or cannot reach the database.

    --watch repeats, also while the database is away. On a terminal it takes keys, which '?' lists and
    pip install 'outbox-harvester[watch]' adds.
    """
    pause = seconds(interval, "--interval", least=_SHORTEST)
    chosen = watched_outboxes(context, file, outbox)
    if watch:
        _watch(chosen, pause, json=json)
    else:
        _show(chosen, chosen.look(Snapshot.of), json=json)


def _show(chosen: Chosen, found: Sequence[tuple[str, Snapshot | OutboxError]], *, json: bool) -> None:
    if chosen.single or json:
        chosen.show(found, as_data, as_text, json=json)
        return
    output().print(overview(found))
    chosen.tell_errors(found, json=json)


Found = Sequence[tuple[str, Snapshot | OutboxError]]
"""The title of each outbox, and its state, or why that is not known."""


def _watch(chosen: Chosen, pause: float, *, json: bool) -> None:
    """Shows outboxes until a signal, also while a database is unavailable for a while."""
    if not json and _takes_keys():
        if find_spec("textual") is not None:
            _watch_with_keys(chosen, pause)
            return
        print_message("for keys: pip install 'outbox-harvester[watch]'")
    with StopSignals() as signals, Views() as views, _shown(chosen, json=json) as show:
        while not signals.requested.is_set():
            show(_look(chosen, views))
            signals.requested.wait(pause)


def _takes_keys() -> bool:
    """Returns whether there is a terminal to draw on, and to take keys from."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if output().is_dumb_terminal or not all(each is not None and each.isatty() for each in streams):
        return False
    return (sys.stderr.encoding or "").lower().startswith("utf")  # frames are no ASCII


def _watch_with_keys(chosen: Chosen, pause: float) -> None:
    # Sessions that break off would leave a terminal in this mode, in which a shell understands no key.
    os.environ.setdefault("TEXTUAL_DISABLE_KITTY_KEY", "1")
    from outbox_core.cli.watching.app import watch  # noqa: PLC0415 - of an extra, and slow

    with StopSignals() as signals:
        output().print(_text(chosen, watch(chosen, pause, signals.requested)))


def _look(chosen: Chosen, views: Views) -> Found:
    try:
        return chosen.look(views.snapshot)
    except DriverError as error:  # of one outbox alone
        if not error.retryable:
            raise
        return [(chosen.outboxes[0].title, error)]


@contextmanager
def _shown(chosen: Chosen, *, json: bool) -> Iterator[Callable[[Found], None]]:
    """Returns what shows a look: in a line of JSON, in place of the one before, or below it."""
    console = output()
    if json:
        yield partial(_print_line, chosen)
    elif sys.stdout.isatty() and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda found: live.update(_text(chosen, found), refresh=True)
    else:
        yield lambda found: console.print(date_and_clock(datetime.now(UTC)), _text(chosen, found), sep="\n")


def _print_line(chosen: Chosen, found: Found) -> None:
    if not chosen.single:
        print_json(chosen.as_data(found, as_data), in_one_line=True)
        return
    [(_, state)] = found
    if isinstance(state, Snapshot):
        print_json(as_data(state), in_one_line=True)
    else:
        print_error(str(state), state.code)


def _text(chosen: Chosen, found: Found) -> RenderableType:
    """Returns what a person reads of a look, and below it what is not known and why."""
    errors = [
        Text(printable(redact_addresses(str(state) if chosen.single else f"{title}: {state}")), "yellow")
        for title, state in found
        if isinstance(state, OutboxError)
    ]
    if not chosen.single:
        return Group(overview(found), *errors)
    return Group(*(as_text(state) for _, state in found if isinstance(state, Snapshot)), *errors)


COMMAND = Command(
    status,
    (
        "outbox status -f outbox.yaml",
        "outbox status -f outbox.yaml --watch",
        "outbox status -f outbox.yaml --json | jq .backlog.oldest_seconds",
    ),
)
