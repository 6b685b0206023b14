"""The version of an outbox's tables, which its fence notes."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

import psycopg
from outbox_sdk import DriverError, Schema
from outbox_sdk.portable.columns import SCHEMA_LANE, schema_name
from outbox_sdk.schema import refusal

from outbox_postgres.catalogue import Catalogue
from outbox_postgres.layout import Layout


def read_schema(catalogue: Catalogue, layout: Layout) -> Schema | None:
    """Returns the version of the tables of an outbox; psycopg's errors pass through.

    ``None`` if none is noted, or there is no fence.
    """
    note = f"SELECT token, attempt FROM {layout.fence} WHERE name = $1 AND lane = {SCHEMA_LANE}"
    try:
        row = catalogue.connection.execute(note, (schema_name(layout.name),)).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return None
    return Schema(*row) if row else None


def require_known(layout: Layout, found: Schema | None) -> None:
    """Refuses tables that this version of outbox cannot work with.

    Raises:
        DriverError: It must not (not retryable); the message says why.
    """
    if reason := refusal(found):
        raise DriverError(
            f"outbox {layout.outbox} in database '{layout.database}' cannot be used: {reason}",
            retryable=False,
        )
