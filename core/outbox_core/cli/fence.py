"""``outbox fence``: who may work on the outbox, and how to end that."""

import getpass
import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import typer
from outbox_sdk.dialect import Holding
from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.cli.command import Command, Group
from outbox_core.cli.consent import YesOption, ask
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, quiet
from outbox_core.cli.terminal import note, output, plain, print_json
from outbox_core.config.duration import format_duration

_EFFECT = (
    "The present leader is fenced: it can mark, purge and reset nothing from now on, notices it at its next "
    "statement and stops its lanes. Whoever the election names then raises the token again and goes on, as a "
    "rule the same process, within a second or two. Nothing is lost; what was in flight is published again."
)


def show(context: typer.Context, file: FileOption = None, json: JsonOption = False) -> None:
    """Show who holds each lane of the outbox, under which token, and since when.

    Asks only the database. The reading of each lane is shown by 'outbox status'.
    """
    invocation: Invocation = context.obj
    settings = quiet(invocation.settings(file)).harvest
    with closing(settings.dialect.create().connect()) as table:
        held = table.holdings()
    if json:
        print_json({"outbox": settings.outbox, "lanes": [_as_data(lane) for lane in held]})
    elif held:
        output().print(_as_table(held))
    else:
        output().print("nobody has ever led")


def bump(
    context: typer.Context, file: FileOption = None, yes: YesOption = False, json: JsonOption = False
) -> None:
    """Raise the fence's token, so that whoever leads now is fenced at once.

    For a leader that does harm or hangs and cannot be stopped where it runs: from the moment this command
    returns it can change nothing in the outbox any more. The election is left alone, so the process that
    it names, the same one unless it has died, acquires again and goes on within a second or two. Records
    that were in flight are published again; nothing is lost.
    """
    invocation: Invocation = context.obj
    settings = quiet(invocation.settings(file)).harvest
    with closing(settings.dialect.create().connect()) as table:
        held = table.holdings()
        holder = f"{plain(held[0].holder)}, token {held[0].fence.token}" if held else "nobody yet"
        about = Text(f"outbox {settings.outbox} is held by {holder}.\n{_EFFECT}")
        ask(about, "Raise the token?", yes=yes)
        lanes = held[0].fence.lanes if held else settings.limits.send_concurrency
        name = _operator()
        token = table.bump(lanes, name)
    if json:
        print_json({"outbox": settings.outbox, "token": token, "lanes": lanes, "holder": name})
        return
    output().print(f"the token is {token} now, raised by {name}", markup=False, soft_wrap=True)
    if held:
        note(f"fenced: {holder}. The process that the election names acquires again by itself.")


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as containers have them
        user = "somebody"
    return f"operator {user} at {socket.gethostname()}"


def _as_data(lane: Holding) -> dict[str, Any]:
    return {
        "lane": lane.fence.lane,
        "lanes": lane.fence.lanes,
        "token": lane.fence.token,
        "attempt": lane.fence.attempt,
        "holder": lane.holder,
        "since": lane.since.isoformat(),
        "beat": lane.beat and lane.beat.isoformat(),
        "beat_age_seconds": lane.age,
    }


def _as_table(held: Sequence[Holding]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("lane", "of", "token", "attempt"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("holder", "since", "last beat"):
        table.add_column(heading)
    for lane in held:
        fence = lane.fence
        numbers = (str(number) for number in (fence.lane, fence.lanes, fence.token, fence.attempt))
        since = lane.since.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        beat = "none yet" if lane.age is None else f"{format_duration(max(0.0, round(lane.age, 1)))} ago"
        table.add_row(*numbers, Text(plain(lane.holder)), since, beat)
    return table


GROUP = Group(
    "fence",
    """See who holds the outbox, and take it away from a leader that does harm.

    The fence is a row for each lane beside the outbox. Every mark, purge and reset must match its token,
    which each new leader raises: whoever holds an older one can change nothing.
    """,
    (
        Command(show, ("outbox fence show -f outbox.yaml", "outbox fence show --json | jq '.lanes[].token'")),
        Command(bump, ("outbox fence bump -f outbox.yaml", "outbox fence bump --yes   # in scripts")),
    ),
)
