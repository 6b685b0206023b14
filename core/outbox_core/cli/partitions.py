"""``outbox partitions``: adds partitions to a topic, so that the records of each key keep their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.status import Status
from rich.text import Text

from outbox_core import operations
from outbox_core.cli.command import Command, Group, seconds
from outbox_core.cli.confirmation import ReasonOption, YesOption, confirm, operator, tell_unnoted
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, StopSignals, log_warnings_only
from outbox_core.cli.outboxes import OutboxOption, outboxes
from outbox_core.cli.terminal import messages, output, print_json, print_message
from outbox_core.operations import Plan, Verb, Watch, Wish
from outbox_core.text.printable import printable
from outbox_core.text.wording import duration

_LINE_SECONDS = 5.0


def add(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, as Kafka names it.")],
    partitions: Annotated[
        int, typer.Argument(metavar="N", min=2, help="How many partitions it is to have in all.")
    ],
    file: FileOption = None,
    outbox: OutboxOption = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            show_default=False,
            help="A consumer group that must have read what was sent before; repeatable.",
        ),
    ] = None,
    outbox_topics: Annotated[
        list[str] | None,
        typer.Option(
            "--outbox-topic",
            metavar="TOPIC",
            show_default=False,
            help="The topic in the outbox of which transforms make TOPIC; repeatable.",
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="How long to wait for lanes and consumers.")
    ] = "10m",
    keep_paused: Annotated[
        bool, typer.Option("--keep-paused", help="Leave the topic paused if they take longer.")
    ] = False,
    reason: ReasonOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Add partitions to a topic, up to N in all, and keep the order of each key's records.

    Most keys move to other partitions. So the command pauses the topic, waits until nothing of it is in
    flight and each '--group' has committed all that was sent, adds the partitions, waits until every broker
    has them, and resumes.

    Without '--group' it waits for nobody, and lists the groups that have read the topic. It cannot know
    readers without committed offsets, other applications that send to the topic, nor queries of Spark. A
    consumer with auto.offset.reset=latest skips what is sent to a partition before it knows of it: set
    earliest before.

    The topic is paused in all outboxes of the configuration, or in that of '--outbox'; an outbox with
    transforms as a whole, or what '--outbox-topic' names.

    If consumers take longer than '--wait', the topic is resumed and nothing has changed. If the command is
    killed, the pause stays: repeat the command, or end the pause with 'outbox resume'. It needs ALTER,
    DESCRIBE and READ of the topic, and DESCRIBE of groups and the cluster.
    """
    invocation: Invocation = context.obj
    chosen = outboxes(log_warnings_only(invocation.settings(file)), outbox)
    wish = Wish(topic, partitions, _each_once(groups), _each_once(outbox_topics))
    patience = seconds(wait, "--wait")
    plan = operations.plan_partitions(chosen, wish)
    _warn(plan)
    confirm(Text(_about(plan)), Verb.ADD_PARTITIONS.about.question, yes=yes)
    who = operator(reason, yes=yes)
    with StopSignals() as signals, messages().status("pausing") as status:
        watch = Watch(print_message, _shown(status), signals.requested.wait, patience, keep_paused)
        done = operations.add_partitions(plan, who, watch)
    tell_unnoted(done.unnoted)
    if json:
        told = {"before": done.before, "partitions": partitions, "paused_seconds": round(done.paused, 3)}
        boxes = [each.outbox for each in chosen]
        print_json({"topic": topic, **told, "groups": wish.groups, "unnamed": plan.others, "outboxes": boxes})
    else:
        was = f"{done.before} before; it was paused for {duration(done.paused)}"
        output().print(f"topic {printable(topic)} has {partitions} partitions, {was}", soft_wrap=True)


def _each_once(names: Sequence[str] | None) -> list[str]:
    return list(dict.fromkeys(names or []))


def _about(plan: Plan) -> str:
    wish = plan.wish
    paused = "; ".join(
        f"outbox {printable(box.outbox)}, " + ", ".join(printable(each) or "all topics" for each in names)
        for box in plan.outboxes
        for names in [wish.paused_of(box)]
    )
    begun = " An earlier call has begun it." if plan.goes_on else ""
    return (
        f"topic {printable(wish.topic)}, {plan.before} partitions now, {wish.partitions} then."
        f" Paused: {paused}.{begun} {Verb.ADD_PARTITIONS.effect()}"
    )


def _warn(plan: Plan) -> None:
    if plan.others:
        names = ", ".join(map(printable, plan.others))
        print_message(f"These groups have read the topic, and are not waited for: {names}")
    if plan.queries:
        names = ", ".join(map(printable, plan.queries))
        print_message(f"A query of Spark ignores pauses, and reads these outboxes, or did: {names}.")


def _shown(status: Status) -> Callable[[str], None]:
    """Returns what shows what is waited for: in place on a terminal, otherwise in a line now and then."""
    due = time.monotonic() + _LINE_SECONDS

    def show(text: str) -> None:
        nonlocal due
        status.update(Text(printable(text)))
        if not messages().is_terminal and time.monotonic() >= due:
            due += _LINE_SECONDS
            print_message(text)

    return show


COMMAND = Group(
    "partitions",
    """Add partitions to a topic, and keep the order of each key's records.

    More partitions move keys, so what was sent before has to be read before anything else is sent.
    """,
    (
        Command(
            add,
            (
                "outbox partitions add -f outbox.yaml orders 24 --group billing --group shipping",
                "outbox partitions add -f outbox.yaml orders 24 --group billing --wait 1h --yes --json",
            ),
        ),
    ),
)
