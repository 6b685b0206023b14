"""``outbox journal``: lists what operators have done to an outbox."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from outbox_api.seams.journal import ALL_ENTRIES, Entry
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, watched_outboxes
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import printable
from outbox_core.text.wording import date_clock_and_zone


def journal(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    by: Annotated[
        str,
        typer.Option(
            "--operator", metavar="NAME", show_default=False, help="Of operators whose name has this."
        ),
    ] = "",
    verb: Annotated[
        str, typer.Option(metavar="VERB", show_default=False, help="Of this verb, such as retry.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            show_default=False,
            help="Begun then or later: ISO 8601 (UTC if without a zone), or how long ago: 2h.",
        ),
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="TIME", show_default=False, help="Begun before then; likewise.")
    ] = "",
    after: Annotated[
        str, typer.Option(metavar="ID", show_default=False, help="Those behind this entry in the list.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="List so many entries at most.")] = 100,
    json: JsonOption = False,
) -> None:
    """List what operators have done to the outbox, the newest first: when, who, what, why, and the outcome.

    Each action is recorded before it is done, and its outcome afterwards. An entry without an outcome is of a
    program that was ended in between: done or not. Long texts are cut for people; with --json they are whole.
    """
    wanted = operations.entries_of(by, verb, since, until, after)

    def look(settings: HarvestSettings) -> _Listed:
        return _Listed(settings.outbox, operations.entries(settings, limit, wanted), wanted != ALL_ENTRIES)

    chosen = watched_outboxes(context, file, outbox)
    chosen.show(chosen.look(look), _Listed.as_data, _Listed.as_text, json=json)


_LONGEST = 200
"""Characters of a subject, a reason or an outcome in the table."""


class _Listed(NamedTuple):
    outbox: str
    entries: Sequence[Entry]
    chosen: bool  # whether it is only some of them

    def as_data(self) -> dict[str, Any]:
        return {"outbox": self.outbox, "entries": [_as_data(entry) for entry in self.entries]}

    def as_text(self) -> RenderableType:
        if not self.entries:
            return "there is no such entry" if self.chosen else "no operator has done anything yet"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("when", "who", "via", "what", "to what", "why", "outcome"):
            table.add_column(heading, overflow="fold", no_wrap=heading == "when")
        for entry in self.entries:
            action = entry.action
            outcome = "not known: interrupted" if entry.outcome is None else entry.outcome
            table.add_row(
                date_clock_and_zone(entry.at),
                *(
                    Text(_short(text))
                    for text in (action.operator, action.via, action.verb, action.subject, action.reason)
                ),
                Text(_short(outcome), "yellow" if entry.outcome is None else ""),
            )
        return table


def _short(text: str) -> str:
    cut = f"… ({len(text):,} characters)" if len(text) > _LONGEST else ""
    return printable(text[:_LONGEST]) + cut


def _as_data(entry: Entry) -> dict[str, Any]:
    action = entry.action
    return {
        "id": str(entry.id),
        "at": entry.at.isoformat(),
        "operator": action.operator,
        "via": action.via,
        "verb": action.verb,
        "subject": action.subject,
        "reason": action.reason,
        "outcome": entry.outcome,
    }


COMMAND = Command(journal, ("outbox journal -f outbox.yaml", "outbox journal --verb skip --since 7d --json"))
