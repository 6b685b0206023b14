"""Compares an outbox with an application's tables of SQLAlchemy, as its migrations would."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any

from outbox_api.base.errors import OutboxError
from outbox_api.base.finding import Finding, Level

from outbox_core.settings import HarvestSettings

_URLS = {
    "postgres": "postgresql+psycopg://",
    "mysql": "mysql+pymysql://",
    "sqlite": "sqlite://",
    "oracle": "oracle+oracledb://",
}
"""The driver name of a dialect → how SQLAlchemy calls the driver of its connections."""


def check_models(models: str, outbox: HarvestSettings) -> Sequence[Finding]:
    """Says where the tables of an outbox differ from an application's: what Alembic would propose."""
    try:
        import alembic  # noqa: F401, PLC0415 - an application that has migrations has it
    except ModuleNotFoundError:
        return [_problem("Alembic, which compares tables, is not installed", "pip install alembic")]
    if outbox.dialect.driver not in _URLS:
        return [_problem(f"tables of {outbox.dialect.driver} cannot be compared", "leave out --models")]
    module, _, name = models.partition(":")
    sys.path.insert(0, "")  # as of python -m
    try:
        metadata = attrgetter(name or "metadata")(import_module(module))
    except Exception as error:  # noqa: BLE001 - an application's code may raise anything
        cure = "write module:metadata, and run this where the application's modules can be imported"
        return [_problem(f"'{models}' cannot be imported: {error}", cure)]
    try:
        differences = list(_differences(outbox, metadata))
    except OutboxError:  # the dialect's check reports it
        return []
    cure = "migrate the database, or correct the arguments of outbox_table (docs/sqlalchemy.md)"
    return [_problem(each, cure) for each in differences] or [
        Finding(Level.OK, "models", f"'{models}' has the outbox's tables as the database has them")
    ]


def _problem(message: str, cure: str) -> Finding:
    return Finding(Level.WARNING, "models", message, cure)


def _differences(outbox: HarvestSettings, metadata: Any) -> Iterator[str]:
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415 - see above
    from alembic.migration import MigrationContext  # noqa: PLC0415 - see above
    from sqlalchemy import NullPool, create_engine  # noqa: PLC0415 - see above

    driver, tables = outbox.dialect, outbox.dialect.options.tables
    connect = driver.create().stash_connection
    engine = create_engine(_URLS[driver.driver], creator=connect, poolclass=NullPool)
    names, schema = {each.table for each in tables}, tables.outbox.schema

    def is_ours(thing: Any, name: str | None, kind: str, *_: object) -> bool:
        default = engine.dialect.default_schema_name
        return kind != "table" or (name in names and (thing.schema or default) == (schema or default))

    with engine.connect() as connection:
        options = {"include_object": is_ours, "include_schemas": bool(schema)}
        for found in compare_metadata(MigrationContext.configure(connection, opts=options), metadata):
            yield from map(_told, found if isinstance(found, list) else [found])


def _told(difference: Sequence[Any]) -> str:
    verb, kind = difference[0].split("_", 1)
    match difference[1:]:
        case (_, table, column, _, database, model):
            return f"{table}.{column}: {kind} is {database!r} in the database, and {model!r} in the models"
        case (_, table, column):
            thing = f"{table}.{column.name}"
        case (named, *_):
            thing = named.name
    both = ("the models", "the database") if verb == "add" else ("the database", "the models")
    return f"the {kind} '{thing}' is in {both[0]}, and not in {both[1]}"
