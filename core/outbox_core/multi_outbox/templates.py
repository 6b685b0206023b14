"""Finds the outboxes of a template: the tables of a database that match its pattern."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from outbox_core.config.settings import HarvestSettings, Template


def outboxes_of(template: Template, known: Collection[HarvestSettings]) -> list[HarvestSettings]:
    """Looks in the database for the tables that match, and returns the settings of each, ordered by name.

    Args:
        template: The template.
        known: Outboxes whose tables are left out, as an entry of their own or another template names them.

    Raises:
        DriverError: As for :func:`matching`.
        ConfigError: As for :func:`matching`.
    """
    return unknown(matching(template), known)


def matching(template: Template) -> list[HarvestSettings]:
    """Returns the settings of all tables that match, ordered by name, whatever else names them.

    Raises:
        DriverError: The database refuses or cannot be reached.
        ConfigError: The pattern is none of this database.
    """
    found = template.probe.dialect.create().find_outboxes(template.pattern)
    return list(map(template.settings_for, found))


def unknown(found: Iterable[HarvestSettings], known: Collection[HarvestSettings]) -> list[HarvestSettings]:
    """Returns those whose tables are none of the known ones."""
    return [outbox for outbox in found if not any(map(outbox.is_same_table, known))]
