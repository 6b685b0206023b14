"""System checks: the settings at each start, and the tables with ``manage.py check --database``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.core import checks
from django.db import connections, router
from outbox_api import Level, OutboxError

from outbox_django.addresses import address_of
from outbox_django.apps import LABEL
from outbox_django.outboxes import aliases, outbox_of
from outbox_django.tables import has_outbox


def register() -> None:
    """Registers the checks; idempotent."""
    checks.register(check_settings)
    checks.register(check_tables, checks.Tags.database)


def check_settings(**_: object) -> list[Any]:
    """Checks ``OUTBOX``, that the dialects are installed, and that Django begins transactions."""
    found: list[Any] = []
    try:
        named = aliases()
    except OutboxError as error:
        return [checks.Error(str(error), id=f"{LABEL}.E001")]
    for alias in named:
        try:
            outbox_of(alias)
        except OutboxError as error:
            found.append(checks.Error(str(error), id=f"{LABEL}.E002"))
            continue
        if not connections[alias].settings_dict["AUTOCOMMIT"]:
            message = (
                f"AUTOCOMMIT of the database '{alias}' is off: stash cannot tell whether it is in a block"
            )
            hint = "Leave it on, and stash in transaction.atomic()."
            found.append(checks.Warning(message, hint=hint, id=f"{LABEL}.W001"))
    return found


def check_tables(databases: Sequence[str] | None = None, **_: object) -> list[Any]:
    """Checks the tables as ``outbox check`` does; only warns, as ``migrate`` does not run after an error."""
    found: list[Any] = []
    if any(each.is_serious() for each in check_settings()):
        return found  # they are told already
    for alias in set(databases or ()).intersection(aliases()):
        connection = connections[alias]
        in_memory = connection.vendor == "sqlite" and connection.is_in_memory_db()
        if in_memory or not router.allow_migrate(alias, LABEL):
            continue
        if not has_outbox(alias):
            message = f"the database '{alias}' has no outbox yet"
            found.append(checks.Warning(message, hint="Run 'manage.py migrate'.", id=f"{LABEL}.W002"))
            continue
        outbox = outbox_of(alias)
        dialect = outbox.driver.create(replace(outbox.options, **address_of(alias)))
        found += [
            checks.Warning(
                f"the outbox of '{alias}': {each.subject}: {each.message}", hint=each.cure, id=f"{LABEL}.W003"
            )
            for each in dialect.check()
            if each.level is Level.ERROR
        ]
    return found
