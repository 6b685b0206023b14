"""``outbox parked``: shows parked keys, and lets an operator retry, skip or redrive them."""

from contextlib import closing
from typing import Annotated

import typer
from outbox_api.base.errors import OutboxError
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus
from rich.console import RenderableType

from outbox_core import operations
from outbox_core.cli.command import Command, Group
from outbox_core.cli.confirmation import ReasonOption, YesOption
from outbox_core.cli.dead_letter_verbs import Request, apply, named
from outbox_core.cli.dead_letters import as_data, as_full_data, as_table, as_text
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox, watched_outboxes
from outbox_core.cli.terminal import output, print_json
from outbox_core.operations import LetterFilter, Verb
from outbox_core.settings import HarvestSettings

_KeysArgument = Annotated[
    list[str] | None, typer.Argument(metavar="KEY…", show_default=False, help="The keys.")
]
_IdsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--id",
        metavar="ID",
        show_default=False,
        help="A record's id in the list, instead of a key; repeatable.",
    ),
]
_TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", show_default=False, help="Those of this topic."),
]
_ErrorOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        show_default=False,
        help="Those whose error contains this, in any case.",
    ),
]
_OlderOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", show_default=False, help="Of so long ago at least, such as 2h."),
]
_YoungerOption = Annotated[
    str | None, typer.Option(metavar="DURATION", show_default=False, help="Of so long ago at most.")
]
_AllOption = Annotated[bool, typer.Option("--all", help="All keys, instead of names.")]
_DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show which dead letters would change, and change nothing.")
]


def _filter(
    topic: str | None, error: str | None, older_than: str | None, younger_than: str | None
) -> LetterFilter:
    return LetterFilter.of(
        {"topic": topic, "reason": error, "older_than": older_than, "younger_than": younger_than}
    )


def list_(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    topic: _TopicOption = None,
    error: _ErrorOption = None,
    older_than: _OlderOption = None,
    younger_than: _YoungerOption = None,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="List skipped records instead, which can be redriven.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the keys that are parked, each with the record that could not be delivered, and why."""
    status = DeadLetterStatus.SKIPPED if skipped else DeadLetterStatus.PARKED
    where = _filter(topic, error, older_than, younger_than)

    def look(settings: HarvestSettings) -> tuple[HarvestSettings, list[DeadLetter]]:
        return settings, where.chosen(operations.letters(settings, status), settings.key_names)

    def data(found: tuple[HarvestSettings, list[DeadLetter]]) -> dict[str, object]:
        settings, letters = found
        return {
            "outbox": settings.outbox,
            "letters": [as_data(letter, settings.key_names) for letter in letters],
        }

    def text(found: tuple[HarvestSettings, list[DeadLetter]]) -> RenderableType:
        settings, letters = found
        if not letters:
            return f"nothing is {status}" + ("" if where == LetterFilter() else " that matches")
        return as_table(letters, names=settings.key_names)

    chosen = watched_outboxes(context, file, outbox)
    chosen.show(chosen.look(look), data, text, json=json)


def show(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(metavar="KEY", show_default=False, help="The key.")] = None,
    file: FileOption = None,
    outbox: OutboxOption = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--id", metavar="ID", show_default=False, help="A record's id in the list, for its key."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show everything about one key: its parked record and those skipped, and how many rows wait.

    Long values are cut for people; with --json they are whole, bytes in base64. It may read the whole outbox.
    """
    if (key is None) == (number is None):
        raise typer.BadParameter("name a key, or an id with --id", param_hint="KEY")
    settings = operated_outbox(context, file, outbox)
    with closing(settings.dialect.create().dead_letters(read_only=True)) as dead:
        if number is not None:
            key = next((letter.record.key for letter in dead.find(ids=[number])), None)
        letters = [] if key is None else dead.find([key])
        if key is None or not letters:
            which = f"record {number}" if key is None else named(key)
            raise OutboxError(f"{which} is neither parked nor skipped; see 'outbox parked list'")
        waiting = dead.waiting(key)
    if json:
        found = [as_full_data(letter, settings.key_names) for letter in letters]
        print_json({"key": key, "waiting": waiting, "letters": found})
    else:
        output().print(as_text(letters, waiting))


def _change(verb: Verb, told: str, *examples: str) -> Command:
    """Returns the command that does a verb to dead letters."""

    def change(  # noqa: PLR0917 - typer makes each parameter an option
        context: typer.Context,
        keys: _KeysArgument = None,
        file: FileOption = None,
        outbox: OutboxOption = None,
        ids: _IdsOption = None,
        everything: _AllOption = False,
        topic: _TopicOption = None,
        error: _ErrorOption = None,
        older_than: _OlderOption = None,
        younger_than: _YoungerOption = None,
        dry_run: _DryRunOption = False,
        reason: ReasonOption = None,
        yes: YesOption = False,
        json: JsonOption = False,
    ) -> None:
        settings = operated_outbox(context, file, outbox)
        where = _filter(topic, error, older_than, younger_than)
        apply(verb, Request(settings, keys, ids, everything, where, dry_run, json, reason, yes))

    change.__name__, change.__doc__ = verb.value, told
    return Command(change, examples)


COMMAND = Group(
    "parked",
    """See the keys that are parked because a record cannot be delivered, and free them.

    The failed record is copied to the dead letters with its error. Its row and all rows of its key behind it
    wait in the outbox, in order, while other keys flow. **retry** tries the record again, **skip** gives it
    up, **redrive** stashes a skipped record again.
    """,
    (
        Command(list_, ("outbox parked list -f outbox.yaml", "outbox parked list --skipped --json")),
        Command(
            show,
            ("outbox parked show order-4711", "outbox parked show order-4711 --json | jq .letters[0].value"),
        ),
        _change(
            Verb.RETRY,
            """Let parked keys flow again, their failed record first.

            Use it once the cause is removed, or you have repaired the record with an SQL UPDATE of its row. A
            record that fails again is parked again.
            """,
            "outbox parked retry order-4711 order-4712",
            "outbox parked retry --all --dry-run",
            "outbox parked retry --topic orders --older-than 2h",
        ),
        _change(
            Verb.SKIP,
            """Give up the failed record of parked keys, and let the records behind it flow.

            The record is deleted from the outbox and is not delivered; consumers see a gap. It stays a dead
            letter, for 'outbox parked redrive'.
            """,
            "outbox parked skip order-4711",
            "outbox parked skip order-4711 --yes   # in scripts",
        ),
        _change(
            Verb.REDRIVE,
            """Stash skipped records again, behind all records that their keys have in the outbox now.

            Consumers see them late, out of their original order.
            """,
            "outbox parked redrive order-4711",
            "outbox parked redrive --id 90177 --yes   # in scripts",
        ),
    ),
)
