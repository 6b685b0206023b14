"""Creates and drops the tables of an outbox: those that ``outbox init`` creates, by the dialect's own DDL."""

from __future__ import annotations

import re
from typing import Any

from django.db import connections, router
from django.db.migrations.loader import MigrationLoader

from outbox_django.apps import LABEL
from outbox_django.outboxes import aliases, outbox_of

_CREATED = re.compile(r"CREATE (TABLE|SEQUENCE) (?:IF NOT EXISTS )?(\S+)")


def create(_: Any, editor: Any) -> None:
    """Creates an outbox where ``OUTBOX`` wants one. One that exists, as ``outbox init`` made it, stays."""
    alias = editor.connection.alias
    if alias not in aliases() or (not editor.collect_sql and has_outbox(alias)):
        return
    for statement in _ddl(alias):
        editor.execute(statement, params=None)  # so a percent sign is one


def drop(_: Any, editor: Any) -> None:
    """Drops an outbox, with all that is in it."""
    alias = editor.connection.alias
    if alias not in aliases():
        return
    for statement in reversed(_ddl(alias)):
        if made := _CREATED.match(statement):
            editor.execute(f"DROP {made[1]} {made[2]}", params=None)


def create_without_migrations(using: str, **_: object) -> None:
    """Creates an outbox where tests switch migrations off; Django would make wrong tables of the models."""
    module, _explicit = MigrationLoader.migrations_module(LABEL)
    if module is None and router.allow_migrate(using, LABEL):
        with connections[using].schema_editor() as editor:
            create(None, editor)


def has_outbox(alias: str) -> bool:
    """Returns whether a database has the outbox's table."""
    introspection = connections[alias].introspection
    with connections[alias].cursor() as cursor:
        return introspection.identifier_converter(outbox_of(alias).options.table) in [
            introspection.identifier_converter(name) for name in introspection.table_names(cursor)
        ]


def _ddl(alias: str) -> list[str]:
    outbox = outbox_of(alias)
    return list(outbox.driver.create(outbox.options).ddl())
