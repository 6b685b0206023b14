"""The members of a group: more rows of the fence."""
# ruff: noqa: S608 - names are quoted by QuotedName, and every value is a parameter

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from outbox_sdk.portable.columns import MEMBER
from outbox_sdk.portable.members import FenceMembers, MemberRow

from outbox_postgres.data_source import DataSource
from outbox_postgres.errors import translated
from outbox_postgres.layout import Layout

# For the transaction only: behind a pooler the session may be another's next.
_NOT_DURABLE = "(SELECT set_config('synchronous_commit', 'off', true)) AS not_durable"


class PostgresMembers(FenceMembers):
    """The ``Members`` of PostgreSQL. Made by ``PostgresDialect.members``."""

    def __init__(self, connection: psycopg.Connection[Any], source: DataSource, layout: Layout) -> None:
        self._connection = connection
        self._source = source
        self._rows = members_query(layout)
        self._take_row = f"""
            UPDATE {layout.fence} SET name = $2, holder = $3, token = $4, since = clock_timestamp()
            FROM {_NOT_DURABLE}
            WHERE name = $1 AND lane = {MEMBER}
              AND (name = $2 OR token < 0 OR since < clock_timestamp() - make_interval(secs => $5))"""
        self._add_row = f"""
            INSERT INTO {layout.fence} (name, lane, lanes, token, attempt, holder, since)
            SELECT $1, {MEMBER}, 0, $3, 0, $2, clock_timestamp() FROM {_NOT_DURABLE}
            ON CONFLICT DO NOTHING"""
        self._free_row = f"""
            UPDATE {layout.fence} SET token = -1 FROM {_NOT_DURABLE}
            WHERE name = $1 AND lane = {MEMBER}"""

    def rows(self) -> Sequence[MemberRow]:
        """Returns all rows of members."""
        with translated(self._source, "read the members"):
            found = self._connection.execute(self._rows, binary=True).fetchall()
        return [MemberRow(*row) for row in found]

    def take_row(self, former: str, row: MemberRow, seconds: float) -> bool:
        """Makes a row into another, if it is free or the member's own."""
        values = (former, row.name, row.group, row.leads, float(seconds))
        with translated(self._source, "note the member"):
            return self._connection.execute(self._take_row, values).rowcount > 0

    def add_row(self, row: MemberRow) -> None:
        """Adds a row."""
        with translated(self._source, "add the member"):
            self._connection.execute(self._add_row, (row.name, row.group, row.leads))

    def free_row(self, name: str) -> None:
        """Notes that a member has left."""
        with translated(self._source, "leave the members"):
            self._connection.execute(self._free_row, (name,))

    def close(self) -> None:
        """Disconnects."""
        self._connection.close()


def members_query(layout: Layout) -> str:
    """Writes a query for all rows of members, as a :class:`MemberRow` has them."""
    return f"""
        SELECT name, holder, token, extract(epoch FROM clock_timestamp() - since)::float8
        FROM {layout.fence} WHERE lane = {MEMBER}"""
