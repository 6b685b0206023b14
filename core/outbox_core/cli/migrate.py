"""``outbox migrate``: brings the tables of an earlier version up to this one."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer
from outbox_api.base.errors import OutboxError
from outbox_api.seams.schema import SCHEMA
from rich.console import RenderableType
from rich.text import Text

from outbox_core.cli.command import Command
from outbox_core.cli.invocation import FileOption, JsonOption
from outbox_core.cli.outboxes import OutboxOption, watched_outboxes
from outbox_core.cli.terminal import print_script, script
from outbox_core.settings import HarvestSettings
from outbox_core.text.printable import printable
from outbox_core.text.wording import counted


class _Migrated(NamedTuple):
    """What was done to the tables of one outbox, or is to be done."""

    outbox: str
    database: object
    former: int | None
    statements: Sequence[str]
    dry_run: bool

    def as_data(self) -> dict[str, Any]:
        return {
            "outbox": self.outbox,
            "former_version": self.former,
            "version": SCHEMA,
            "dry_run": self.dry_run,
            "statements": list(self.statements),
        }

    def as_text(self) -> RenderableType:
        outbox = printable(self.outbox)
        if not self.statements:
            return Text(f"nothing to migrate: the tables of {outbox} have version {SCHEMA}")
        if self.former == SCHEMA:
            made = counted(len(self.statements), "statement")
            return Text(f"made with {made} what {outbox} lacked, whose tables have version {SCHEMA}")
        former = "before versions were noted" if self.former is None else f"of version {self.former}"
        changes = counted(len(self.statements), "statement")
        return Text(f"migrated {outbox}, whose tables were {former}, to version {SCHEMA} with {changes}")


def migrate(
    context: typer.Context,
    file: FileOption = None,
    outbox: OutboxOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL, and change nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Bring tables that an earlier version of outbox made up to this version.

    A migration only adds columns, indexes and tables, so harvesters of the earlier version continue: migrate
    first, then replace them one by one. You can repeat it. If a lock cannot be had within a second it gives
    up instead of holding up the harvesters; repeat it then.
    """
    chosen = watched_outboxes(context, file, outbox)

    def act(settings: HarvestSettings) -> _Migrated:
        dialect = settings.dialect.create()
        former = dialect.schema()
        statements = dialect.migrations() if dry_run else dialect.migrate()
        database = getattr(settings.dialect.options, "data_source", None)
        return _Migrated(settings.outbox, database, former and former.version, statements, dry_run)

    found = chosen.look(act)
    if dry_run and not json:
        print_script(_as_script(found))
        chosen.tell_errors(found, json=json)
    else:
        chosen.show(found, _Migrated.as_data, _Migrated.as_text, json=json, soft_wrap=True)


def _as_script(found: Sequence[tuple[str, _Migrated | OutboxError]]) -> str:
    """Returns the SQL for all outboxes, with their titles as comments.

    Outboxes of one database may share tables, which are created once.
    """
    parts: list[str] = []
    known: set[tuple[object, str]] = set()
    for title, each in found:
        if isinstance(each, OutboxError):
            continue
        new = [text for text in each.statements if (each.database, text) not in known]
        known |= {(each.database, text) for text in new}
        parts.append(f"-- {printable(title)}{'' if new else ': nothing to migrate'}")
        parts += [script(new)] if new else []
    return "\n\n".join(parts)


COMMAND = Command(
    migrate,
    (
        "outbox migrate -f outbox.yaml",
        "outbox migrate -f outbox.yaml --dry-run | psql …   # for a user with the rights to run the DDL",
    ),
)
