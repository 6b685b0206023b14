"""``outbox check``: everything that could be wrong before a start, each with its cure."""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from typing import NamedTuple

import typer
from outbox_sdk.elector import Elector
from outbox_sdk.errors import DriverError, OutboxError
from outbox_sdk.finding import Finding, Level
from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.cli.exits import ExitCode
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, quiet
from outbox_core.cli.terminal import messages, output, print_json
from outbox_core.config import Choice, Delivery, HarvestSettings
from outbox_core.config.consistency import look as look_at_settings
from outbox_core.config.election import lacks_group, with_group

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}

Look = Callable[[], Sequence[Finding]]


class Row(NamedTuple):
    """One finding and where it comes from."""

    part: str
    finding: Finding


EXAMPLES = (
    "outbox check -f outbox.yaml",
    "outbox check -f outbox.yaml --json | jq '.findings[] | select(.level == \"error\")'",
)
"""For ``--help``."""


def check(context: typer.Context, file: FileOption = None, json: JsonOption = False) -> None:
    """Check everything that could be wrong before you start.

    Looks at the configuration, the database and its tables, the broker, the coordinator and the engine; at
    what concerns transactions only if delivery is exactly-once.
    Exits with 1 when harvesting cannot work, with 0 otherwise, warnings or not.

    Changes nothing, but for one thing: where no leaderGroupID is set, the database is asked for the
    election's group as a start does it. Fence and dead letters are created where they are missing, and belong
    to who asks first: let that be 'outbox init' or the harvester's user.
    """
    invocation: Invocation = context.obj
    settings = quiet(invocation.settings(file)).harvest
    with _progress():
        rows = _rows(_looks(settings))
    errors = sum(row.finding.level is Level.ERROR for row in rows)
    warnings = sum(row.finding.level is Level.WARNING for row in rows)
    if json:
        findings = [
            {
                "level": str(row.finding.level),
                "part": row.part,
                "subject": row.finding.subject,
                "message": row.finding.message,
                "cure": row.finding.cure or None,
            }
            for row in rows
        ]
        print_json({"errors": errors, "warnings": warnings, "findings": findings})
    else:
        output().print(_table(rows))
        output().print(_verdict(errors, warnings))
    if errors:
        raise typer.Exit(ExitCode.FAILED)


def _looks(settings: HarvestSettings) -> dict[str, Look]:
    return {
        "settings": lambda: look_at_settings(settings),
        f"dialect {settings.dialect.driver}": lambda: settings.dialect.create().check(),
        f"elector {settings.elector.driver}": lambda: _elector(settings).create().check(),
        f"publisher {settings.publisher.driver}": lambda: settings.publisher.create().check(
            transactional=settings.delivery is Delivery.EXACTLY_ONCE
        ),
        f"engine {settings.engine.driver}": lambda: _look_at_engine(settings),
    }


def _elector(settings: HarvestSettings) -> Choice[Elector]:
    if not lacks_group(settings.elector):
        return settings.elector
    try:
        with closing(settings.dialect.create().connect()) as table:
            return with_group(settings.elector, table)
    except DriverError:  # told of where the dialect is looked at; without a group the elector can do less
        return settings.elector


def _rows(looks: dict[str, Look]) -> list[Row]:
    """Looks everywhere at the same time, as each may have to wait for something that is down."""
    with ThreadPoolExecutor(max_workers=len(looks)) as pool:
        found = dict(zip(looks, pool.map(_guarded, looks.values()), strict=True))
    return [Row(part, finding) for part, findings in found.items() for finding in findings]


def _guarded(look: Look) -> Sequence[Finding]:
    try:
        return look()
    except OutboxError as error:  # of making the driver: looking itself raises nothing
        return [Finding(Level.ERROR, "options", str(error), "correct the configuration")]


def _look_at_engine(settings: HarvestSettings) -> Sequence[Finding]:
    if settings.engine.driver == "inline":
        return [Finding(Level.OK, "lanes", "run in threads of the harvester's own process")]
    # Loading PySpark takes a second, and only its users need it.
    from outbox_core.engines.spark.java import CURE, java_home  # noqa: PLC0415

    try:
        java = java_home()
    except OutboxError as error:
        return [Finding(Level.ERROR, "Java", str(error), CURE)]
    return [Finding(Level.OK, "Java", f"found at {java}"), _slots(settings)]


def _slots(settings: HarvestSettings) -> Finding:
    from outbox_core.engines.spark.engine import MAX_GROUPS  # noqa: PLC0415 - see above

    groups = min(settings.limits.send_concurrency, settings.engine.lane_groups or MAX_GROUPS)
    master = settings.engine.master
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master or "")
    if local is None:
        where = "the embedded Spark has" if master is None else f"{master} is asked at the start for"
        return Finding(Level.OK, "Spark slots", f"{where} a slot for each of the {groups} lane groups")
    slots = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
    if slots >= groups:
        return Finding(Level.OK, "Spark slots", f"{slots} for {groups} lane groups")
    return Finding(
        Level.ERROR,
        "Spark slots",
        f"{groups} lane groups need a slot each, and {master} has {slots}: the others would wait for ever",
        f"set harvest.engine.master to local[{groups + 1}], leave it out, or lower laneGroups",
    )


def _progress() -> AbstractContextManager[object]:
    console = messages()
    return console.status("looking …") if console.is_terminal else nullcontext()


def _table(rows: Sequence[Row]) -> Table:
    table = Table("", "where", "what", "finding", box=box.SIMPLE_HEAD)
    for row in rows:
        finding = row.finding
        text = Text(finding.message)
        if finding.cure:
            text.append(f"\n→ {finding.cure}", "cyan")
        table.add_row(Text(str(finding.level), _STYLES[finding.level]), row.part, Text(finding.subject), text)
    return table


def _verdict(errors: int, warnings: int) -> Text:
    if errors:
        found = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}"
        return Text(f"{found}: harvesting cannot work yet", "bold red")
    if warnings:
        return Text(f"no errors, {_counted(warnings, 'warning')}: harvesting works", "yellow")
    return Text("all is well", "green")


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
