"""``outbox parked``: shows parked keys, and lets an operator retry, skip or redrive them."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import typer
from outbox_sdk.errors import OutboxError
from outbox_sdk.parking import DeadLetter, DeadLetterStatus, listed_key
from rich.console import Group as Parts
from rich.console import RenderableType
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command, Group
from outbox_core.cli.confirmation import YesOption, confirm
from outbox_core.cli.dead_letters import as_data, as_full_data, as_table, as_text
from outbox_core.cli.exits import ExitCode
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, operated_outbox, watched_outboxes
from outbox_core.cli.reason import ReasonOption, operator, tell_unnoted
from outbox_core.cli.terminal import output, print_json, print_message, printable
from outbox_core.config import HarvestSettings
from outbox_core.operations import Changed, Operator, Verb, effect

_KeysArgument = Annotated[
    list[str] | None, typer.Argument(metavar="KEY…", show_default=False, help="The keys.")
]
_AllOption = Annotated[bool, typer.Option("--all", help="All keys, instead of names.")]
_DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show which dead letters would change, and change nothing.")
]


def list_(
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="List skipped records instead, which can be redriven.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the keys that are parked, each with the record that could not be delivered, and why."""
    status = DeadLetterStatus.SKIPPED if skipped else DeadLetterStatus.PARKED

    def look(settings: HarvestSettings) -> tuple[HarvestSettings, list[DeadLetter]]:
        return settings, operations.letters(settings, status)

    def data(found: tuple[HarvestSettings, list[DeadLetter]]) -> dict[str, object]:
        settings, letters = found
        return {
            "outbox": settings.outbox,
            "letters": [as_data(letter, settings.key_names) for letter in letters],
        }

    def text(found: tuple[HarvestSettings, list[DeadLetter]]) -> RenderableType:
        settings, letters = found
        return as_table(letters, names=settings.key_names) if letters else f"nothing is {status}"

    chosen = watched_outboxes(context, file, outbox)
    chosen.show(chosen.look(look), data, text, json=json)


def show(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False, help="The key.")],
    file: FileOption = None,
    outbox: OutboxOption = None,
    json: JsonOption = False,
) -> None:
    """Show everything about one key: its parked record and those skipped, and how many rows wait.

    Long values are cut for people; with --json they are whole, and bytes are in base64. Counting the rows may
    read the whole outbox.
    """
    settings = operated_outbox(context, file, outbox)
    with closing(settings.dialect.create().dead_letters(read_only=True)) as dead:
        letters = dead.find([key])
        if not letters:
            raise OutboxError(f"{_key_list([key])} is neither parked nor skipped; see 'outbox parked list'")
        waiting = dead.waiting(key)
    if json:
        found = [as_full_data(letter, settings.key_names) for letter in letters]
        print_json({"key": key, "waiting": waiting, "letters": found})
    else:
        output().print(as_text(letters, waiting))


def retry(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    keys: _KeysArgument = None,
    file: FileOption = None,
    outbox: OutboxOption = None,
    everything: _AllOption = False,
    dry_run: _DryRunOption = False,
    reason: ReasonOption = None,
    json: JsonOption = False,
) -> None:
    """Let parked keys flow again, their failed record first.

    Use it once the cause is removed: the broker accepts larger messages now, the topic exists, or you have
    repaired the record, with an SQL UPDATE of its row in the outbox. A record that fails again is parked
    again.
    """
    _apply(
        _RETRY,
        _Request(operated_outbox(context, file, outbox), keys or [], everything, dry_run, json, reason),
    )


