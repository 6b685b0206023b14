"""Brings the tables of an earlier version up to this one, while harvesters of that version run."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from outbox_sdk import SCHEMA, AccessDenied, DriverError, Schema

from outbox_postgres.auxiliary_tables import auxiliary_tables, journal_table
from outbox_postgres.catalogue import Catalogue
from outbox_postgres.connection import open_catalogue
from outbox_postgres.ddl import later_note, parked_index, parked_index_ddl, sequence_ddl, sequence_of
from outbox_postgres.errors import ALREADY_THERE, translated
from outbox_postgres.layout import Layout, find_layout
from outbox_postgres.options import PostgresOptions
from outbox_postgres.schema_row import read_schema, require_known

UPGRADE_PATIENCE = "1s"
"""How long a statement waits for its lock: every later one on the table waits behind it, the leader's too."""


def schema(options: PostgresOptions) -> Schema | None:
    """Reads the version of the tables; the work behind ``PostgresDialect.schema``."""
    with open_catalogue(options) as (source, catalogue), translated(source, "read the version of the tables"):
        layout = find_layout(catalogue, options, writable=False)
        require_fence(catalogue, layout)
        return read_schema(catalogue, layout)


def migrations(options: PostgresOptions) -> Sequence[str]:
    """Returns what is to be done; the work behind ``PostgresDialect.migrations``."""
    with open_catalogue(options) as (source, catalogue), translated(source, "look at the tables"):
        layout = find_layout(catalogue, options, writable=False)
        return due_migrations(catalogue, layout)


def migrate(options: PostgresOptions) -> Sequence[str]:
    """Does it; the work behind ``PostgresDialect.migrate``."""
    done = []
    with open_catalogue(options, read_only=False) as (source, catalogue):
        with translated(source, "look at the tables"):
            layout = find_layout(catalogue, options)
            due = due_migrations(catalogue, layout)
        for statement in due:
            with translated(source, "migrate the tables"):
                try:
                    if _execute(catalogue, layout, statement):
                        done.append(statement)
                except psycopg.errors.InsufficientPrivilege as error:
                    raise AccessDenied(
                        f"the user may not migrate the tables in {source}; let somebody who may run: "
                        f"{'; '.join(due)}"
                    ) from error
    return done


def due_migrations(catalogue: Catalogue, layout: Layout) -> list[str]:
    """Returns the statements that bring the tables of an outbox up to this version; psycopg's errors pass.

    Each is idempotent, and several processes may execute it at once. Harvesters of earlier versions continue,
    as they name the columns that they use.

    Raises:
        DriverError: There is no fence, it is somebody else's, or the tables are of a later version.
    """
    require_fence(catalogue, layout)
    found = read_schema(catalogue, layout)
    require_known(layout, found)
    due = []
    beside = auxiliary_tables(layout.fence, layout.dead_letters)
    for table in (*beside, journal_table(layout.journal)):
        relation = catalogue.find(table.name)
        if relation is None:
            due.append(table.ddl)
        elif statement := table.upgrade(catalogue.columns(relation.oid)):
            due.append(statement)
    letters = layout.dead_letters
    if catalogue.find(letters) and not catalogue.find(parked_index(letters)):
        due.append(parked_index_ddl(letters))
    sequence = sequence_of(layout.outbox)
    if not catalogue.find(sequence):
        due.append(sequence_ddl(sequence))
    if found is None or found.version < SCHEMA:
        due.append(later_note(layout.fence, layout.name))
    return due


def require_fence(catalogue: Catalogue, layout: Layout) -> None:
    """Makes sure that there is a fence, of whatever version.

    Raises:
        DriverError: There is none, or a table that is no fence (not retryable).
    """
    fence, _ = auxiliary_tables(layout.fence, layout.dead_letters)
    found = catalogue.find(fence.name)
    fault = fence.absent("run 'outbox init'") if found is None else None
    if found and not fence.upgrade(columns := catalogue.columns(found.oid)):
        fault = next(fence.column_faults(columns), None)
    if fault:
        raise DriverError(f"{fault.message}: {fault.cure}", retryable=False)


def _execute(catalogue: Catalogue, layout: Layout, statement: str) -> bool:
    connection = catalogue.connection
    try:
        with connection.transaction():
            # If several processes migrate at the same time, only one executes it.
            lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
            connection.execute(lock, (f"migrate {layout.fence}",))
            if statement not in due_migrations(catalogue, layout):
                return False
            connection.execute(f"SET LOCAL lock_timeout = '{UPGRADE_PATIENCE}'")
            connection.execute(statement)
    except ALREADY_THERE:
        return False  # 'outbox init' was first
    return True
