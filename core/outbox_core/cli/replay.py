"""``outbox replay``: stashes kept records again."""

import time
from typing import Annotated, Any

import typer
from outbox_api.base.errors import ConfigError
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command, ExitCode
from outbox_core.cli.confirmation import ReasonOption, YesOption, confirm, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, JsonOption, StopSignals
from outbox_core.cli.kept import (
    KeyOption,
    SinceOption,
    TopicsOption,
    UntilOption,
    WhereOption,
    as_data,
    choice_of,
    kept_as_data,
)
from outbox_core.cli.outboxes import OutboxOption, operated_outbox
from outbox_core.cli.progress import progress
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.operations import Operator, Pace, Prepared, Replayed, Verb, Wanted
from outbox_core.operations.replaying import MOST_WAITING
from outbox_core.settings import HarvestSettings
from outbox_core.text.duration import format_duration
from outbox_core.text.printable import printable


def replay(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", show_default=False, help="The replay's name, used once.")
    ],
    file: FileOption = None,
    outbox: OutboxOption = None,
    key: KeyOption = None,
    topics: TopicsOption = None,
    since: SinceOption = "",
    until: UntilOption = "",
    where: WhereOption = None,
    to: Annotated[
        str, typer.Option(metavar="TOPIC", show_default=False, help="Replaces the topic of the records.")
    ] = "",
    rate: Annotated[
        int | None, typer.Option(min=1, metavar="N", show_default=False, help="Records a second at most.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be stashed, and change nothing.")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="End the replay of this name that has begun, as it is.")
    ] = False,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Stash kept records again, in the order in which they were delivered.

    The harvester delivers them as any other records, behind all that is in the outbox: consumers see old
    states of a key again, behind newer ones. The header 'outbox-replay' has the replay's name. What is
    delivered after its start is not part of it.

    It waits while more than 2,000 rows wait in the outbox. Ended before its end, in whatever way, the same
    command goes on where it was: no record is left out or stashed twice. '--give-up' ends it for good.
    """
    settings = operated_outbox(context, file, outbox)
    if give_up:
        _give_up(settings, name, reason, yes=yes, json=json)
        return
    try:
        wanted = Wanted(name=name, choice=choice_of(key, topics, since, until, where), to=to)
        prepared = operations.prepare_replay(settings, wanted, read_only=dry_run)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    if dry_run or (not prepared.kept.records and not prepared.resumed):
        _tell(settings, prepared, dry_run=dry_run, json=json)
        return
    confirm(Text(f"{_described(settings, prepared)}\n{Verb.REPLAY.effect()}"), _question(prepared), yes=yes)
    _run(settings, prepared, operator(reason, yes=yes), rate, json=json)


def _give_up(settings: HarvestSettings, name: str, reason: str | None, *, yes: bool, json: bool) -> None:
    about = f"outbox {printable(settings.outbox)}, replay {printable(name)}: {Verb.GIVE_UP.effect()}"
    confirm(Text(about), Verb.GIVE_UP.about.question, yes=yes)
    done = operations.give_up(settings, name, operator(reason, yes=yes))
    tell_unnoted(done.unnoted)
    if json:
        told = {"chosen": done.chosen, "stashed": done.stashed, "ended": True}
        print_json({"outbox": settings.outbox, "name": name, **told})
    else:
        output().print(f"replay {name}: given up, {done.stashed:,} of {done.chosen:,} records stashed")


def _run(
    settings: HarvestSettings, prepared: Prepared, who: Operator, rate: int | None, *, json: bool
) -> None:
    left = prepared.kept.records
    begin = time.monotonic()
    with StopSignals() as signals, progress("stashing", "stashed", left, quiet=json) as shown:
        pace = Pace(signals.requested.wait, shown.advance, _held_up, rate)
        done = operations.replay(settings, prepared, who, pace)
    seconds = time.monotonic() - begin
    tell_unnoted(done.unnoted)
    _report(settings, prepared, done, seconds, json=json)
    if not done.outcome or done.state.done != done.state.chosen:
        raise typer.Exit(ExitCode.FAILED)


def _report(
    settings: HarvestSettings, prepared: Prepared, done: Replayed, seconds: float, *, json: bool
) -> None:
    state, name = done.state, prepared.wanted.name
    if json:
        told = {"chosen": state.chosen, "stashed": state.done, "ended": bool(done.outcome)}
        print_json({"outbox": settings.outbox, "name": name, **told, "seconds": round(seconds, 3)})
    elif done.outcome:
        output().print(f"replay {name}: {done.outcome}, in {format_duration(seconds)}", soft_wrap=True)
    else:
        output().print(f"replay {name}: stopped, {state.done:,} of {state.chosen:,} records stashed")
        print_message("The same command goes on.")


def _held_up() -> None:
    rows = f"more than {MOST_WAITING:,} rows wait in the outbox"
    print_message(f"waits: {rows}. Is a harvester running? See 'outbox status'")


def _described(settings: HarvestSettings, prepared: Prepared) -> str:
    return f"outbox {printable(settings.outbox)}, " + "\n".join(prepared.told(settings.key_names))


def _question(prepared: Prepared) -> str:
    return "Go on with this replay?" if prepared.resumed else Verb.REPLAY.about.question


def _tell(settings: HarvestSettings, prepared: Prepared, *, dry_run: bool, json: bool) -> None:
    if json:
        print_json(_as_data(settings, prepared, dry_run=dry_run))
    else:
        text = _described(settings, prepared)
        output().print(Text(f"{text}\n{Verb.REPLAY.effect()}" if prepared.kept.records else text))


def _as_data(settings: HarvestSettings, prepared: Prepared, *, dry_run: bool) -> dict[str, Any]:
    ends = {"first": prepared.first, "last": prepared.last}
    return {
        "outbox": settings.outbox,
        "name": prepared.wanted.name,
        "dry_run": dry_run,
        "resumes": prepared.resumed,
        "stashed": prepared.state.done,
        **kept_as_data(prepared.kept),
        **{name: each and as_data(each, settings) for name, each in ends.items()},
    }


COMMAND = Command(
    replay,
    (
        "outbox replay --name incident-7 --key order-4711 --since 2h --dry-run",
        "outbox replay --name incident-8 --topic 'orders.*' --since 2026-03-01T09:00Z --until 2026-03-02",
        "outbox replay --name incident-8 --give-up --reason 'the wrong topic'",
        "outbox replay --name to-search --where 'id >= 4711' --to orders.rebuilt --rate 500 --yes",
    ),
)
