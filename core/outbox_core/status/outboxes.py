"""Which outboxes are in one database, and which tables a template matches."""

from collections.abc import Collection, Iterable

from outbox_api.base.errors import OutboxError

from outbox_core.settings import HarvestSettings, Template
from outbox_core.text.printable import printable


def database_of(outbox: HarvestSettings) -> tuple[str, object]:
    """Returns what two outboxes have in common whose settings name the same database, spelled alike."""
    return outbox.table_identity[:2]


def database_name(outbox: HarvestSettings) -> str:
    """Returns what people call its database, without secrets; connects to nothing."""
    try:
        address: str = outbox.dialect.create().address
    except OutboxError:  # a file that its settings name cannot be read now
        return f"{outbox.dialect.driver} database of {outbox.title}"
    return printable(address)


def by_database(outboxes: Iterable[HarvestSettings]) -> dict[tuple[str, object], list[HarvestSettings]]:
    """Returns database → its outboxes, in the order given."""
    databases: dict[tuple[str, object], list[HarvestSettings]] = {}
    for outbox in outboxes:
        databases.setdefault(database_of(outbox), []).append(outbox)
    return databases


def matching(template: Template) -> list[HarvestSettings]:
    """Returns the settings of all tables that match, ordered by name, whatever else names them."""
    found = template.probe.dialect.create().find_outboxes(template.pattern)
    return list(map(template.settings_for, found))


def unknown(found: Iterable[HarvestSettings], known: Collection[HarvestSettings]) -> list[HarvestSettings]:
    """Returns those whose tables are none of the known ones."""
    there = {outbox.table_identity for outbox in known}
    return [outbox for outbox in found if outbox.table_identity not in there]
