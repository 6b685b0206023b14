"""Creates and drops the tables of an outbox: those that ``outbox init`` creates, by the dialect's own DDL."""

from __future__ import annotations

import re
from typing import Any

from django.db import connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from outbox_django.apps import LABEL
from outbox_django.outboxes import aliases, outbox_of

_CREATED = re.compile(r"CREATE (TABLE|SEQUENCE) (?:IF NOT EXISTS )?(\S+)")
_NAMED = re.compile(r"^ +name ", re.MULTILINE)
"""A table that outboxes share: it has a column for their names."""
_QUOTES = '"`'
_SCHEMAS = {
    "postgresql": (
        "SELECT nspname FROM pg_namespace"
        " WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%s))"
    ),
    "mysql": "SELECT DATABASE()",
    "oracle": "SELECT SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM DUAL",
}
"""Django's name of a database → the query for the schema of the outbox."""


def create(_: Any, editor: Any) -> None:
    """Creates an outbox where ``OUTBOX`` wants one. One that exists, as ``outbox init`` made it, stays.

    Tables beside it that exist, as another outbox has them, it shares.
    """
    connection = editor.connection
    alias = connection.alias
    if alias not in aliases() or (not editor.collect_sql and has_outbox(alias)):
        return
    there = () if editor.collect_sql else _tables_of(alias)
    shared = False
    for statement in _ddl(alias):
        if made := _CREATED.match(statement):
            shared = made[1] == "TABLE" and _as_listed(alias, made[2].strip(_QUOTES)) in there
        if not shared or not statement.startswith("CREATE"):
            editor.execute(statement, params=None)  # so a percent sign is one


def drop(_: Any, editor: Any) -> None:
    """Drops an outbox, with all that is in it. What it shares with another loses only its rows."""
    alias = editor.connection.alias
    if alias not in aliases() or not has_outbox(alias):
        return
    ddl, own = _ddl(alias), name_of(alias)
    named = [made[2] for each in ddl if (made := _CREATED.match(each)) and _NAMED.search(each)]
    others = any(
        _rows(alias, f"SELECT 1 FROM {table} WHERE name <> %s", own)  # noqa: S608 - of the DDL
        for table in named
    )
    for statement in reversed(ddl):
        made = _CREATED.match(statement)
        if made and (not others or statement in ddl[:1] or made[1] == "SEQUENCE"):
            editor.execute(f"DROP {made[1]} {made[2]}", params=None)
        elif made and made[2] in named:
            editor.execute(f"DELETE FROM {made[2]} WHERE name = %s", [own])  # noqa: S608 - of the DDL


def create_without_migrations(using: str, **_: object) -> None:
    """Creates an outbox where tests switch migrations off; Django would make wrong tables of the models."""
    module, _explicit = MigrationLoader.migrations_module(LABEL)
    if module is None and router.allow_migrate(using, LABEL):
        with connections[using].schema_editor() as editor:
            create(None, editor)


def create_where_named_later(using: str, **_: object) -> None:
    """Creates the outbox of a database or a ``TABLE`` that ``OUTBOX`` did not name when the app migrated."""
    if using not in aliases() or not router.allow_migrate(using, LABEL) or has_outbox(using):
        return
    if (LABEL, "0001_initial") in MigrationRecorder(connections[using]).applied_migrations():
        with connections[using].schema_editor() as editor:
            create(None, editor)


def has_outbox(alias: str) -> bool:
    """Returns whether a database has the outbox's table."""
    return _as_listed(alias, outbox_of(alias).options.table) in _tables_of(alias)


def name_of(alias: str) -> str:
    """Returns the outbox's name in the tables that it shares: in a schema's there may be several outboxes."""
    table, vendor = outbox_of(alias).options.table, connections[alias].vendor
    if vendor == "sqlite":
        return table
    [(schema,)] = _rows(alias, _SCHEMAS[vendor], *([table] if vendor == "postgresql" else []))
    return f"{schema}.{table.upper() if vendor == 'oracle' else table}"


def _rows(alias: str, query: str, *parameters: object) -> list[Any]:
    with connections[alias].cursor() as cursor:
        cursor.execute(query, parameters)
        return list(cursor.fetchall())


def _tables_of(alias: str) -> set[str]:
    with connections[alias].cursor() as cursor:
        return {_as_listed(alias, name) for name in connections[alias].introspection.table_names(cursor)}


def _as_listed(alias: str, name: str) -> str:
    return str(connections[alias].introspection.identifier_converter(name))


def _ddl(alias: str) -> list[str]:
    outbox = outbox_of(alias)
    return list(outbox.driver.create(outbox.options).ddl())
