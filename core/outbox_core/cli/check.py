"""``outbox check``: finds problems before a start, each with its cure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Annotated, NamedTuple

import typer
from outbox_api.base.errors import ConfigError, DriverError, OutboxError
from outbox_api.base.finding import Finding, Level
from outbox_api.seams.elector import Elector
from outbox_api.seams.transform import StoringTransform
from rich import box
from rich.table import Table
from rich.text import Text

from outbox_core.cli.clocks import clock_checks
from outbox_core.cli.command import Command, ExitCode
from outbox_core.cli.extras import MissingLibrary, check_tokens, find_console
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, log_warnings_only
from outbox_core.cli.links import link_findings
from outbox_core.cli.models import check_models
from outbox_core.cli.outboxes import Chosen, OutboxOption
from outbox_core.cli.terminal import messages, output, print_json
from outbox_core.config.consistency import check_settings
from outbox_core.settings import Choice, Delivery, HarvestSettings
from outbox_core.settings.election import election_of, needs_group, with_group_of
from outbox_core.settings.http import HttpSettings
from outbox_core.status.outboxes import by_database
from outbox_core.status.rivals import CURE, leading_lane, rival
from outbox_core.status.snapshot import is_silent, longest_silence
from outbox_core.text.printable import printable
from outbox_core.text.redaction import redact_addresses
from outbox_core.text.wording import counted

_RAISE_LIMIT = (
    "raise the limit, or lower sendConcurrency; each further process needs a connection for each outbox that "
    "elects by a lease, and those of the outboxes that it may come to lead"
)


def connection_checks(
    outboxes: Sequence[HarvestSettings], *, looked_at: bool
) -> dict[str, Callable[[], Sequence[Finding]]]:
    """Returns a check for each database."""
    return {
        f"connections of {its[0].title}" + (f" and {len(its) - 1} more" if its[1:] else ""): partial(
            _check, its[0], needed(its, looked_at=looked_at)
        )
        for its in by_database(outboxes).values()
    }


def needed(outboxes: Sequence[HarvestSettings], *, looked_at: bool) -> int:
    """Returns how many connections a process has to a database while it leads all these outboxes of it."""
    lanes = sum(
        each.limits.send_concurrency * (1 if each.delivery is Delivery.EXACTLY_ONCE else 2)
        for each in outboxes
    )
    leases = sum(each.elector.driver == "lease" for each in outboxes)
    intakes = sum(bool(getattr(each.dialect.options, "intake", None)) for each in outboxes)
    copies = sum(bool(each.failures.topic) for each in outboxes)
    return lanes + leases + intakes + copies + (len(outboxes) if looked_at else 0) + 1


def _check(outbox: HarvestSettings, most: int) -> Sequence[Finding]:
    try:
        free = outbox.dialect.create().free_connections()
    except OutboxError:  # the dialect's check reports it
        return []
    if free is None:
        return []
    seen = f"a process that leads has up to {most}, and the server has {free} free now"
    if most > free:
        return [Finding(Level.WARNING, "connections", seen, _RAISE_LIMIT)]
    return [Finding(Level.OK, "connections", seen)]


_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}

_CONCURRENT = 16

Check = Callable[[], Sequence[Finding]]


class Row(NamedTuple):
    """One finding, and the part that it is about."""

    part: str
    finding: Finding


def check(
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:METADATA",
            show_default=False,
            help="The application's metadata of SQLAlchemy: say where tables and models differ.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find problems before you start a harvester.

    Checks the configuration, the database and its tables, the broker, the coordinator, the engine and the
    HTTP server; the settings of transactions only if delivery is exactly-once; the clocks of databases that
    the affinity names as replicas. Run it where harvesters run: it measures how far away database and broker
    are, and names settings that pay over such links. Changes nothing: 'outbox init' creates what is missing.

    Exits with 1 if harvesting cannot work, otherwise with 0, even if there are warnings.
    """
    invocation: Invocation = context.obj
    file_settings = log_warnings_only(invocation.settings(file))
    chosen = Chosen.by_user(file_settings, outbox)
    checks: dict[str, Check] = {"http": lambda: _check_http(file_settings.http)}
    outbox_of: dict[str, HarvestSettings] = {}
    for settings in chosen.outboxes:
        prefix = "" if chosen.single else f"{settings.title}: "
        its = {f"{prefix}{part}": each for part, each in _checks(settings).items()}
        checks |= its
        outbox_of |= dict.fromkeys(its, settings)
        if models:
            checks[f"{prefix}models"] = partial(check_models, models, settings)
    looked_at = file_settings.http.listen is not None
    checks |= connection_checks(chosen.outboxes, looked_at=looked_at)
    for label, error in chosen.failed:
        checks[label] = partial(_search_failed, error)
    for label in chosen.unmatched:
        checks[label] = _nothing_matches
    with _progress():
        rows = _rows(checks)
    seen: dict[str, list[Finding]] = {}
    for row in rows:
        if row.part in outbox_of:
            seen.setdefault(outbox_of[row.part].title, []).append(row.finding)
    for settings in chosen.outboxes:
        prefix = "" if chosen.single else f"{settings.title}: "
        found = link_findings(settings, seen.get(settings.title, []))
        rows += [Row(f"{prefix}links", finding) for finding in found]
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
        output().print(_summary(errors, warnings))
    if errors:
        raise typer.Exit(ExitCode.FAILED)


