"""Finds the outboxes of a template: the tables of a database that match its pattern."""

from __future__ import annotations

from collections.abc import Collection

from outbox_sdk import ConfigError

from outbox_core.config.settings import HarvestSettings, Template


def outboxes_of(template: Template, known: Collection[HarvestSettings]) -> list[HarvestSettings]:
    """Looks in the database for the tables that match, and returns the settings of each, ordered by name.

    Args:
        template: The template.
        known: Outboxes whose tables are left out, as an entry of their own or another template names them.

    Raises:
        DriverError: The database refuses or cannot be reached.
        ConfigError: The dialect cannot look for tables; or the pattern is none of this database.
    """
    choice = template.probe.dialect
    find = getattr(choice.create(), "find_outboxes", None)
    if find is None:
        raise ConfigError(
            f"outboxes.{template.label}: the dialect '{choice.driver}' cannot look for tables that match "
            f"'{template.pattern}': name each outbox instead"
        )
    found = map(template.settings_for, find(template.pattern))
    return [outbox for outbox in found if not any(map(outbox.is_same_table, known))]
