"""Creates and drops the tables of an outbox: those that ``outbox init`` creates, by the dialect's own DDL."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from django.db import connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from outbox_django.outboxes import LABEL, aliases, outbox_of

_CREATED = re.compile(r"CREATE (TABLE|SEQUENCE) (?:IF NOT EXISTS )?(\S+)")
_INDEX = re.compile(r"CREATE INDEX (?:IF NOT EXISTS )?(\S+) ON (\S+)")
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

    Tables beside it that exist, as another outbox has them, it shares. Where DDL is
    not rolled back, it completes what an interrupted migration has left.
    """
    connection = editor.connection
    alias = connection.alias
    if alias not in aliases() or (not editor.collect_sql and is_complete(alias)):
        return
    there = set() if editor.collect_sql else _tables_of(alias)
    for statement in _ddl(alias):
        if not _is_done(alias, statement, there):
            editor.execute(statement, params=None)  # so a percent sign is one


def drop(_: Any, editor: Any) -> None:
    """Drops an outbox, with all that is in it. What it shares with another loses only its rows."""
    alias = editor.connection.alias
    if alias not in aliases() or not has_outbox(alias):
        return
    there = _tables_of(alias)
    created = [(made, each) for each in _ddl(alias) if (made := _CREATED.match(each))]
    ddl = [(made, each) for made, each in created if made[1] == "SEQUENCE" or _is_done(alias, each, there)]
    named, own = [made[2] for made, each in ddl if _NAMED.search(each)], name_of(alias)
    others = any(
        _rows(alias, f"SELECT 1 FROM {table} WHERE name <> %s", own)  # noqa: S608 - of the DDL
        for table in named
    )
    for made, _each in reversed(ddl):
        if not others or made is ddl[0][0] or made[1] == "SEQUENCE":
            editor.execute(f"DROP {made[1]} {made[2]}", params=None)
        elif made[2] in named:
            editor.execute(f"DELETE FROM {made[2]} WHERE name = %s", [own])  # noqa: S608 - of the DDL


def create_without_migrations(using: str, **_: object) -> None:
    """Creates an outbox where tests switch migrations off; Django would make wrong tables of the models."""
    module, _explicit = MigrationLoader.migrations_module(LABEL)
    if module is None and router.allow_migrate(using, LABEL):
        with connections[using].schema_editor() as editor:
            create(None, editor)


def create_where_named_later(using: str, **_: object) -> None:
    """Creates the outbox of a database or a ``TABLE`` that ``OUTBOX`` did not name when the app migrated."""
    if using not in aliases() or not router.allow_migrate(using, LABEL) or is_complete(using):
        return
    if (LABEL, "0001_initial") in MigrationRecorder(connections[using]).applied_migrations():
        with connections[using].schema_editor() as editor:
            create(None, editor)


def has_outbox(alias: str) -> bool:
    """Returns whether a database has the outbox's table."""
    return _as_listed(alias, outbox_of(alias).options.table) in _tables_of(alias)


def is_complete(alias: str) -> bool:
    """Returns whether a database has the outbox, and its version is noted, which the DDL does last."""
    notes = outbox_of(alias).options.tables.notes.table
    if not has_outbox(alias) or _as_listed(alias, notes) not in _tables_of(alias):
        return False
    quoted = connections[alias].ops.quote_name(notes)
    return bool(_rows(alias, f"SELECT 1 FROM {quoted} WHERE name = %s", name_of(alias)))  # noqa: S608 - quoted


def name_of(alias: str) -> str:
    """Returns the outbox's name in the tables that it shares: in a schema's there may be several outboxes."""
    table, vendor = outbox_of(alias).options.table, connections[alias].vendor
    if vendor == "sqlite":
        return table
    [(schema,)] = _rows(alias, _SCHEMAS[vendor], *([table] if vendor == "postgresql" else []))
    return f"{schema}.{table.upper() if vendor == 'oracle' else table}"


def _is_done(alias: str, statement: str, there: Collection[str]) -> bool:
    """Returns whether a statement creates a table that is there, or an index of one."""
    if made := _CREATED.match(statement):
        return made[1] == "TABLE" and _as_listed(alias, made[2].strip(_QUOTES)) in there
    if not (made := _INDEX.match(statement)) or _as_listed(alias, made[2].strip(_QUOTES)) not in there:
        return False
    connection = connections[alias]
    with connection.cursor() as cursor:
        known = connection.introspection.get_constraints(cursor, made[2].strip(_QUOTES))
    return _as_listed(alias, made[1].strip(_QUOTES)) in {_as_listed(alias, each) for each in known}


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
