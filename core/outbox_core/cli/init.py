"""``outbox init``: creates the tables and topics that a harvest needs."""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer
from outbox_api.base.errors import DriverError

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import FileOption, Invocation, JsonOption, log_warnings_only
from outbox_core.cli.outboxes import OutboxOption, outboxes
from outbox_core.cli.terminal import output, print_json, print_message, print_script, script, terminated
from outbox_core.settings import HarvestSettings
from outbox_core.settings.election import needs_group
from outbox_core.text.printable import printable

_PARTITIONS = 6


class TablePartitions(StrEnum):
    """What has a partition of its own in the outbox table."""

    DAY = "day"


def init(  # noqa: PLR0917 - typer makes each parameter an option
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="TOPIC", show_default=False, help="A topic to create; repeatable."
        ),
    ] = None,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each topic created.")] = _PARTITIONS,
    table_partitions: Annotated[
        TablePartitions | None,
        typer.Option(
            show_default=False, help="Divide a new outbox table by create_time: PostgreSQL, MySQL, MariaDB."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the DDL, and change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Create the outbox table, the fence and topics, if they do not exist.

    You can repeat it. A table of goharvest is used as it is; with the affinity 'cluster' a table gets the
    columns, the default and the index that it lacks. 'outbox migrate' changes tables of earlier versions. A
    table in partitions gets those of the next days. Topics are those of --topic, and those for dead letters.
    """
    invocation: Invocation = context.obj
    chosen = outboxes(log_warnings_only(invocation.settings(file)), outbox)
    if table_partitions:
        chosen = [_by_day(settings) for settings in chosen]
    of_letters = [each for settings in chosen for each in settings.failures.topics]
    wanted = list(dict.fromkeys([*(topics or []), *of_letters]))
    if dry_run:
        statements = [each for settings in chosen for each in settings.dialect.create().ddl()]
        ddl = list(dict.fromkeys(terminated(statement) for statement in statements))
        if json:
            print_json({"ddl": ddl, "topics": wanted, "partitions": partitions})
            return
        print_script(script(ddl))
        for topic in wanted:
            what = f"topic {printable(topic)} with {partitions} partitions"
            print_message(f"would create {what}, unless it exists")
        return
    tables = [table for settings in chosen for table in _create(settings)]
    made: list[str] = []
    for settings in chosen if wanted else ():
        made += settings.publisher.create().prepare(wanted, partitions)
    if json:
        print_json({"tables_created": tables, "topics_created": made})
        return
    for table in tables:
        output().print(f"created table {printable(table)}", soft_wrap=True)
    for topic in made:
        output().print(f"created topic {printable(topic)} with {partitions} partitions", soft_wrap=True)
    if not tables and not made:
        output().print("all tables and topics exist already")


def _by_day(settings: HarvestSettings) -> HarvestSettings:
    options = replace(settings.dialect.options, by_day=True)
    return replace(settings, dialect=replace(settings.dialect, options=options))


def _create(settings: HarvestSettings) -> Sequence[str]:
    dialect = settings.dialect.create()
    created = dialect.create()
    if dialect.migrations():
        print_message(f"an earlier version made tables of {printable(settings.outbox)}: run 'outbox migrate'")
    elif needs_group(settings.elector):
        with suppress(DriverError), closing(dialect.connect()) as table:  # 'outbox check' tells what is wrong
            table.identity()  # names the group of the election, which 'outbox check' does not create
    return created


COMMAND = Command(
    init,
    (
        "outbox init -f outbox.yaml --topic orders --topic payments --partitions 12",
        "outbox init -f outbox.yaml --table-partitions day",
        "outbox init -f outbox.yaml --dry-run | psql …   # for a user with the rights to run the DDL",
    ),
)
