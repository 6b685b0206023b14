"""``outbox pause``: has the records of a topic, or all, wait in the outbox."""

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import typer
from outbox_api.seams.pausing import WHOLE, Pause
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command, ExitCode, seconds
from outbox_core.cli.confirmation import ReasonOption, YesOption, confirm, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, log_warnings_only
from outbox_core.cli.outboxes import Chosen, OutboxOption, one_outbox
from outbox_core.cli.terminal import output, print_json, print_message
from outbox_core.operations import Effect, PauseChanged, Verb
from outbox_core.settings import HarvestSettings
from outbox_core.status.pauses import PauseState, pauses_as_data
from outbox_core.status.snapshot import Snapshot
from outbox_core.text.moment import parse_time
from outbox_core.text.printable import printable
from outbox_core.text.wording import at_least, date_clock_and_zone, duration


def _topic(text: str | None) -> str | None:
    if text == WHOLE and text is not None:
        raise typer.BadParameter("the topic has no name; without --topic, the whole outbox is meant")
    return text


TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        show_default=False,
        callback=_topic,
        help="This topic, as the outbox names it. Default: the whole outbox.",
    ),
]


def pause(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    topic: TopicOption = None,
    file: FileOption = None,
    outbox: OutboxOption = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", show_default=False, help="End it by itself after this."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME",
            show_default=False,
            help="End it then: 2026-03-01T12:00 (UTC).",
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="How long to wait until it is in effect.")
    ] = "30s",
    listed: Annotated[bool, typer.Option("--list", help="List what is paused, and change nothing.")] = False,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Have the records of a topic, or of the whole outbox, wait until they are resumed.

    Applications and intakes go on. Records of the topic wait, and are delivered in their order afterwards;
    records of a key in other topics overtake them.

    The command waits until nothing of the topic is in flight and nothing can be sent: then the pause is in
    effect. Otherwise it exits with 1 and names the lanes that have not answered; the pause is on
    nevertheless. It holds for every later leader, until somebody resumes it or it ends by itself, by the
    database's clock. 'outbox health' calls it a problem after an hour if it has no end. To pause what is
    paused gives it another end and reason.

    Name the topic as the outbox does, not as transforms do. Queries of Spark ignore pauses. Of several
    clusters, each pauses what it delivers itself. On databases other than PostgreSQL each mark reads past
    what waits: where a million records wait, pause the whole outbox.
    """
    invocation: Invocation = context.obj
    settings = log_warnings_only(invocation.settings(file))
    if listed:
        chosen = Chosen.by_user(settings, outbox)
        chosen.show(chosen.look(Snapshot.of), _list_as_data, _list_as_text, json=json)
        return
    settings_of_one = one_outbox(settings, outbox)
    name = topic or WHOLE
    lasts = _seconds(settings_of_one, for_, until)
    patience = seconds(wait, "--wait")
    if not yes:
        confirm(Text(_about(settings_of_one, name, lasts)), Verb.PAUSE.about.question, yes=False)
    done = operations.pause(settings_of_one, name, operator(reason, yes=yes), lasts)
    tell_unnoted(done.unnoted)
    assert done.pause is not None  # noqa: S101 - it is on
    _tell(done, done.pause, quiet=json)
    effect = operations.await_effect(settings_of_one, done.pause, patience)
    if json:
        print_json(_as_data(settings_of_one.outbox, done.pause, effect))
    else:
        _tell_effect(effect)
    if not effect.complete:
        raise typer.Exit(ExitCode.FAILED)


def _seconds(settings: HarvestSettings, for_: str | None, until: str | None) -> float | None:
    if for_ is not None and until is not None:
        raise typer.BadParameter("give either --for or --until")
    if for_ is not None:
        return seconds(for_, "--for", least=1.0)
    if until is None:
        return None
    try:
        moment = parse_time(until)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--until") from None
    left = operations.seconds_until(settings, moment)
    if left < 1.0:
        raise typer.BadParameter("that has passed, by the database's clock", param_hint="--until")
    return left


def _about(settings: HarvestSettings, topic: str, lasts: float | None) -> str:
    """Returns what it does, and what waits now."""
    with closing(settings.dialect.create().watch()) as view:
        waiting = view.waiting()
        backlog = view.backlog()
    first = min(backlog.records, sum(waiting.values()))
    mine = first if topic == WHOLE else waiting.get(topic, 0)
    subject = f"topic {printable(topic)}" if topic else "all topics"
    end = f"It ends by itself after {duration(lasts)}." if lasts else "It lasts until you resume it."
    unknown = "" if mine else " None may ever have been written: make sure of the name."
    return (
        f"outbox {printable(settings.outbox)}, {subject}: {Verb.PAUSE.effect()} {end} Now {mine:,} of the"
        f" first {first:,} records are of it.{unknown}"
    )


def _tell(done: PauseChanged, pause: Pause, *, quiet: bool) -> None:
    if done.query:
        print_message("A query of Spark reads this outbox, or did. It ignores pauses.")
    if not quiet:
        until = f"until {date_clock_and_zone(pause.until)}" if pause.until else "until it is resumed"
        output().print(f"{printable(pause.subject)} is paused {until}", soft_wrap=True)


def _tell_effect(effect: Effect) -> None:
    if not effect.complete:
        print_message(f"It is not in effect yet: {'; '.join(effect.open)}. 'outbox pause --list' says when.")
    elif effect.led:
        print_message("It is in effect: nothing of it is in flight.")
    else:
        print_message("Nobody leads. Whoever does next reads the pause before anything else.")


def _as_data(outbox: str, pause: Pause, effect: Effect) -> dict[str, Any]:
    return {
        "outbox": outbox,
        "topic": pause.topic or None,
        "since": pause.since.isoformat(),
        "until": pause.until and pause.until.isoformat(),
        "operator": pause.operator,
        "reason": pause.reason,
        "in_effect": effect.complete,
        "led": effect.led,
        "open": list(effect.open),
    }


def _list_as_data(snapshot: Snapshot) -> dict[str, Any]:
    return {"outbox": snapshot.outbox, "pauses": pauses_as_data(snapshot.pauses)}


def _list_as_text(snapshot: Snapshot) -> RenderableType:
    return pauses_as_text(snapshot.pauses) if snapshot.pauses else "nothing is paused"


def pauses_as_text(pauses: Sequence[PauseState]) -> Table:
    """Returns a table with a line for each pause."""
    table = Table("paused", "since", "until", "in effect", "records", "by", "reason", box=box.SIMPLE_HEAD)
    for each in pauses:
        pause = each.pause
        table.add_row(
            Text(printable(pause.subject), "yellow"),
            date_clock_and_zone(pause.since),
            date_clock_and_zone(pause.until) if pause.until else "it is resumed",
            "yes" if each.in_effect else "not yet",
            at_least(each.records, exact=each.exact),
            Text(printable(pause.operator)),
            Text(printable(pause.reason)),
        )
    return table


COMMAND = Command(
    pause,
    (
        "outbox pause -f outbox.yaml --topic orders --for 10m --reason 'partitions are added'",
        "outbox pause -f outbox.yaml --reason 'the broker moves' --yes --json",
        "outbox pause -f outbox.yaml --list",
    ),
)
