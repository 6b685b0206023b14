"""Finds the outboxes of a database by a pattern of their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from outbox_sdk.portable.outboxes import TELLING_COLUMNS, TablePattern

from outbox_postgres.connection import connect
from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.layout import TABLE_KINDS
from outbox_postgres.options import PostgresOptions

_FOUND = """
SELECT n.nspname, c.relname
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind::text = ANY ($1::text[]) AND NOT c.relispartition AND c.relpersistence <> 't'
  AND ($2 OR n.nspname::text = $4)
  AND (SELECT count(*) FROM pg_attribute AS a
       WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname::text = ANY ($3::text[]))
      = cardinality($3::text[])
"""


def find_outboxes(options: PostgresOptions, pattern: str) -> Sequence[str]:
    """Finds outboxes; the work behind ``PostgresDialect.find_outboxes``."""
    wanted = TablePattern(pattern, options.table_name, flags=re.NOFLAG)
    source = DataSource(options)
    with connect(source) as connection, translated(source, "look for outboxes"):
        first = next(iter(connection.schemas), None)
        values = (list(TABLE_KINDS), bool(wanted.schema), list(TELLING_COLUMNS), first)
        return wanted.names(connection.execute(_FOUND, values).fetchall())
