"""What ``outbox check`` reports about the version of an outbox's tables."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from outbox_sdk import SCHEMA, DriverError, Finding, Level
from outbox_sdk.schema import WITH_JOURNAL

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.layout import Layout
from outbox_postgres.migration import due_migrations, require_fence
from outbox_postgres.schema_row import read_schema, require_known


def check_version(catalogue: Catalogue, layout: Layout) -> Iterator[Finding]:
    """Looks whether the tables are of this version; nothing where the fence is missing or not readable."""
    subject = "version of the tables"
    try:
        found = read_schema(catalogue, layout)
        require_known(layout, found)
    except psycopg.errors.InsufficientPrivilege:
        return
    except DriverError as error:
        yield Finding(Level.ERROR, subject, str(error), "upgrade outbox")
        return
    try:
        require_fence(catalogue, layout)
    except DriverError:
        return
    former = "no version is noted for them" if found is None else f"they have version {found.version}"
    try:
        due = due_migrations(catalogue, layout)
    except psycopg.errors.InsufficientPrivilege:  # for the schema of the journal
        due = [] if found and found.version >= WITH_JOURNAL else ["the journal"]
    if due:
        yield Finding(
            Level.WARNING,
            subject,
            f"the tables are not as this version of outbox makes them: {former}",
            "run 'outbox migrate'",
        )
    else:
        yield Finding(Level.OK, subject, f"version {SCHEMA}, which is this one's")