def skip(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    keys: _KeysArgument = None,
    file: FileOption = None,
    outbox: OutboxOption = None,
    everything: _AllOption = False,
    dry_run: _DryRunOption = False,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Give up the failed record of parked keys, and let the records behind it flow.

    The record is deleted from the outbox and is not delivered; consumers see a gap. It is kept as a skipped
    dead letter, and 'outbox parked redrive' stashes it again.
    """
    _apply(
        _SKIP,
        _Request(operated_outbox(context, file, outbox), keys or [], everything, dry_run, json, reason, yes),
    )


def redrive(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    keys: _KeysArgument = None,
    file: FileOption = None,
    outbox: OutboxOption = None,
    everything: _AllOption = False,
    dry_run: _DryRunOption = False,
    reason: ReasonOption = None,
    json: JsonOption = False,
) -> None:
    """Stash skipped records again, behind all records that their keys have in the outbox now.

    They are delivered later than they were written, so consumers see them out of their original order.
    """
    _apply(
        _REDRIVE,
        _Request(operated_outbox(context, file, outbox), keys or [], everything, dry_run, json, reason),
    )


@dataclass(frozen=True)
class _Action:
    """An action on dead letters.

    Attributes:
        verb: Its name.
        status: The status of the letters that it applies to.
        question: The question to confirm; empty for none.
        act: Applies the action to the letters with these ids.
    """

    verb: Verb
    status: DeadLetterStatus
    question: str
    act: Callable[[HarvestSettings, Sequence[int], Operator], Changed]


_RETRY = _Action(Verb.RETRY, DeadLetterStatus.PARKED, "", operations.retry)
_SKIP = _Action(Verb.SKIP, DeadLetterStatus.PARKED, "Give up these records, undelivered?", operations.skip)
_REDRIVE = _Action(Verb.REDRIVE, DeadLetterStatus.SKIPPED, "", operations.redrive)


@dataclass(frozen=True)
class _Request:
    """The command line's arguments and options."""

    settings: HarvestSettings
    keys: list[str]
    everything: bool
    dry_run: bool
    json: bool
    reason: str | None
    yes: bool = False


def _apply(action: _Action, request: _Request) -> None:
    if bool(request.keys) == request.everything:
        raise typer.BadParameter("name keys, or give --all", param_hint="KEY…")
    letters = _selected(action, request)
    ids = [letter.record.id for letter in letters]
    if request.dry_run:
        outcomes = dict.fromkeys(ids, "would change")
    else:
        changed = set(_act(action, request, letters, ids).changed) if letters else set()
        outcomes = {number: "changed" if number in changed else "gone" for number in ids}
    _print_outcomes(action, request, letters, outcomes)
    if "gone" in outcomes.values():
        raise typer.Exit(ExitCode.FAILED)


def _selected(action: _Action, request: _Request) -> list[DeadLetter]:
    letters = operations.letters(request.settings, action.status, request.keys)
    there = {letter.record.key for letter in letters}  # as lists have them
    unknown = [key for key in dict.fromkeys(request.keys) if listed_key(key) not in there]
    if unknown:
        option = " --skipped" if action.status is DeadLetterStatus.SKIPPED else ""
        raise OutboxError(
            f"not {action.status}: {_key_list(unknown)}; nothing was done. See 'outbox parked list{option}'"
        )
    return letters


def _act(action: _Action, request: _Request, letters: Sequence[DeadLetter], ids: Sequence[int]) -> Changed:
    if action.question:
        confirm(Parts(as_table(letters), Text(effect(action.verb))), action.question, yes=request.yes)
    else:
        print_message(effect(action.verb))
    done = action.act(request.settings, ids, operator(request.reason, yes=request.yes))
    tell_unnoted(done.unnoted)
    return done


def _print_outcomes(
    action: _Action, request: _Request, letters: Sequence[DeadLetter], outcomes: dict[int, str]
) -> None:
    if request.json:
        data = [{"outcome": outcomes[letter.record.id], **as_data(letter)} for letter in letters]
        print_json({"verb": action.verb, "dry_run": request.dry_run, "letters": data})
        return
    if not letters:
        output().print(f"nothing is {action.status}")
        return
    output().print(as_table(letters, outcomes))
    if gone := sum(outcome == "gone" for outcome in outcomes.values()):
        print_message(f"{gone} of {len(letters)} did not exist any more: they were changed at the same time")


def _key_list(keys: Sequence[str]) -> str:
    return ", ".join(f"key '{printable(key)}'" for key in keys)


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
        Command(retry, ("outbox parked retry order-4711 order-4712", "outbox parked retry --all --dry-run")),
        Command(
            skip, ("outbox parked skip order-4711", "outbox parked skip order-4711 --yes   # in scripts")
        ),
        Command(redrive, ("outbox parked redrive order-4711", "outbox parked redrive --all")),
    ),
)
