"""``outbox health``: healthy or not, for probes and monitoring."""

from collections.abc import Sequence
from typing import Annotated

import typer

from outbox_core.cli.command import Command, ExitCode, seconds
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, watched_outboxes
from outbox_core.cli.terminal import Part, print_lines
from outbox_core.status.health import Health, Thresholds, examine
from outbox_core.text.printable import printable


def health(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    oldest: Annotated[
        str, typer.Option(metavar="DURATION", help="How old the oldest record may be.")
    ] = "60s",
    blocked: Annotated[
        str, typer.Option(metavar="DURATION", help="For how long a key may have been failing.")
    ] = "60s",
    parked: Annotated[int, typer.Option(min=0, help="How many keys may be parked.")] = 0,
    silence: Annotated[float, typer.Option(min=1, help="How many heartbeats a lane may miss.")] = 3,
    dead: Annotated[
        int, typer.Option("--dead-rows", min=0, help="How many dead rows may wait for an old snapshot.")
    ] = 100_000,
    snapshot: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a snapshot may be kept while dead rows wait.")
    ] = "60s",
    paused: Annotated[
        str, typer.Option(metavar="DURATION", help="How long a pause without an end may last.")
    ] = "1h",
    patience: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for database and broker.")
    ] = "5s",
    json: JsonOption = False,
) -> None:
    """Check whether the outbox is harvested as it should be.

    Writes one line for each problem. Exits with 0 if healthy, with 1 if not, and with 69 if the database or
    the broker cannot be reached. Use it for alarms, but not as a reason to restart a process: it is about the
    outbox. A template that matches no table is not healthy.
    """
    thresholds = Thresholds(
        seconds(oldest, "--oldest"),
        seconds(blocked, "--blocked"),
        parked,
        silence,
        seconds(patience, "--patience"),
        dead,
        seconds(snapshot, "--snapshot"),
        seconds(paused, "--paused"),
    )
    chosen = watched_outboxes(context, file, outbox)
    found = chosen.look(lambda settings: examine(settings, thresholds))
    healths = [(title, health) for title, health in found if isinstance(health, Health)]
    if json:
        chosen.show_data(found, _as_data)
    else:
        print_lines(_lines(healths[0][1]) if chosen.single else _lines_of_several(healths, len(found)))
    chosen.tell_errors(found, json=json)
    if not all(health.healthy for _, health in healths):
        reachable = all(health.reachable for _, health in healths)
        raise typer.Exit(ExitCode.FAILED if reachable else ExitCode.UNAVAILABLE)
    if chosen.unmatched:
        raise typer.Exit(ExitCode.FAILED)


def _as_data(found: Health) -> dict[str, object]:
    said: dict[str, list[dict[str, object]]] = {"problems": [], "remarks": []}
    for name, problems in (("problems", found.problems), ("remarks", found.remarks)):
        said[name] = [
            {"code": str(problem.code), "message": problem.message, "number": problem.number}
            for problem in problems
        ]
    return {"healthy": found.healthy, **said}


def _lines_of_several(healths: Sequence[tuple[str, Health]], outboxes: int) -> list[list[Part]]:
    """Returns the problems of several outboxes, each with its outbox in front."""
    lines = [
        [(f"{printable(title)}: ", "bold"), *line]
        for title, health in healths
        if health.problems or health.remarks
        for line in _lines(health)
    ]
    well = sum(health.healthy for _, health in healths)
    return [*lines, [(f"{well} of {outboxes} outboxes are healthy", "green" if well == len(healths) else "")]]


def _lines(found: Health) -> list[list[Part]]:
    lines: list[list[Part]] = [[("healthy", "green")]] if found.healthy else []
    for problems, style in ((found.problems, "bold red"), (found.remarks, "yellow")):
        lines += [
            [(each.code, style), (f": {printable(' '.join(each.message.split()))}", "")] for each in problems
        ]
    return lines


COMMAND = Command(
    health,
    (
        "outbox health -f outbox.yaml",
        "outbox health -f outbox.yaml --oldest 5m --blocked 10m --parked 3",
        "outbox health -f outbox.yaml --json | jq -r '.problems[].code'",
    ),
)
