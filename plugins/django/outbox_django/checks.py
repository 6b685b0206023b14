"""System checks: the settings at each start, and the tables with ``manage.py check --database``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections, router
from outbox_api import Level, OutboxError

from outbox_django.addresses import address_of
from outbox_django.outboxes import LABEL, aliases, outbox_of, written
from outbox_django.tables import has_outbox

_PATTERN = re.compile(r"""outboxTable['"]?\s*:\s*['"]{0,2}[^'",}#\n]*\*""")
"""A table with ``*`` for any characters, as a dictionary of Python, JSON or YAML have it."""
_COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)


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
    return found + _check_tenants()


def _check_tenants() -> list[Any]:
    if not any(app.split(".")[0] == LABEL for app in getattr(settings, "TENANT_APPS", ())):
        return []
    config = written("CONFIG")
    if not isinstance(config, Mapping):
        with suppress(OSError):  # a command tells it
            config = _COMMENT.sub("", Path(config).read_text("utf-8", "replace"))
    if _PATTERN.search(str(config)):
        return []
    message = "TENANT_APPS gives each schema an outbox, and 'manage.py outbox run' harvests one schema's"
    pattern = {"outboxes": {aliases()[0]: {"outboxTable": f"tenant_*.{written('TABLE')}"}}}
    hint = f"Name the schemas in OUTBOX['CONFIG'], for example {pattern}."
    return [checks.Warning(message, hint=hint, id=f"{LABEL}.W004")]


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