def _checks(settings: HarvestSettings) -> dict[str, Check]:
    return {
        "settings": lambda: check_settings(settings),
        f"dialect {settings.dialect.driver}": lambda: settings.dialect.create().check(),
        f"elector {settings.elector.driver}": lambda: _check_elector(settings),
        f"publisher {settings.publisher.driver}": lambda: settings.publisher.create().check(
            transactional=settings.delivery is Delivery.EXACTLY_ONCE
        ),
        f"engine {settings.engine.driver}": lambda: settings.engine.create().check(settings.lane_groups),
        **({"transforms": lambda: _check_transforms(settings)} if settings.transforms else {}),
        **clock_checks(settings),
    }


def _check_transforms(settings: HarvestSettings) -> Sequence[Finding]:
    made = [each.create() for each in settings.transforms]
    found = [finding for each in made if isinstance(each, StoringTransform) for finding in each.check()]
    chain = ", then ".join(each.driver for each in settings.transforms)
    return [Finding(Level.OK, "transforms", f"records pass {chain}"), *found]


def _check_http(http: HttpSettings) -> Sequence[Finding]:
    if http.listen is None:
        return []
    try:
        return list(find_console().check(http))
    except MissingLibrary as error:
        missing = Finding(Level.ERROR, "libraries", error.what, error.cure)
    except ConfigError as error:
        missing = Finding(Level.ERROR, "libraries", *str(error).rsplit(": ", 1))
    return [missing, *check_tokens(http)]


def _search_failed(error: OutboxError) -> Sequence[Finding]:
    return [Finding(Level.ERROR, "template", f"its tables cannot be looked for: {error}")]


def _nothing_matches() -> Sequence[Finding]:
    cure = "correct its pattern, or grant the rights by which its tables are found"
    return [Finding(Level.ERROR, "template", "it matches no table", cure)]


def _check_elector(settings: HarvestSettings) -> Sequence[Finding]:
    elector = _elector_with_group(settings)
    findings = list(elector.create().check())
    lane = leading_lane(settings.dialect)
    is_alive = lane is not None and not is_silent(lane, longest_silence(settings))
    if lane is not None and is_alive and (found := rival(lane, election_of(elector))):
        message = f"{found}: each would take the fence from the other"
        findings.append(Finding(Level.WARNING, "election", message, CURE))
    return findings


def _elector_with_group(settings: HarvestSettings) -> Choice[Elector]:
    if not needs_group(settings.elector):
        return settings.elector
    try:
        with closing(settings.dialect.create().watch()) as view:
            identity = view.known_identity()
            return (
                settings.elector if identity is None else with_group_of(settings.elector, view.name, identity)
            )
    except DriverError:
        pass  # the dialect's check reports it
    return settings.elector  # without a group it checks less


def _rows(checks: dict[str, Check]) -> list[Row]:
    """Runs all checks at the same time, because each may have to wait for a server that is down."""
    with ThreadPoolExecutor(max_workers=min(len(checks), _CONCURRENT) or 1) as pool:
        found = dict(zip(checks, pool.map(_findings, checks.values()), strict=True))
    return [Row(part, _redacted(finding)) for part, findings in found.items() for finding in findings]


def _redacted(finding: Finding) -> Finding:
    message, cure = map(redact_addresses, (finding.message, finding.cure))
    return replace(finding, message=message, cure=cure)


def _findings(check: Check) -> Sequence[Finding]:
    try:
        return check()
    except OutboxError as error:  # from creating the driver: checks themselves raise nothing
        return [Finding(Level.ERROR, "options", str(error), "correct the configuration")]


def _progress() -> AbstractContextManager[object]:
    console = messages()
    return console.status("checking …") if console.is_terminal else nullcontext()


def _table(rows: Sequence[Row]) -> Table:
    table = Table("", "where", "what", "finding", box=box.SIMPLE_HEAD)
    for row in rows:
        finding = row.finding
        text = Text(finding.message)
        if finding.cure:
            text.append(f"\n→ {finding.cure}", "cyan")
        level = Text(str(finding.level), _STYLES[finding.level])
        table.add_row(level, printable(row.part), printable(finding.subject), text)
    return table


def _summary(errors: int, warnings: int) -> Text:
    if errors:
        found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        return Text(f"{found}: harvesting cannot work yet", "bold red")
    if warnings:
        return Text(f"no errors, {counted(warnings, 'warning')}: harvesting works", "yellow")
    return Text("no problems found", "green")


COMMAND = Command(
    check,
    (
        "outbox check -f outbox.yaml",
        "outbox check --models shop.models:Base.metadata",
        "outbox check -f outbox.yaml --json | jq '.findings[] | select(.level == \"error\")'",
    ),
)
