"""Applies a verb to the dead letters that a command line names."""

from collections.abc import Sequence
from dataclasses import dataclass

import typer
from outbox_api.base.errors import OutboxError
from outbox_api.seams.parking import DeadLetter, DeadLetterStatus, listed_key
from rich.console import Group as Parts
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import ExitCode
from outbox_core.cli.confirmation import confirm, operator, tell_unnoted
from outbox_core.cli.dead_letters import as_data, as_table, row_as_text
from outbox_core.cli.terminal import messages, output, print_json, print_message
from outbox_core.operations import Arguments, Changed, LetterFilter, Verb
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import printable
from outbox_core.text.wording import counted

ROWS_SHOWN = 5
"""How many of the rows that are tried again are shown."""


@dataclass(frozen=True)
class Request:
    """The command line's arguments and options."""

    settings: HarvestSettings
    keys: list[str] | None
    ids: list[int] | None
    everything: bool
    where: LetterFilter
    dry_run: bool
    json: bool
    reason: str | None
    yes: bool = False


def apply(verb: Verb, request: Request) -> None:
    """Applies a verb, prints what has changed, and ends with 1 if something was gone by then."""
    is_filtered = request.where != LetterFilter()
    if sum(map(bool, (request.keys, request.ids, request.everything or is_filtered))) != 1:
        raise typer.BadParameter(
            "name keys, or ids with --id, or give --all or conditions such as --topic", param_hint="KEY…"
        )
    letters = _selected(verb, request)
    ids = [letter.record.id for letter in letters]
    if verb is Verb.RETRY and (request.dry_run or messages().is_terminal) and not request.json:
        _tell_rows(request.settings, ids)
    if request.dry_run:
        outcomes = dict.fromkeys(ids, "would change")
    else:
        changed = set(_act(verb, request, letters, ids).changed) if letters else set()
        outcomes = {number: "changed" if number in changed else "gone" for number in ids}
    _print_outcomes(verb, request, letters, outcomes)
    if "gone" in outcomes.values():
        raise typer.Exit(ExitCode.FAILED)


def _selected(verb: Verb, request: Request) -> list[DeadLetter]:
    letters = operations.letters(request.settings, verb.about.status, request.keys or [], request.ids or None)
    keys = {letter.record.key for letter in letters}  # as lists have them
    ids = {letter.record.id for letter in letters}
    unknown = [named(key) for key in dict.fromkeys(request.keys or []) if listed_key(key) not in keys]
    unknown += [f"record {number}" for number in dict.fromkeys(request.ids or []) if number not in ids]
    if unknown:
        status = verb.about.status
        option = " --skipped" if status is DeadLetterStatus.SKIPPED else ""
        raise OutboxError(
            f"not {status}: {', '.join(unknown)}; nothing was done. See 'outbox parked list{option}'"
        )
    return request.where.chosen(letters, request.settings.key_names)


def _act(verb: Verb, request: Request, letters: Sequence[DeadLetter], ids: Sequence[int]) -> Changed:
    if verb.about.question:
        confirm(Parts(as_table(letters), Text(verb.effect())), verb.about.question, yes=request.yes)
    else:
        print_message(verb.effect())
    done = operations.perform(
        verb, request.settings, Arguments(ids), operator(request.reason, yes=request.yes)
    )
    assert isinstance(done, Changed)  # noqa: S101 - of these verbs
    tell_unnoted(done.unnoted)
    return done


def _tell_rows(settings: HarvestSettings, ids: Sequence[int]) -> None:
    """Shows what is tried: somebody may have repaired the rows, of which letters have copies from before."""
    for row in operations.rows_now(settings, ids[:ROWS_SHOWN]):
        messages().print("the row as it is now", row_as_text(row), sep="\n")
    if (more := len(ids) - ROWS_SHOWN) > 0:
        print_message(f"and {counted(more, 'row')} more")


def _print_outcomes(
    verb: Verb, request: Request, letters: Sequence[DeadLetter], outcomes: dict[int, str]
) -> None:
    if request.json:
        data = [{"outcome": outcomes[letter.record.id], **as_data(letter)} for letter in letters]
        print_json({"verb": verb, "dry_run": request.dry_run, "letters": data})
        return
    if not letters:
        matching = "" if request.where == LetterFilter() else " that matches"
        output().print(f"nothing is {verb.about.status}{matching}")
        return
    output().print(as_table(letters, outcomes))
    if gone := sum(outcome == "gone" for outcome in outcomes.values()):
        print_message(f"{gone} of {len(letters)} did not exist any more: they were changed at the same time")


def named(key: str) -> str:
    """Returns how messages name a key."""
    return f"key '{printable(key)}'"
