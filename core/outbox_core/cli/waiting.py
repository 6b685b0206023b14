"""``outbox waiting``: shows what waits, by topic and key, and the rows of one key."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from outbox_api.seams.outbox_view import WaitingKey
from rich import box
from rich.console import Group as Parts
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox
from outbox_core.cli.terminal import output, print_json
from outbox_core.operations import Waiting, WhatWaits, key_as_data
from outbox_core.text.printable import cut_key, printable
from outbox_core.text.wording import counted, duration

_SHOWN = 20
"""Topics, and keys, that are shown to people."""


def waiting(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", show_default=False, help="Only what is of this topic."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", show_default=False, help="The rows of this key; may read the whole table."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what waits: which topics and keys the first 10,000 rows have, how old they are, and why they wait.

    A key is parked, its topic is paused, a lane has marked the first of its rows, or it is free: then a lane
    takes it in its turn.
    """
    settings = operated_outbox(context, file, outbox)
    if key is not None:
        found = operations.rows_of_key(settings, key)
        if json:
            print_json({"outbox": settings.outbox, **key_as_data(found, settings.key_names)})
        else:
            output().print(_rows(found))
        return
    waits = operations.what_waits(settings).of_topic(topic)
    if json:
        print_json({"outbox": settings.outbox, **waits.as_data(settings.key_names)})
    else:
        output().print(_groups(waits))


def _groups(waits: WhatWaits) -> RenderableType:
    if not waits.topics:
        return (
            "nothing waits" if not waits.rows else f"none of the first {waits.rows:,} rows is of this topic"
        )
    of = counted(waits.rows, "row") if waits.exact else f"the first {counted(waits.rows, 'row')}"
    return Parts(
        Text(f"{of} looked at", "dim"),
        _table(("topic", "rows", "share", "oldest", "marked", "state", "parked keys"), waits.topics),
        _table(("topic", "rows", "share", "oldest", "marked", "state", "key"), waits.keys),
    )


def _table(headings: Sequence[str], found: Sequence[Waiting]) -> Table:
    left = {"topic", "key", "state"}
    table = _head(headings, left)
    for each in found[:_SHOWN]:
        group = each.group
        table.add_row(
            Text(printable(group.topic)),
            f"{group.rows:,}",
            f"{each.share:.0%}",
            _age(group.oldest),
            f"{group.marked:,}",
            str(each.state),
            f"{each.parked_keys:,}" if group.key is None else Text(cut_key(group.key)),
        )
    return table


def _rows(found: WaitingKey) -> RenderableType:
    if not found.rows:
        return "no row of this key waits"
    table = _head(("topic", "id", "age", "size", "marked"), {"topic", "marked"})
    for each in found.first:
        marked = "yes" if each.marked else "no"
        table.add_row(Text(printable(each.topic)), str(each.id), _age(each.age), f"{each.size:,}", marked)
    return Parts(Text(f"{counted(found.rows, 'row')} of this key", "dim"), table)


def _head(headings: Sequence[str], left: set[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", overflow="fold")
    return table


def _age(seconds: Any) -> str:
    return "?" if seconds is None else duration(seconds)


COMMAND = Command(
    waiting,
    (
        "outbox waiting -f outbox.yaml",
        "outbox waiting --topic orders --json",
        "outbox waiting --key order-4711",
    ),
)
