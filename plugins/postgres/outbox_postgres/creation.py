"""Creates the tables of an outbox that do not exist, and what is beside them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg
from outbox_sdk import AccessDenied
from outbox_sdk.portable import TableName

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.connection import connect
from outbox_postgres.data_source import DataSource
from outbox_postgres.ddl import ddl, first_note, later_note, sequence_ddl, sequence_of, tables_ddl
from outbox_postgres.errors import ALREADY_THERE, translated
from outbox_postgres.inspector import Inspector
from outbox_postgres.layout import Layout, find_layout
from outbox_postgres.migration import UPGRADE_PATIENCE, due_migrations
from outbox_postgres.options import PostgresOptions
from outbox_postgres.origin_columns import due_columns, index_ddl
from outbox_postgres.schema_row import read_schema, require_known


def create(options: PostgresOptions) -> Sequence[str]:
    """Creates what is missing; the work behind ``PostgresDialect.create``."""
    source = DataSource(options)
    with connect(source) as connection:
        connection.patience = None  # an index of a large table takes its time
        catalogue = Catalogue(connection)
        with translated(source, f"create table {options.outbox}"):
            placed = _placed(catalogue, options)
        created = _create_tables(catalogue, source, options, placed)
        with translated(source, "create what the tables need", psycopg.errors.InsufficientPrivilege):
            try:
                layout = find_layout(catalogue, options)
                _add_origin(catalogue, layout, options)
                sequence = sequence_of(layout.outbox)
                _create(catalogue, sequence, sequence_ddl(sequence))
                _note(catalogue, layout, placed)
            except psycopg.errors.InsufficientPrivilege as error:
                raise AccessDenied(_refused(catalogue, source, layout, options)) from error
    return created


def _placed(catalogue: Catalogue, options: PostgresOptions) -> PostgresOptions:
    """Returns options that name each table with its schema: the one it is in, or is to be created in.

    Raises:
        DriverError: The outbox has tables of a later version.
    """
    found = catalogue.find(options.outbox)
    if found:
        layout = find_layout(catalogue, options)
        with suppress(psycopg.errors.InsufficientPrivilege):  # what follows says what to grant
            require_known(layout, read_schema(catalogue, layout))
    outbox = found.name if found else catalogue.connection.new(options.outbox)
    names = (options.fence, options.dead_letters, options.journal)
    fence, letters, journal = (str(name.within(outbox.schema)) for name in names)
    return replace(
        options, table=str(outbox), fence_table=fence, dead_letter_table=letters, journal_table=journal
    )


def _create_tables(
    catalogue: Catalogue, source: DataSource, options: PostgresOptions, placed: PostgresOptions
) -> list[str]:
    created: list[str] = []
    for name, (place, statement) in zip(tables_ddl(options), tables_ddl(placed).items(), strict=True):
        with translated(source, f"create table {name}"):
            try:
                if _create(catalogue, place, statement):
                    created.append(".".join(part for part in name if part))
            except psycopg.errors.InsufficientPrivilege as error:
                raise AccessDenied(
                    f"the user may not create table {name} in {source}; let somebody who may run: "
                    f"{'; '.join(ddl(options))}"
                ) from error
    return created


def _create(catalogue: Catalogue, name: TableName, statement: str) -> bool:
    connection = catalogue.connection
    try:
        with connection.transaction():
            # If several processes create it at the same time, only one reports it.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"create {name}",))
            if catalogue.find(name):
                return False
            connection.execute(statement)
    except ALREADY_THERE:
        return False  # the others need not be ours
    return True


def _add_origin(catalogue: Catalogue, layout: Layout, options: PostgresOptions) -> None:
    """Adds the columns and the index that the affinity asks for, where an existing table lacks them.

    Idempotent; writes no row.
    """
    origin, connection = options.origin, catalogue.connection
    if origin is None:
        return
    if due := due_columns(layout.outbox, origin, catalogue.columns(layout.oid)):
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{UPGRADE_PATIENCE}'")
            for statement in due:
                connection.execute(statement)
    if origin.column not in layout.indexed:
        connection.execute(index_ddl(layout.outbox, origin, anew=True))


def _note(catalogue: Catalogue, layout: Layout, placed: PostgresOptions) -> None:
    """Notes the version of the tables, unless they are of an earlier one."""
    if due_migrations(catalogue, layout) == [later_note(layout.fence, layout.name)]:
        catalogue.connection.execute(first_note(placed))


def _refused(catalogue: Catalogue, source: DataSource, layout: Layout, options: PostgresOptions) -> str:
    cures = [fault.cure for fault in Inspector(catalogue, options).faults(layout)]
    statements = [*ddl(options)[-2:], *cures]
    return (
        f"the user may not change what belongs to {layout.outbox} in {source}; let somebody who may run: "
        + "; ".join(statements)
    )
