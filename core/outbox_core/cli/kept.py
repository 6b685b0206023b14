"""``outbox kept``: shows the delivered records that are kept, by day, by conditions, and one whole."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, NamedTuple

import typer
from outbox_api.seams.kept import Kept, KeptRecord
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command, Group
from outbox_core.cli.confirmation import ReasonOption, operator
from outbox_core.cli.dead_letters import (
    as_grid,
    contents_as_data,
    header_rows,
    place_rows,
    shortened,
)
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox, watched_outboxes
from outbox_core.cli.terminal import output, print_json
from outbox_core.operations import Choice
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import cut_key, printable
from outbox_core.text.wording import date_clock_and_zone

KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", show_default=False, help="Those of this key, whole.")
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="PATTERN",
        show_default=False,
        help="Those of a topic, with * and ?; repeatable.",
    ),
]
SinceOption = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        show_default=False,
        help="Delivered then or later: ISO 8601 (UTC if without a zone), or how long ago: 2h.",
    ),
]
UntilOption = Annotated[
    str, typer.Option(metavar="TIME", show_default=False, help="Delivered before then; likewise.")
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CONDITION",
        show_default=False,
        help="A condition, such as 'id >= 4711'; repeatable, and all must hold.",
    ),
]


def choice_of(
    key: str | None, topics: Sequence[str] | None, since: str, until: str, where: Sequence[str] | None
) -> Choice:
    """Returns what the options choose."""
    return Choice(key=key, topics=tuple(topics or ()), since=since, until=until, where=tuple(where or ()))


class _Days(NamedTuple):
    outbox: str
    days: Sequence[tuple[date, Kept]]

    @classmethod
    def of(cls, settings: HarvestSettings) -> "_Days":
        return cls(settings.outbox, operations.kept_days(settings))

    def as_data(self) -> dict[str, Any]:
        return {
            "outbox": self.outbox,
            "records": sum(kept.records for _, kept in self.days),
            "days": [{"day": day.isoformat(), **kept_as_data(kept)} for day, kept in self.days],
        }

    def as_text(self) -> RenderableType:
        if not self.days:
            return "nothing is kept"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("day (UTC)", "first", "last", "records", "keys", "MiB, about"):
            table.add_column(heading, justify="right" if heading[0] in "rkM" else "left", no_wrap=True)
        for day, kept in self.days:
            times = [f"{each:%H:%M:%S}" if each else "" for each in (kept.since, kept.until)]
            size = f"{kept.bytes / 2**20:,.1f}"
            table.add_row(day.isoformat(), *times, f"{kept.records:,}", f"{kept.keys:,}", size)
        return table


def kept_as_data(kept: Kept) -> dict[str, Any]:
    """Returns how much is kept as JSON data."""
    return {
        "records": kept.records,
        "keys": kept.keys,
        "bytes": kept.bytes,
        "without_value": kept.without_value,
        "without_headers": kept.without_headers,
        "first_position": kept.first,
        "last_position": kept.last,
        "since": kept.since and kept.since.isoformat(),
        "until": kept.until and kept.until.isoformat(),
    }


def days(
    context: typer.Context, file: FileOption = None, outbox: OutboxOption = None, json: JsonOption = False
) -> None:
    """Show how much is kept of each day: records, keys, the first and the last, and about how many bytes.

    Days and times are in UTC. It may read the whole table.
    """
    chosen = watched_outboxes(context, file, outbox)
    chosen.show(chosen.look(_Days.of), _Days.as_data, _Days.as_text, json=json)


def list_(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    key: KeyOption = None,
    topics: TopicsOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    where: WhereOption = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="List so many records at most.")] = 100,
    json: JsonOption = False,
) -> None:
    """List kept records without their values, in the order in which they were delivered.

    For the next ones, add --where 'position > N' with the last position of the list.
    """
    settings = operated_outbox(context, file, outbox)
    found = operations.kept_records(settings, choice_of(key, topics, since, until, where), limit)
    if json:
        print_json({"outbox": settings.outbox, "records": [as_data(each, settings) for each in found]})
    else:
        output().print(_as_table(found) if found else "no such record is kept")


def show(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    position: Annotated[int, typer.Argument(metavar="POSITION", min=1, help="The record's position.")],
    file: FileOption = None,
    outbox: OutboxOption = None,
    reason: ReasonOption = None,
    json: JsonOption = False,
) -> None:
    """Show one kept record with headers and value, which the journal records.

    Long values are cut for people; with --json they are whole, bytes in base64.
    """
    settings = operated_outbox(context, file, outbox)
    found = operations.reveal_kept(settings, position, operator(reason))
    if json:
        print_json({**as_data(found, settings), **contents_as_data(found.record)})
    else:
        output().print(_as_text(found))


def as_data(kept: KeptRecord, settings: HarvestSettings) -> dict[str, Any]:
    """Returns a kept record as JSON data, without headers and value."""
    record, names = kept.record, settings.key_names
    return {
        "position": kept.position,
        "key": record.key,
        **({"key_in_logs": names.of_listed(record.key)} if names.hashed else {}),
        "topic": record.topic,
        "id": record.id,
        "delivered_at": kept.delivered_at.isoformat(),
        "token": kept.token,
        "has_value": kept.has_value,
        "has_headers": kept.has_headers,
        "superseded": kept.superseded,
    }


def _as_table(found: Sequence[KeptRecord]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("position", "delivered", "key", "topic", "id"):
        right = heading in {"position", "id"}
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for each in found:
        record = each.record
        delivered = date_clock_and_zone(each.delivered_at) + " (superseded)" * each.superseded
        cells = (Text(cut_key(record.key)), Text(printable(record.topic)))
        table.add_row(str(each.position), delivered, *cells, str(record.id))
    return table


def _as_text(kept: KeptRecord) -> Table:
    record = kept.record
    return as_grid(
        [
            ("position", str(kept.position)),
            (
                "superseded" if kept.superseded else "delivered",
                f"{date_clock_and_zone(kept.delivered_at)}, token {kept.token}",
            ),
            *place_rows(record),
            *(header_rows(record) if kept.has_headers else [("headers", "not kept")]),
            ("value", shortened(record.value) if kept.has_value else "not kept"),
        ]
    )


COMMAND = Group(
    "kept",
    """See the delivered records that are kept: how many of each day, and which.

    The option 'keep' of the dialect says what is kept. 'outbox replay' stashes it again.
    """,
    (
        Command(days, ("outbox kept days -f outbox.yaml", "outbox kept days --json")),
        Command(
            list_,
            (
                "outbox kept list --key order-4711 --since 2h",
                "outbox kept list --topic 'orders.*' --since 2026-03-01 --until 2026-03-02 --json",
            ),
        ),
        Command(show, ("outbox kept show 90177", "outbox kept show 90177 --json | jq .value")),
    ),
)
